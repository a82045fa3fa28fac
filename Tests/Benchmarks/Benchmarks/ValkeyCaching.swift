// Caches on a server, beside plain round trips to the same server. Each batch runs in a process of
// its own, because the storage of this one is not that of caches.
import Foundation
import Glibc
import Keepsake
import KeepsakeValkey

struct ValkeyCaching {
  /// What a process of its own does with all keys.
  enum Batch: String {
    /// Stores their values, for the others.
    case fill
    /// Fetches them on a machine that has none of them.
    case fetchOfServer
    /// Fetches them again.
    case fetchOfMachine
    /// Fetches them from a cache that is not on the server.
    case fetchWithoutServer
    case set
    /// Plain commands.
    case plainGet
    case plainSet
  }

  private let socket: String
  private let directory: String
  private static let cache: DiskCache.Name = "shared"
  private static let local: DiskCache.Name = "local"
  private static let keys = (0..<500).map { "page/\($0)" }

  init(at socket: String, in directory: String) {
    self.socket = socket
    self.directory = directory
  }

  func measure(_ bench: inout Bench) throws {
    for size in [100, 16_384] {
      _ = try figure(.fill, size)
      func compare(
        _ name: String, _ own: Batch, _ base: Batch, _ baseName: String, target: Double = .infinity
      ) throws {
        try bench.compare(
          name, size: size, count: Self.keys.count, unit: .nanoseconds,
          keepsake: { try figure(own, size) },
          base: Peer(baseName, target: target) { try figure(base, size) })
      }
      try compare(
        "DiskCache.fetch, hit on the server", .fetchOfServer, .plainGet, "GET", target: 1.3)
      try compare(
        "DiskCache.fetch, hit on this machine", .fetchOfMachine, .fetchWithoutServer,
        "without a server")
      try compare("DiskCache.set", .set, .plainSet, "SET")
    }
  }

  /// How many nanoseconds a process takes for each call.
  private func figure(_ batch: Batch, _ size: Int) throws -> Double {
    let directory = "\(directory)/\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: directory) }
    return try Child(
      task: ChildTask.caching.rawValue, [batch.rawValue, socket, directory, "\(size)"]
    ).number()
  }

  // MARK: In a process of its own

  static func run(_ batch: Batch, _ socket: String, _ directory: String, _ size: Int) throws {
    let directory = try makeDirectory(directory)
    // Errors on a busy machine would look fast.
    let backing = try ValkeyBacking.valkey(
      "unix://\(socket)?timeout=60s&connect-timeout=60s", localCaches: [local])
    try StorageSystem.bootstrap(
      app: "benchmarks", on: backing,
      directories: .init(
        configuration: directory, data: directory, state: directory, cache: directory))
    let value = Data(repeating: 7, count: size)
    let text = String(repeating: "a", count: size)
    let time: Duration
    switch batch {
    case .fill:
      let plain = try PeerValkey(at: socket)
      time = try measure {
        try store(value, in: cache)
        for key in keys { try plain.perform("SET", key, text) }
      }
    case .fetchOfServer: time = try fetch(from: cache, size)
    case .fetchOfMachine:
      _ = try fetch(from: cache, size)
      time = try fetch(from: cache, size)
    case .fetchWithoutServer:
      try store(value, in: local)
      time = try fetch(from: local, size)
    case .set:
      DiskCache.set(value, forKey: "first", cache: cache)
      time = try measure { try store(value, in: cache) }
    case .plainGet:
      let plain = try PeerValkey(at: socket)
      _ = try plain.get(keys[0])
      time = try measure { for key in keys { sink &+= try plain.get(key).utf8.count } }
    case .plainSet:
      let plain = try PeerValkey(at: socket)
      try plain.perform("SET", keys[0], text)
      time = try measure { for key in keys { try plain.perform("SET", key, text) } }
    }
    print(time / .nanoseconds(1) / Double(keys.count))
  }

  private static func measure(_ body: () throws -> Void) rethrows -> Duration {
    try ContinuousClock().measure(body)
  }

  private static func store(_ value: Data, in cache: DiskCache.Name) throws {
    for key in keys {
      guard DiskCache.set(value, forKey: key, expiry: .hours(1), cache: cache) else {
        throw Failure("an entry cannot be stored")
      }
    }
  }

  /// The time that hits take, without that of the connection.
  private static func fetch(from cache: DiskCache.Name, _ size: Int) throws -> Duration {
    try blocking {
      _ = try await DiskCache.fetch("first", cache: cache) { Data() }
      let start = ContinuousClock.now
      for key in keys {
        let value: Data = try await DiskCache.fetch(key, expiry: .hours(1), cache: cache) {
          throw Failure("\(key) is missing")
        }
        guard value.count == size else { throw Failure("\(key) has another value") }
      }
      return ContinuousClock.now - start
    }
  }
}
