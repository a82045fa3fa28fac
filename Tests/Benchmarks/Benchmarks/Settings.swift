// Reading and writing settings. Keepsake, the floor's table, Foundation's UserDefaults, SQLite and
// a dictionary that is written as JSON hold the same values.
import Foundation
import Keepsake

struct Profile: Codable, Sendable, Equatable {
  var name = "Ada Lovelace"
  var age = 36
  var tags = ["mathematics", "engines"]
}

struct Settings {
  static let foundation = "UserDefaults"
  /// More take minutes to store: it compares all values for each.
  private static let mostOfFoundation = 10_000
  static let synchronizeIsStronger = "syncs its file, but truncates it first"

  let table = FloorTable()
  let journal: FloorJournal
  let peer: UserDefaults
  let sqlite: PeerTable
  let durableSqlite: PeerTable
  let dictionary: PeerDictionary
  /// The directory of all stores except the standard suite.
  let parent: String
  private let domain: String
  private(set) var keys: [String] = []

  /// Empties the standard suite, which is measured because most programs use it.
  init(directory: String) throws {
    guard Defaults.removeAll() else { throw Failure("the standard suite cannot be emptied") }
    parent = try makeDirectory("\(directory)/settings-\(UUID().uuidString)").path(
      percentEncoded: false)
    journal = try FloorJournal(in: parent)
    sqlite = try PeerTable(at: "\(parent)/table.sqlite")
    durableSqlite = try PeerTable(at: "\(parent)/durable.sqlite", isDurable: true)
    dictionary = PeerDictionary(at: "\(parent)/settings.json")
    domain = "com.example.\(UUID().uuidString)"
    guard let peer = UserDefaults(suiteName: domain) else { throw Failure("no UserDefaults") }
    self.peer = peer
  }

  /// Short names are stored inline in a `String`, long ones are not; both are common.
  static func key(_ number: Int) -> String {
    number % 2 == 0 ? "option.\(number)" : "com.example.option.\(number)"
  }

  /// Integers, Booleans and texts in turn.
  static func value(_ number: Int) -> Setting {
    switch number % 3 {
    case 0: .int(number)
    case 1: .bool(true)
    default: .string("the value of \(number)")
    }
  }

  /// Grows all stores to `count` keys.
  mutating func fill(to count: Int) throws {
    let added = (keys.count..<count).map { (key: Self.key($0), value: Self.value($0)) }
    for (key, value) in added {
      value.store(forKey: key, suite: .standard)
      table.set(value, forKey: key)
    }
    guard Defaults.synchronize() else { throw Failure("the standard suite cannot be written") }
    keys += added.map(\.key)
    if count <= Self.mostOfFoundation {
      var all = peer.persistentDomain(forName: domain) ?? [:]
      for (key, value) in added { all[key] = value.object }
      peer.setPersistentDomain(all, forName: domain)
      peer.synchronize()
    }
    try sqlite.fill(added)
    try durableSqlite.fill(added)
    try dictionary.fill(added)
  }

  /// The peers that hold as many settings as Keepsake.
  private func whole(_ peers: [Peer<Subject>]) -> [Peer<Subject>] {
    if keys.count <= Self.mostOfFoundation { return peers }
    return peers.filter { !$0.name.hasPrefix(Self.foundation) }
  }

  /// The keys of one type in random order, as new strings: a program that reads a setting does not
  /// have the string object with which it was stored.
  static func keys(ofType type: Int, count: Int) -> [String] {
    stride(from: type, to: count, by: 3).map { key($0) }.shuffled()
  }

  func keys(ofType type: Int) -> [String] { Self.keys(ofType: type, count: keys.count) }

  /// None for larger tables, whose time depends on memory latency.
  private var lookUpTarget: Double? { keys.count <= 10_000 ? 1.25 : nil }

  /// Measures scalars, whose cost must not grow with the store.
  func measureReading(_ bench: inout Bench) throws {
    let (ints, bools, texts) = (keys(ofType: 0), keys(ofType: 1), keys(ofType: 2))
    try bench.measure(
      "Defaults.get Int", count: keys.count, target: lookUpTarget,
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0) } },
      floor: { each(ints, $0) { sink &+= table.int($0) ?? 0 } },
      peers: whole([
        Peer(Self.foundation, target: 10) {
          each(ints, $0) { sink &+= peer.integer(forKey: $0) }
        },
        Peer(PeerTable.name) { try each(ints, $0) { sink &+= try sqlite.get($0) ?? 0 } },
      ]))
    try bench.measure(
      "Defaults.get Bool", count: keys.count, target: lookUpTarget,
      keepsake: { each(bools, $0) { sink &+= Defaults.get($0, default: false) ? 1 : 0 } },
      floor: { each(bools, $0) { sink &+= table.bool($0) ?? false ? 1 : 0 } },
      peers: whole([
        Peer(Self.foundation, target: 10) {
          each(bools, $0) { sink &+= peer.bool(forKey: $0) ? 1 : 0 }
        },
        Peer(PeerTable.name) {
          try each(bools, $0) { sink &+= try sqlite.get($0) ?? false ? 1 : 0 }
        },
      ]))
    try bench.measure(
      "Defaults.get String", count: keys.count, target: lookUpTarget,
      keepsake: { each(texts, $0) { sink &+= Defaults.get($0, default: "").utf8.count } },
      floor: { each(texts, $0) { sink &+= (table.string($0) ?? "").utf8.count } },
      peers: whole([
        Peer(Self.foundation, target: 10) {
          each(texts, $0) { sink &+= peer.string(forKey: $0)?.utf8.count ?? 0 }
        },
        Peer(PeerTable.name) {
          try each(texts, $0) { sink &+= try sqlite.get($0, String.self)?.utf8.count ?? 0 }
        },
      ]))
  }

  func measureWriting(_ bench: inout Bench) throws {
    let ints = keys(ofType: 0)
    let records = FloorJournal.records(ints)
    var numbers = Numbers()
    try bench.measure(
      "Defaults.set Int", count: keys.count, target: 1.5, batch: .milliseconds(20),
      keepsake: { each(ints, $0) { Defaults.set(numbers.next(), forKey: $0) } },
      floor: { try each(records, $0) { try journal.appendLocked($0) } },
      peers: whole(writers(ints)))
    try bench.measure(
      "Defaults.set + synchronize", count: keys.count, target: 1.3, batch: .milliseconds(40),
      keepsake: {
        each(ints, $0) {
          Defaults.set(numbers.next(), forKey: $0)
          Defaults.synchronize()
        }
      },
      floor: { try each(records, $0) { try journal.appendDurably($0) } },
      peers: whole([
        Peer(Self.foundation) {
          each(ints, $0) {
            peer.set(numbers.next(), forKey: $0)
            peer.synchronize()
          }
        },
        Peer(PeerTable.name) {
          try each(ints, $0) { try durableSqlite.set(numbers.next(), forKey: $0) }
        },
        Peer(PeerDictionary.name, weaker: Atomic.isWeaker) {
          try each(ints, $0) { try dictionary.set(.int(numbers.next()), forKey: $0) }
        },
      ]))
  }

  /// How each peer makes a set survive the end of the process.
  func writers(_ ints: [String]) -> [Peer<Subject>] {
    var numbers = Numbers()
    return [
      Peer(Self.foundation, stronger: Self.synchronizeIsStronger) {
        each(ints, $0) {
          peer.set(numbers.next(), forKey: $0)
          peer.synchronize()
        }
      },
      Peer("\(Self.foundation), unsaved", weaker: "writes nothing before synchronize()") {
        each(ints, $0) { peer.set(numbers.next(), forKey: $0) }
      },
      Peer(PeerTable.name) { try each(ints, $0) { try sqlite.set(numbers.next(), forKey: $0) } },
      Peer(PeerDictionary.name, stronger: Atomic.isStronger) {
        try each(ints, $0) { try dictionary.set(.int(numbers.next()), forKey: $0) }
      },
    ]
  }
}

/// A different number at each call, always with the same number of digits.
struct Numbers {
  private var last = 1_000_000

  mutating func next() -> Int {
    last = last == 9_999_999 ? 1_000_000 : last + 1
    return last
  }
}

extension Setting {
  func store(forKey key: String, suite: Defaults.Suite) {
    switch self {
    case .int(let value): Defaults.set(value, forKey: key, suite: suite)
    case .bool(let value): Defaults.set(value, forKey: key, suite: suite)
    case .string(let value): Defaults.set(value, forKey: key, suite: suite)
    }
  }

  /// The value as an object of a property list.
  var object: Any {
    switch self {
    case .int(let value): value
    case .bool(let value): value
    case .string(let value): value
    }
  }
}
