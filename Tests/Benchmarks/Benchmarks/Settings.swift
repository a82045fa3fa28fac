// Reading and writing settings in a store of 10, of 1,000 and of 10,000 keys: the same values lie
// in Keepsake, in the floor's table and in Foundation's UserDefaults.
import Foundation
import Keepsake

struct Profile: Codable, Sendable, Equatable {
  var name = "Ada Lovelace"
  var age = 36
  var tags = ["mathematics", "engines"]
}

struct Settings {
  private let table = FloorTable()
  private let journal: FloorJournal
  private let peer: UserDefaults
  private let domain = "com.example.benchmarks"
  private var keys: [String] = []

  init(folder: String) throws {
    journal = try FloorJournal(in: folder)
    guard let peer = UserDefaults(suiteName: domain) else { throw SystemFailure(code: EINVAL) }
    self.peer = peer
  }

  /// Short names fit into a `String` itself, long ones do not: both are common.
  static func key(_ number: Int) -> String {
    number % 2 == 0 ? "option.\(number)" : "com.example.option.\(number)"
  }

  /// Grows all three stores to `count` keys: integers, truth values and texts in turn.
  mutating func fill(to count: Int) {
    for number in keys.count..<count {
      let key = Self.key(number)
      keys.append(key)
      switch number % 3 {
      case 0:
        Defaults.set(number, forKey: key)
        table.set(.int(number), forKey: key)
      case 1:
        Defaults.set(true, forKey: key)
        table.set(.bool(true), forKey: key)
      default:
        Defaults.set("the value of \(number)", forKey: key)
        table.set(.string("the value of \(number)"), forKey: key)
      }
    }
    Defaults.synchronize()
    let values = keys.enumerated().map { number, key -> (String, Any) in
      switch number % 3 {
      case 0: (key, number)
      case 1: (key, true)
      default: (key, "the value of \(number)")
      }
    }
    peer.setPersistentDomain(Dictionary(values) { $1 }, forName: domain)
    peer.synchronize()
  }

  /// The keys of one type in an order that no cache can guess, as strings of their own: whoever reads
  /// a setting does not hold the very string that it was stored under.
  private func keys(ofType type: Int) -> [String] {
    stride(from: type, to: keys.count, by: 3).map { Self.key($0) }.shuffled()
  }

  func measureReading(_ bench: inout Bench) throws {
    let (ints, bools, texts) = (keys(ofType: 0), keys(ofType: 1), keys(ofType: 2))
    try bench.measure(
      "Defaults.get Int", keys: keys.count, target: "<= 1.25",
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0) } },
      floor: { each(ints, $0) { sink &+= table.int($0) ?? 0 } },
      peers: [("integer(forKey:)", { each(ints, $0) { sink &+= peer.integer(forKey: $0) } })])
    try bench.measure(
      "Defaults.get Bool", keys: keys.count, target: "<= 1.25",
      keepsake: { each(bools, $0) { sink &+= Defaults.get($0, default: false) ? 1 : 0 } },
      floor: { each(bools, $0) { sink &+= table.bool($0) ?? false ? 1 : 0 } },
      peers: [("bool(forKey:)", { each(bools, $0) { sink &+= peer.bool(forKey: $0) ? 1 : 0 } })])
    try bench.measure(
      "Defaults.get String", keys: keys.count, target: "<= 1.25",
      keepsake: { each(texts, $0) { sink &+= Defaults.get($0, default: "").utf8.count } },
      floor: { each(texts, $0) { sink &+= (table.string($0) ?? "").utf8.count } },
      peers: [
        (
          "string(forKey:)",
          { each(texts, $0) { sink &+= peer.string(forKey: $0)?.utf8.count ?? 0 } }
        )
      ])
    for key in ints { Defaults.set(1, forKey: key, suite: "team") }
    Defaults.synchronize(suite: "team")
    try bench.measure(
      "Defaults.get Int, named suite", keys: keys.count, target: "none",
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: "team") } },
      floor: { each(ints, $0) { sink &+= table.int($0) ?? 0 } })
    // One model beside the scalars, taken away again so that the store keeps its size.
    Defaults.set(Profile(), forKey: texts[0])
    try bench.measure(
      "Defaults.model, read again", keys: keys.count, target: "<= 2",
      keepsake: {
        each([texts[0]], $0) { sink &+= Defaults.model($0, type: Profile.self)?.age ?? 0 }
      },
      floor: { each([texts[0]], $0) { sink &+= (table.string($0) ?? "").utf8.count } })
    Defaults.set("the value of a text", forKey: texts[0])
  }

  func measureWriting(_ bench: inout Bench) throws {
    let ints = keys(ofType: 0)
    // What Keepsake appends: its records for these very keys.
    let records = ints.map { Array("[\"0123456789abcdefj20\",\"\($0)\",\(1_000_000)]\n".utf8) }
    var value = 1_000_000
    func next() -> Int {
      value = value == 9_999_999 ? 1_000_000 : value + 1
      return value
    }
    let setsDurably: Subject = {
      each(ints, $0) {
        peer.set(next(), forKey: $0)
        peer.synchronize()
      }
    }
    try bench.measure(
      "Defaults.set Int", keys: keys.count, target: "<= 1.5", batch: .milliseconds(20),
      keepsake: { each(ints, $0) { Defaults.set(next(), forKey: $0) } },
      floor: { try each(records, $0) { try journal.appendLocked($0) } },
      peers: [
        ("set", { each(ints, $0) { peer.set(next(), forKey: $0) } }),
        ("set + synchronize", setsDurably),
      ])
    try bench.measure(
      "Defaults.set + synchronize", keys: keys.count, target: "<= 1.3", batch: .milliseconds(40),
      keepsake: {
        each(ints, $0) {
          Defaults.set(next(), forKey: $0)
          Defaults.synchronize()
        }
      },
      floor: { try each(records, $0) { try journal.appendDurably($0) } },
      peers: [("set + synchronize", setsDurably)])
  }
}
