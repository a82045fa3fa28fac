// The vault: reading and writing secrets of three sizes. Keepsake and the floor read the same
// files, and write files of the same size to neighboring directories.
import Foundation
import Keepsake

struct Secrets {
  private let directory: String
  private static let service: SecureVault.Service = "com.app.auth"
  private static let sizes = [32, 1_024, 1 << 20]

  init(directory: String) { self.directory = directory }

  /// Replacing files comes last, because ext4 creates files slowly for minutes afterwards.
  func measure(_ bench: inout Bench) throws {
    for size in Self.sizes { try measureReading(&bench, size: size) }
    try measureExistence(&bench)
    try measureModel(&bench)
    try measureSealing(&bench)
    try measureInMemory(&bench)
    for size in Self.sizes { try measureNewKeys(&bench, size: size) }
    for size in Self.sizes { try measureExistingKeys(&bench, size: size) }
  }

  // MARK: Reading

  private func measureReading(_ bench: inout Bench, size: Int) throws {
    let keys = (0..<(size > 100_000 ? 16 : 500)).map(Self.key)
    let vault = try EmptyVault(Self.service(of: "read", size), directory)
    let crypto = try PeerVault(in: "\(directory)/read-\(size)")
    let (text, data) = (Self.text(size), Self.data(size))
    for key in keys {
      try size == 32 ? vault.store.set(text, forKey: key) : vault.store.set(data, forKey: key)
      try crypto.setAtomically(data, forKey: key)
    }
    let entries = try vault.entries()
    let fileSize = try Self.size(of: entries[0])
    sync()
    let floor: Subject = {
      try each(entries, $0) { sink &+= try FloorVault.get($0, fileSize).count }
    }
    let peers: [Peer<Subject>] = [
      Peer(PeerVault.name) { try each(keys, $0) { sink &+= try crypto.get($0).count } }
    ]
    if size == 32 {
      try bench.measure(
        "SecureVault.get", size: size, target: 2.5,
        keepsake: { try each(keys, $0) { sink &+= try vault.store.get($0)?.utf8.count ?? 0 } },
        floor: floor, peers: peers)
      // The facade looks its store up by name.
      try bench.measure(
        "SecureVault.get, facade", size: size,
        keepsake: {
          each(keys, $0) {
            sink &+= SecureVault.get($0, service: vault.service)?.utf8.count ?? 0
          }
        }, floor: floor, peers: peers)
    } else {
      try bench.measure(
        "SecureVault.getData", size: size,
        keepsake: { try each(keys, $0) { sink &+= try vault.store.getData($0)?.count ?? 0 } },
        floor: floor, peers: peers)
    }
    try bench.measure(
      "SecureVault.withSecret", size: size,
      keepsake: {
        try each(keys, $0) { key in
          sink &+= try vault.store.withSecret(key) { (bytes: RawSpan) in bytes.byteCount } ?? 0
        }
      }, floor: floor, peers: peers)
  }

  /// Checks whether a key exists.
  private func measureExistence(_ bench: inout Bench) throws {
    let vault = try EmptyVault("looks", directory)
    let keys = (0..<500).map(Self.key)
    let missing = (500..<1_000).map(Self.key)
    for key in keys { try vault.store.set(Self.text(32), forKey: key) }
    let present = try vault.entries()
    let absent = (0..<500).map { vault.floor.entry($0).path }
    sync()
    func looks(_ paths: [String]) -> Subject {
      { each(paths, $0) { sink &+= FloorCache.contains($0) ? 1 : 0 } }
    }
    try bench.measure(
      "SecureVault.contains", size: 32,
      keepsake: { try each(keys, $0) { sink &+= try vault.store.contains($0) ? 1 : 0 } },
      floor: looks(present))
    try bench.measure(
      "SecureVault.contains, missing",
      keepsake: { try each(missing, $0) { sink &+= try vault.store.contains($0) ? 1 : 0 } },
      floor: looks(absent))
    try bench.measure(
      "SecureVault.get, missing",
      keepsake: { try each(missing, $0) { sink &+= try vault.store.get($0)?.utf8.count ?? 0 } },
      floor: looks(absent))
  }

  /// Measures models, which Keepsake stores as JSON.
  private func measureModel(_ bench: inout Bench) throws {
    let vault = try EmptyVault("models", directory)
    let crypto = try PeerVault(in: "\(directory)/models")
    let keys = (0..<32).map(Self.key)
    let keepsake: Subject = { try each(keys, $0) { try vault.store.set(Profile(), forKey: $0) } }
    let durably: Subject = {
      try each(keys, $0) { try crypto.setDurably(JSONEncoder().encode(Profile()), forKey: $0) }
    }
    for fill in [keepsake, durably] { try fill(keys.count) }
    let entries = try vault.entries()
    let contents = Self.data(try Self.size(of: entries[0]))
    let floorEntries = keys.indices.map(vault.floor.entry)
    try bench.measure(
      "SecureVault.model",
      keepsake: {
        try each(keys, $0) { sink &+= try vault.store.model($0, type: Profile.self)?.age ?? 0 }
      },
      floor: { try each(entries, $0) { sink &+= try FloorVault.get($0, contents.count).count } },
      peers: [
        Peer(PeerVault.name) {
          try each(keys, $0) { sink &+= try crypto.model($0, Profile.self).age }
        }
      ])
    try bench.measure(
      "SecureVault.set, a model", batch: .milliseconds(20), most: 100,
      keepsake: keepsake,
      floor: { try each(floorEntries, $0) { try vault.floor.set(contents, $0) } },
      peers: [
        Peer(PeerVault.name, durably),
        Peer(PeerVault.atomicName, weaker: Atomic.isWeaker) {
          try each(keys, $0) {
            try crypto.setAtomically(JSONEncoder().encode(Profile()), forKey: $0)
          }
        },
      ])
  }

  // MARK: Writing

  private func measureNewKeys(_ bench: inout Bench, size: Int) throws {
    let vault = try EmptyVault(Self.service(of: "new", size), directory)
    let crypto = try PeerVault(in: "\(directory)/new-\(size)")
    let data = Self.data(size)
    // The same number of bytes as in Keepsake's file.
    try vault.store.set(data, forKey: Self.key(0))
    let contents = Self.data(try Self.size(of: try vault.entries()[0]))
    var next = 1
    var keys: [String] = []
    var entries: [FloorVault.Entry] = []
    try bench.measure(
      "SecureVault.set, new key", size: size, target: size == 32 ? 1.3 : nil,
      batch: .milliseconds(20), most: size > 100_000 ? 4 : 100,
      prepare: {
        keys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(vault.floor.entry)
        next += $0
      },
      keepsake: { for key in keys[..<$0] { try vault.store.set(data, forKey: key) } },
      floor: { for entry in entries[..<$0] { try vault.floor.set(contents, entry) } },
      peers: [
        Peer(PeerVault.name) {
          for key in keys[..<$0] { try crypto.setDurably(data, forKey: key) }
        },
        Peer(PeerVault.atomicName, weaker: Atomic.isWeaker) {
          for key in keys[..<$0] { try crypto.setAtomically(data, forKey: key) }
        },
      ])
  }

  private func measureExistingKeys(_ bench: inout Bench, size: Int) throws {
    let vault = try EmptyVault(Self.service(of: "over", size), directory)
    let crypto = try PeerVault(in: "\(directory)/over-\(size)")
    let data = Self.data(size)
    let numbers = 0..<(size > 100_000 ? 4 : 32)
    let (keys, entries) = (numbers.map(Self.key), numbers.map(vault.floor.entry))
    let keepsake: Subject = { try each(keys, $0) { try vault.store.set(data, forKey: $0) } }
    try keepsake(keys.count)
    let contents = Self.data(try Self.size(of: try vault.entries()[0]))
    let floor: Subject = { try each(entries, $0) { try vault.floor.set(contents, $0) } }
    let durably: Subject = { try each(keys, $0) { try crypto.setDurably(data, forKey: $0) } }
    let atomically: Subject = {
      try each(keys, $0) { try crypto.setAtomically(data, forKey: $0) }
    }
    for fill in [floor, durably] { try fill(keys.count) }
    try bench.measure(
      "SecureVault.set, existing key", size: size, target: size == 32 ? 1.3 : nil,
      batch: .milliseconds(20), most: 100, keepsake: keepsake, floor: floor,
      peers: [
        Peer(PeerVault.name, durably),
        Peer(PeerVault.atomicName, weaker: Atomic.isWeaker, atomically),
      ])
  }

  /// Measures a whole set on a file system in memory, without waits for a disk: against plain EVP
  /// calls with a buffer of the same size, and the same file calls.
  private func measureSealing(_ bench: inout Bench) throws {
    let memory = "/dev/shm"
    let isThere = FileManager.default.isWritableFile(atPath: memory)
    let parent = "\(isThere ? memory : directory)/keepsake-benchmarks-\(getpid())-sealing"
    defer { try? FileManager.default.removeItem(atPath: parent) }
    let vault = try EmptyVault(
      SecureVault.Service("sealing", in: makeDirectory(parent)), parent)
    // With its prefix of 16 bytes, a value that needs no padding.
    let value = Self.data((1 << 20) - 16)
    let message = [UInt8](Self.data(1 << 20))
    let entry = vault.floor.entry(0)
    let crypto = try PeerVault(in: parent)
    try bench.measure(
      "sealing in \(isThere ? "memory" : "a directory")", size: 1 << 20, target: 1.18,
      keepsake: { for _ in 0..<$0 { try vault.store.set(value, forKey: "value") } },
      floor: { for _ in 0..<$0 { try vault.floor.seal(message, entry) } },
      peers: [
        Peer(PeerVault.name) {
          for _ in 0..<$0 { try crypto.setDurably(value, forKey: "value") }
        }
      ])
  }

  /// Measures sets on a file system in memory, without waits for a disk: against all system calls
  /// that Keepsake makes.
  private func measureInMemory(_ bench: inout Bench) throws {
    let memory = "/dev/shm"
    guard FileManager.default.isWritableFile(atPath: memory) else { return }
    let parent = "\(memory)/keepsake-benchmarks-\(getpid())-sets"
    defer { try? FileManager.default.removeItem(atPath: parent) }
    let vault = try EmptyVault(SecureVault.Service("sets", in: makeDirectory(parent)), parent)
    let data = Self.data(32)
    try vault.store.set(data, forKey: Self.key(0))
    let contents = Self.data(try Self.size(of: try vault.entries()[0]))
    var next = 1
    var keys: [String] = []
    var entries: [FloorVault.Entry] = []
    try bench.measure(
      "SecureVault.set in memory, new key", size: 32, target: 1.3,
      prepare: {
        keys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(vault.floor.entry)
        next += $0
      },
      keepsake: { for key in keys[..<$0] { try vault.store.set(data, forKey: key) } },
      floor: { for entry in entries[..<$0] { try vault.floor.setWithAllCalls(contents, entry) } })
    keys = (1..<33).map(Self.key)
    entries = (1..<33).map(vault.floor.entry)
    try bench.measure(
      "SecureVault.set in memory, existing key", size: 32, target: 1.3,
      keepsake: { try each(keys, $0) { try vault.store.set(data, forKey: $0) } },
      floor: { try each(entries, $0) { try vault.floor.setWithAllCalls(contents, $0) } })
  }

  // MARK: Keys and values

  /// Each row has its own service, and thereby its own directory.
  private static func service(of row: String, _ size: Int) -> SecureVault.Service {
    "\(row).\(size)"
  }

  private static func key(_ number: Int) -> String { "token.\(10_000_000 + number)" }

  private static func text(_ size: Int) -> String { String(repeating: "x", count: size) }

  private static func data(_ size: Int) -> Data {
    Data((0..<size).map { _ in UInt8.random(in: .min ... .max) })
  }

  private static func size(of path: String) throws -> Int {
    let attributes = try FileManager.default.attributesOfItem(atPath: path)
    guard let size = attributes[.size] as? Int else { throw SystemFailure(code: EINVAL) }
    return size
  }
}
