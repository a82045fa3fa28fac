// More calls on settings: models, the property wrapper, atomic updates, and a suite being watched.
import Foundation
import Glibc
import Keepsake

struct Models {
  private let settings: Settings
  private let key = "profile"
  private let keys: [String]

  /// Its keys are in the same suite as those of `settings`.
  init(among settings: Settings) {
    self.settings = settings
    keys = (0..<64).map { "profile.\($0)" }
  }

  func measure(_ bench: inout Bench) throws {
    try measureModels(&bench)
    try measureWrapper(&bench)
    try measureUpdate(&bench)
    try measureNamedSuite(&bench)
    try measureMirrored(&bench)
    try measureWatched(&bench)
    for key in keys + ["wrapped", "launches"] { Defaults.remove(key) }
  }

  private func measureModels(_ bench: inout Bench) throws {
    let (peer, table) = (settings.peer, settings.table)
    let (encoder, decoder) = (JSONEncoder(), JSONDecoder())
    let records = keys.map { key in
      FloorJournal.record(
        key, #"{"name":"Ada Lovelace","age":36,"tags":["mathematics","engines"]}"#)
    }
    var age = 0
    func profile() -> Profile {
      age = (age + 1) % 100
      return Profile(age: age)
    }
    try bench.measure(
      "Defaults.set, a model", count: settings.keys.count,
      keepsake: { each(keys, $0) { Defaults.set(profile(), forKey: $0) } },
      floor: { try each(records, $0) { try settings.journal.appendLocked($0) } },
      peers: [
        Peer(Settings.foundation, stronger: Settings.synchronizeIsStronger) {
          try each(keys, $0) {
            peer.set(try encoder.encode(profile()), forKey: $0)
            peer.synchronize()
          }
        },
        Peer(PeerTable.name) {
          try each(keys, $0) { try settings.sqlite.setModel(profile(), forKey: $0) }
        },
        Peer(PeerDictionary.name, stronger: Atomic.isStronger) {
          try each(keys, $0) { try settings.dictionary.setModel(profile(), forKey: $0) }
        },
      ])
    // Each store has all of them by now.
    for key in keys {
      Defaults.set(Profile(), forKey: key)
      peer.set(try encoder.encode(Profile()), forKey: key)
      try settings.sqlite.setModel(Profile(), forKey: key)
      table.set(.string("a value"), forKey: key)
    }
    for key in keys { try settings.dictionary.setModel(Profile(), forKey: key) }
    let looks: Subject = { each(keys, $0) { sink &+= (table.string($0) ?? "").utf8.count } }
    let peers: [Peer<Subject>] = [
      Peer(Settings.foundation) {
        try each(keys, $0) {
          guard let data = peer.data(forKey: $0) else { return }
          sink &+= try decoder.decode(Profile.self, from: data).age
        }
      },
      Peer(PeerTable.name) {
        try each(keys, $0) { sink &+= try settings.sqlite.model($0, Profile.self)?.age ?? 0 }
      },
      Peer(PeerDictionary.name) {
        try each(keys, $0) { sink &+= try settings.dictionary.model($0, Profile.self)?.age ?? 0 }
      },
    ]
    try bench.measure(
      "Defaults.model, read again", count: settings.keys.count, target: 2,
      keepsake: { each(keys, $0) { sink &+= Defaults.model($0, type: Profile.self)?.age ?? 0 } },
      floor: looks, peers: peers)
    // Without the Sendable conformance, the model is decoded at each call.
    try bench.measure(
      "Defaults.get, a model, decoded", count: settings.keys.count,
      keepsake: { each(keys, $0) { sink &+= (Defaults.get($0) as Profile?)?.age ?? 0 } },
      floor: looks, peers: peers)
  }

  private func measureWrapper(_ bench: inout Bench) throws {
    struct Wrapped {
      @Default("wrapped", defaultValue: 0) var value: Int
    }
    let wrapped = Wrapped()
    wrapped.value = 1
    settings.table.set(.int(1), forKey: "wrapped")
    settings.peer.set(1, forKey: "wrapped")
    try settings.sqlite.set(1, forKey: "wrapped")
    let record = FloorJournal.records(["wrapped"])[0]
    var numbers = Numbers()
    try bench.measure(
      "@Default, read", count: settings.keys.count,
      keepsake: { for _ in 0..<$0 { sink &+= wrapped.value } },
      floor: { for _ in 0..<$0 { sink &+= settings.table.int("wrapped") ?? 0 } },
      peers: [
        Peer(Settings.foundation, target: 10) {
          for _ in 0..<$0 { sink &+= settings.peer.integer(forKey: "wrapped") }
        },
        Peer(PeerTable.name) {
          for _ in 0..<$0 { sink &+= try settings.sqlite.get("wrapped") ?? 0 }
        },
      ])
    try bench.measure(
      "@Default, write", count: settings.keys.count,
      keepsake: { for _ in 0..<$0 { wrapped.value = numbers.next() } },
      floor: { for _ in 0..<$0 { try settings.journal.appendLocked(record) } },
      peers: settings.writers(["wrapped"]))
  }

  private func measureUpdate(_ bench: inout Bench) throws {
    let (key, peer) = ("launches", settings.peer)
    let record = FloorJournal.records([key])[0]
    let first = 1_000_000
    Defaults.set(first, forKey: key)
    peer.set(first, forKey: key)
    try settings.sqlite.set(first, forKey: key)
    try bench.measure(
      "Defaults.update", count: settings.keys.count,
      keepsake: { for _ in 0..<$0 { Defaults.update(key, default: 0) { $0 += 1 } } },
      floor: { for _ in 0..<$0 { try settings.journal.appendLocked(record) } },
      peers: [
        Peer(Settings.foundation, weaker: "loses updates of other threads and processes") {
          for _ in 0..<$0 {
            peer.set(peer.integer(forKey: key) + 1, forKey: key)
            peer.synchronize()
          }
        },
        Peer(PeerTable.name) { for _ in 0..<$0 { try settings.sqlite.increment(key) } },
      ])
  }

  private func measureNamedSuite(_ bench: inout Bench) throws {
    let ints = settings.keys(ofType: 0)
    for key in ints { Defaults.set(1, forKey: key, suite: "team") }
    guard Defaults.synchronize(suite: "team") else { throw Failure("a suite cannot be written") }
    try bench.measure(
      "Defaults.get Int, named suite", count: settings.keys.count, target: 1.3,
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: "team") } },
      floor: { each(ints, $0) { sink &+= Defaults.get($0, default: 0) } },
      floorName: "standard suite",
      peers: [
        Peer(Settings.foundation, target: 10) {
          each(ints, $0) { sink &+= settings.peer.integer(forKey: $0) }
        }
      ])
  }

  /// Measures reads in a suite whose engine is mirrored beside the same reads in a journal.
  private func measureMirrored(_ bench: inout Bench) throws {
    let ints = settings.keys(ofType: 0)
    let mirrored = MirroredTable.suite
    for key in ints {
      for suite in ["team", mirrored] { Defaults.set(1, forKey: key, suite: suite) }
    }
    try bench.measure(
      "Defaults.get Int, mirrored engine", count: settings.keys.count, target: 1.1,
      keepsake: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: "mirrored") } },
      floor: { each(ints, $0) { sink &+= Defaults.get($0, default: 0, suite: "team") } },
      floorName: "journal")
    for suite in ["team", mirrored] { Defaults.set(Profile(), forKey: key, suite: suite) }
    func age(_ suite: Defaults.Suite) -> Int {
      Defaults.model(key, type: Profile.self, suite: suite)?.age ?? 0
    }
    try bench.measure(
      "Defaults.model again, mirrored engine", count: settings.keys.count, target: 1.1,
      keepsake: { for _ in 0..<$0 { sink &+= age("mirrored") } },
      floor: { for _ in 0..<$0 { sink &+= age("team") } }, floorName: "journal")
  }

  /// Measures sets while a task waits for changes, beside the same sets in a suite that is not
  /// watched. Both are in separate directories, so that the watch does not affect later rows.
  private func measureWatched(_ bench: inout Bench) throws {
    let ints = settings.keys(ofType: 0)
    var numbers = Numbers()
    func suite(_ name: String) throws -> Defaults.Suite {
      let suite = Defaults.Suite(name, in: try makeDirectory("\(settings.parent)/\(name)"))
      for key in ints { Defaults.set(numbers.next(), forKey: key, suite: suite) }
      return suite
    }
    let unwatched = try suite("unwatched")
    /// - Parameter follow: Passes on each change until its task is cancelled.
    func measure(
      _ operation: String, _ suite: Defaults.Suite,
      _ follow: @escaping @Sendable (_ hasSeen: @Sendable () -> Void) async -> Void
    ) throws {
      let watchers = try Watchers(
        change: { Defaults.set(numbers.next(), forKey: ints[0], suite: suite) }, follow: follow)
      defer { watchers.cancel() }
      try bench.measure(
        operation, count: ints.count, target: 1.5, batch: .milliseconds(20),
        keepsake: { each(ints, $0) { Defaults.set(numbers.next(), forKey: $0, suite: suite) } },
        floor: { each(ints, $0) { Defaults.set(numbers.next(), forKey: $0, suite: unwatched) } },
        floorName: "not watched")
    }
    let (watched, first) = (try suite("watched"), ints[0])
    try measure("Defaults.set Int, suite watched", watched) { hasSeen in
      for await _ in Defaults.changes(suite: watched) { hasSeen() }
    }
    let other = try suite("key-watched")
    try measure("Defaults.set Int, key watched", other) { hasSeen in
      for await _ in Defaults.changes(first, default: 0, suite: other) { hasSeen() }
    }
  }
}
