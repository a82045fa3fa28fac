// Settings on a server, beside the same settings on this machine and plain round trips to the same
// server.
import Foundation
import Glibc
import Keepsake
import KeepsakeValkey

struct ValkeySettings {
  private static let suite: Defaults.Suite = "valkey"
  /// The same settings, opened with a link of its own, as another process opens them.
  private static let other: Defaults.Suite = "valkey-other"
  private static let watched: Defaults.Suite = "valkey-watched"
  private static let unwatched: Defaults.Suite = "valkey-unwatched"
  private static let journal: Defaults.Suite = "valkey-journal"

  /// Keeps the suites of the section on a server.
  struct Backing: StorageBacking {
    private let own: ValkeyBacking
    private let other: ValkeyBacking

    init(socket: String) throws {
      // Errors on a busy machine would look fast.
      let url = "unix://\(socket)?timeout=60s&connect-timeout=60s"
      own = try .valkey(url)
      other = try .valkey(url)
    }

    func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
      switch suite {
      case ValkeySettings.suite, ValkeySettings.watched, ValkeySettings.unwatched:
        own.engine(for: suite, app: app)
      case ValkeySettings.other: other.engine(for: ValkeySettings.suite, app: app)
      default: nil
      }
    }

    func suites(app: String) -> [Defaults.Suite] { [] }
  }

  private let bare: PeerValkey
  private let bareTable: BareTable
  private let count = 1_000
  private let profiles = (0..<64).map { "profile.\($0)" }

  init(at socket: String) throws {
    bare = try PeerValkey(at: socket)
    bareTable = try BareTable(at: socket)
  }

  func measure(_ bench: inout Bench) throws {
    try fill()
    try measureReading(&bench)
    try measureModels(&bench)
    try measureWriting(&bench)
    try measureUpdate(&bench)
    try measureOtherLink(&bench)
    try measureObservers(&bench)
  }

  private func set(_ number: Int, _ key: String, _ suite: Defaults.Suite) throws {
    guard Defaults.set(number, forKey: key, suite: suite) else {
      throw Failure("a setting cannot be stored in \(suite.name)")
    }
  }

  private func fill() throws {
    for suite in [Self.suite, Self.journal] {
      for number in 0..<count {
        Settings.value(number).store(forKey: Settings.key(number), suite: suite)
      }
      for key in profiles { Defaults.set(Profile(), forKey: key, suite: suite) }
      guard Defaults.keys(suite: suite).count == count + profiles.count else {
        throw Failure("\(suite.name) cannot be filled")
      }
    }
    for number in 0..<count {
      try bare.perform("SET", Settings.key(number), "\(Settings.value(number).object)")
    }
    let profile = String(decoding: try JSONEncoder().encode(Profile()), as: UTF8.self)
    for key in profiles { try bare.perform("SET", key, profile) }
  }

  // MARK: Reading

  /// Measures reads from memory beside the same reads on one machine.
  private func measureReading(_ bench: inout Bench) throws {
    let ints = Settings.keys(ofType: 0, count: count)
    let texts = Settings.keys(ofType: 2, count: count)
    try bench.measure(
      "Defaults.get Int", count: count, target: 1.1,
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: Self.suite) } },
      floor: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: Self.journal) } },
      floorName: "one machine",
      peers: [
        Peer(PeerValkey.name) { try each(ints, $0) { sink &+= Int(try bare.get($0)) ?? 0 } }
      ])
    func length(_ key: String, _ suite: Defaults.Suite) -> Int {
      Defaults.get(key, default: "", suite: suite).utf8.count
    }
    try bench.measure(
      "Defaults.get String", count: count, target: 1.1,
      keepsake: { each(texts, $0) { sink &+= length($0, Self.suite) } },
      floor: { each(texts, $0) { sink &+= length($0, Self.journal) } }, floorName: "one machine",
      peers: [
        Peer(PeerValkey.name) { try each(texts, $0) { sink &+= try bare.get($0).utf8.count } }
      ])
  }

  private func measureModels(_ bench: inout Bench) throws {
    let decoder = JSONDecoder()
    func age(_ key: String, _ suite: Defaults.Suite) -> Int {
      Defaults.model(key, type: Profile.self, suite: suite)?.age ?? 0
    }
    try bench.measure(
      "Defaults.model, read again", count: count, target: 1.1,
      keepsake: { each(profiles, $0) { sink &+= age($0, Self.suite) } },
      floor: { each(profiles, $0) { sink &+= age($0, Self.journal) } }, floorName: "one machine",
      peers: [
        Peer(PeerValkey.name) {
          try each(profiles, $0) {
            sink &+= try decoder.decode(Profile.self, from: Data(bare.get($0).utf8)).age
          }
        }
      ])
  }

  // MARK: Writing

  private static let floorName = "script + own echo"
  private static let isUnpublished = "publishes nothing: other processes do not learn of it"

  private func measureWriting(_ bench: inout Bench) throws {
    let ints = Settings.keys(ofType: 0, count: count)
    var numbers = Numbers()
    try bench.measure(
      "Defaults.set Int", count: count, target: 1.5, batch: .milliseconds(20),
      keepsake: { try each(ints, $0) { try set(numbers.next(), $0, Self.suite) } },
      floor: { try each(ints, $0) { try bareTable.set("\(numbers.next())", forKey: $0) } },
      floorName: Self.floorName,
      peers: [
        Peer("SET", weaker: Self.isUnpublished) {
          try each(ints, $0) { try bare.perform("SET", $0, "\(numbers.next())") }
        }
      ])
  }

  private func measureUpdate(_ bench: inout Bench) throws {
    let key = "launches"
    let first = 1_000_000
    try set(first, key, Self.suite)
    try bare.perform("SET", key, "\(first)")
    var numbers = Numbers()
    try bench.measure(
      "Defaults.update", count: count, batch: .milliseconds(20),
      keepsake: {
        for _ in 0..<$0 { Defaults.update(key, default: 0, suite: Self.suite) { $0 += 1 } }
      },
      floor: { for _ in 0..<$0 { try bareTable.set("\(numbers.next())", forKey: key) } },
      floorName: Self.floorName,
      peers: [
        Peer("WATCH, GET, MULTI, SET, EXEC", weaker: Self.isUnpublished) {
          for _ in 0..<$0 {
            try bare.perform("WATCH", key)
            let number = Int(try bare.get(key)) ?? 0
            try bare.perform("MULTI")
            try bare.perform("SET", key, "\(number + 1)")
            try bare.perform("EXEC")
          }
        }
      ])
  }

  // MARK: Others

  /// Measures a set until another link shows it, beside a message between two connections.
  private func measureOtherLink(_ bench: inout Bench) throws {
    let key = Settings.key(0)
    var numbers = Numbers()
    try bench.measure(
      "Defaults.set until seen by another link", count: count, batch: .milliseconds(20),
      keepsake: {
        for _ in 0..<$0 {
          let number = numbers.next()
          try set(number, key, Self.suite)
          while Defaults.get(key, default: 0, suite: Self.other) != number { sched_yield() }
        }
      },
      floor: { for _ in 0..<$0 { try bareTable.publish("\(numbers.next())") } },
      floorName: "PUBLISH + message")
  }

  private func measureObservers(_ bench: inout Bench) throws {
    let ints = Settings.keys(ofType: 0, count: count)
    var numbers = Numbers()
    for suite in [Self.watched, Self.unwatched] {
      for key in ints { try set(numbers.next(), key, suite) }
      // From the first read on, this process follows the suite.
      guard Defaults.keys(suite: suite).count == ints.count else {
        throw Failure("\(suite.name) cannot be read")
      }
    }
    let watchers = try Watchers(
      count: 20, change: { Defaults.set(numbers.next(), forKey: ints[0], suite: Self.watched) },
      follow: { hasSeen in for await _ in Defaults.changes(suite: Self.watched) { hasSeen() } })
    defer { watchers.cancel() }
    try bench.measure(
      "Defaults.set Int, 20 observers", count: ints.count, batch: .milliseconds(20),
      keepsake: { try each(ints, $0) { try set(numbers.next(), $0, Self.watched) } },
      floor: { try each(ints, $0) { try set(numbers.next(), $0, Self.unwatched) } },
      floorName: "not watched")
  }
}
