import Foundation
import Testing

@testable import Keepsake

/// Calls of one store with the durability that each promises, and how to examine the store after a
/// power cut.
struct PowerCutWorkload: Sendable, CustomTestStringConvertible {
  enum Promise {
    /// The change may be lost, even after the call has returned.
    case nothing
    /// The changes of this call survive.
    case itself
    /// The changes of this call and of all calls before it survive.
    case everything
  }

  /// One call.
  struct Step: Sendable {
    /// The values of the changed keys after the call; nil for none.
    var changes: [String: String?] = [:]
    var promise = Promise.nothing
    /// Whether a power cut keeps either all changes or none of them.
    var isAtomic = false
    let run: @Sendable (Stage) throws -> Void
  }

  let testDescription: String
  let steps: [Step]
  /// Whether a replaced or removed value may be missing even if the new one was lost.
  var replacedMayBeMissing = false
  /// Whether a step damages a file itself.
  var isDamaged = false
  /// The keys that any write recreates.
  var createdByNextWrite: Set<String> = []
  /// Reads the values of the keys.
  let read: @Sendable (Stage, _ keys: Set<String>) throws -> [String: String]
  /// Uses the store without changing what is stored; returns the problems that it meets.
  let continueUsing: @Sendable (Stage) throws -> [String]

  var keys: Set<String> { Set(steps.flatMap(\.changes.keys)) }

  /// The values that a key may have when that many calls have returned and that many have begun.
  func allowed(_ key: String, returned: Int, begun: Int) -> [String?] {
    var current: String?
    var values: [String?] = [nil]
    for (number, step) in steps[..<begun].enumerated() {
      let promise = number < returned ? step.promise : .nothing
      if let change = step.changes[key] {
        current = change
        values = promise == .itself ? [current] : values + [current]
      }
      if promise == .everything { values = [current] }
    }
    return replacedMayBeMissing && values.count > 1 ? values + [nil] : values
  }

  /// The stores of a process that works in a directory.
  final class Stage: Sendable {
    let directory: TemporaryDirectory
    /// The source of files that are moved into a store.
    let incoming: TemporaryDirectory
    let failures = Failures()
    private let stores = Locked<(Defaults.Store?, DiskCache.Store?)>((nil, nil))

    init(_ directory: TemporaryDirectory, incoming: TemporaryDirectory? = nil) {
      self.directory = directory
      self.incoming = incoming ?? directory
    }

    var settings: Defaults.Store {
      stores.withLock { stores in
        let store = stores.0 ?? directory.store(failures: failures)
        stores.0 = store
        return store
      }
    }

    var cache: DiskCache.Store {
      stores.withLock { stores in
        let store = stores.1 ?? directory.cache(failures: failures)
        stores.1 = store
        return store
      }
    }

    static let passphrase = SecureVault.KeySource(.passphrase("correct horse", logN: 10))

    func secrets(_ service: SecureVault.Service = .standard) -> SecureVault.Store {
      directory.secrets(
        service, failures: failures, keySources: [.keyFile, Self.passphrase],
        authenticate: { _ in "correct horse" })
    }

    var files: Folder { Folder(directory.file("files")) }
  }
}

extension PowerCutWorkload {
  static let all = [settings, damagedSettings, secrets, caches, files]

  /// A text of several pages, all of which differ.
  private static func long(_ name: String, _ count: Int = 9_000) -> String {
    String((0..<count / 8).map { "\(name)\(10_000 + $0)...." }.joined().prefix(count))
  }

  // MARK: Settings

  private static func set(_ key: String, _ value: String?) -> Step {
    Step(changes: [key: value]) { try $0.settings.set(value, forKey: key) }
  }

  private static let synchronize = Step(promise: .everything) { try $0.settings.synchronize() }

  /// A set and the sync that follows in the background within a second.
  ///
  /// The step makes that sync itself: in the background the journals of several tests are synced
  /// together, on a thread that this recorder may not observe.
  private static func setAndSyncInBackground(_ key: String, _ value: String?) -> Step {
    Step(changes: [key: value], promise: .everything) {
      try $0.settings.set(value, forKey: key)
      try $0.settings.journal.synchronizeInBackground()
    }
  }

  static let settings = PowerCutWorkload(
    testDescription: "settings",
    steps: [
      set("theme", "dark"), setAndSyncInBackground("name", "An"),
      set("theme", "black"), setAndSyncInBackground("name", nil),
      set("theme", "dark"), set("name", "Ann"), synchronize,
      set("theme", "light"),
      Step(changes: ["name": "Ann Lee"]) {
        try $0.settings.update("name", default: "") { $0 += " Lee" }
      },
      set("size", "12"), set("name", nil), synchronize,
      set("text", long("text")), set("theme", "blue"), set("size", nil), set("name", "Bob"),
      synchronize,
      set("theme", "red"),
      Step { try $0.settings.journal.compact() },
      set("theme", "pink"), set("text", nil), synchronize,
      set("name", "Cy"),
      Step(changes: ["theme": nil, "name": nil, "size": nil, "text": nil]) {
        try $0.settings.removeAll()
      },
      set("theme", "green"), set("name", "Dee"), synchronize,
      set("theme", "grey"),
    ],
    read: readSettings, continueUsing: continueUsingSettings)

  /// A byte of a record is damaged, and the next process repairs the file.
  static let damagedSettings = PowerCutWorkload(
    testDescription: "settings with damage",
    steps: [
      set("theme", "dark"), set("theme", "light"), set("name", "Ann"), synchronize,
      // The previous value of the key remains.
      Step(changes: ["theme": "dark"]) { stage in
        let path = stage.directory.path + "/" + TemporaryDirectory.journal
        let bytes = try Bytes.read(path)
        let position = try #require(bytes.firstRange(of: Array("light".utf8))).lowerBound
        try Bytes.write(bytes[position] ^ 1, at: position, of: path)
      },
      Step { stage in
        // Another process finds the damage.
        let next = Stage(stage.directory)
        try #require(next.settings.string("theme") == "dark")
        try #require(next.failures.all.map(\.code) == [.damaged])
      },
      set("name", "Bob"), synchronize, set("theme", "blue"), synchronize,
    ],
    isDamaged: true,
    read: readSettings, continueUsing: continueUsingSettings)

  private static func readSettings(
    _ stage: Stage, _ keys: Set<String>
  ) throws -> [String: String] {
    var found: [String: String] = [:]
    for key in keys { found[key] = try stage.settings.string(key) }
    return found
  }

  private static func continueUsingSettings(_ stage: Stage) throws -> [String] {
    // Starting the machine has taken time: no file counts as one that is being written.
    try anHourLater {
      try stage.settings.set("after", forKey: "after")
      var problems: [String] = []
      if try Stage(stage.directory).settings.string("after") != "after" {
        problems.append("the new value is not found")
      }
      try stage.settings.synchronize()
      try stage.settings.journal.compact()
      return try problems + stage.directory.temporaries().map { "left behind: \($0)" }
    }
  }

  // MARK: Secrets

  private static func secret(_ name: String, _ value: String?) -> Step {
    let parts = name.split(separator: "/").map(String.init)
    return Step(changes: [name: value], promise: .itself) {
      try $0.secrets(.init(parts[0])).set(value, forKey: parts[1])
    }
  }

  private static func protect(with source: SecureVault.KeySource, _ name: String) -> Step {
    Step(changes: ["protection": name], promise: .itself) {
      try $0.secrets().protect(with: source)
    }
  }

  private static let rotateKeys = Step(promise: .itself) { try $0.secrets().rotateKeys() }

  static let secrets: PowerCutWorkload = {
    var first = secret("standard/token", "t1")
    first.changes["protection"] = "key file"
    return PowerCutWorkload(
      testDescription: "secrets",
      steps: [
        first, secret("standard/token", "t2"), secret("standard/long", long("secret")),
        secret("other/pin", "1234"), rotateKeys, secret("standard/long", nil),
        protect(with: Stage.passphrase, "passphrase"),
        secret("standard/name", "Ann"),
        Step(promise: .itself) { _ = try $0.secrets().addRecovery() },
        Step(changes: ["standard/added": "a1"], promise: .itself) {
          _ = try $0.secrets().add("a1", forKey: "added")
        },
        Step(promise: .itself) { try $0.secrets().removeRecovery() },
        Step(promise: .itself) { try $0.secrets().forgetOldKeys() },
        secret("standard/added", nil),
        Step(changes: ["standard/token": nil, "standard/name": nil], promise: .itself) {
          try $0.secrets().removeAll()
        },
        secret("standard/token", "t3"), protect(with: .keyFile, "key file"), rotateKeys,
        Step(
          changes: ["standard/token": nil, "other/pin": nil, "protection": nil], promise: .itself
        ) { try $0.secrets().eraseVault() },
        {
          var again = secret("other/pin", "5678")
          again.changes["protection"] = "key file"
          return again
        }(),
      ],
      createdByNextWrite: ["protection"],
      read: { stage, keys in
        var found: [String: String] = [:]
        found["protection"] = try stage.secrets().protection.map { "\($0)" }
        var listed: Set<String> = []
        for service in try stage.secrets().storedServices() {
          for key in try stage.secrets(service).keys() { listed.insert(service.name + "/" + key) }
        }
        for name in keys where name != "protection" {
          let parts = name.split(separator: "/").map(String.init)
          found[name] = try stage.secrets(.init(parts[0])).get(parts[1])
          if (found[name] != nil) != listed.contains(name) {
            found[name] = "inconsistent with the list of keys"
          }
        }
        return found
      },
      continueUsing: { stage in
        var problems: [String] = []
        let store = stage.secrets("after")
        try store.set("after", forKey: "k")
        if try Stage(stage.directory).secrets("after").get("k") != "after" {
          problems.append("the new value is not found")
        }
        let protection = try store.protection
        try store.rotateKeys()
        // The next write of a key file removes the temporary file of an interrupted one.
        if try stage.directory.temporaries().contains(where: { $0.hasPrefix("state/") }) {
          try store.protect(with: .keyFile)
          if protection == .passphrase { try store.protect(with: Stage.passphrase) }
        }
        try store.remove("k")
        return try problems + stage.directory.temporaries().map { "left behind: \($0)" }
          + stage.failures.all.map(\.description)
      })
  }()

  // MARK: Caches

  private static func entry(
    _ key: String, _ value: String?, durable: Bool = false, expiry: DiskCache.Expiry = .never
  ) -> Step {
    Step(changes: [key: value], promise: durable ? .itself : .nothing) {
      try $0.cache.set(value.map { Data($0.utf8) }, forKey: key, expiry: expiry, durable: durable)
    }
  }

  private static func tagged(_ key: String, _ value: String, durable: Bool = false) -> Step {
    Step(changes: [key: value], promise: durable ? .itself : .nothing) {
      try $0.cache.set(
        Data(value.utf8), forKey: key, expiry: .days(1), keptFor: .days(1),
        tags: ["etag": String(repeating: "e", count: value.utf8.count % 1_000)], durable: durable)
    }
  }

  /// Gives an entry that was found stale a new life, or a record that there is no value.
  ///
  /// - Parameter value: The value that lives on; nil if there is none any more.
  private static func fetched(_ key: String, _ value: String?) -> Step {
    Step(changes: [key: value]) { stage in
      let engine = try stage.cache.engine
      let options = WriteOptions(
        expiry: .after(86_400 * WallClock.second), details: EntryDetails(kept: 1),
        isDurable: false)
      if value == nil {
        return try engine.writeNoValue(forKey: key, options, hook: commitDirectly)
      }
      let found = try WallClock.$fixed.withValue(WallClock.now + 36 * 3_600 * WallClock.second) {
        try engine.find(key, noValue: true).found
      }
      guard case .stale(let entry) = found else {
        Issue.record("not stale: \(found)")
        return
      }
      #expect(try engine.renew(entry, forKey: key, options, hook: commitDirectly))
    }
  }

  private static func file(_ key: String, _ value: String, durable: Bool) -> Step {
    Step(changes: [key: value], promise: durable ? .itself : .nothing) { stage in
      try stage.incoming.write(Array(value.utf8), to: "file")
      try stage.cache.set(
        contentsOf: stage.incoming.file("file"), forKey: key, durable: durable)
    }
  }

  /// Entries that may be evicted, or that `removeAll` removes.
  private static let gone: [String: String?] = Dictionary(
    uniqueKeysWithValues: ["a", "b", "c", "d", "e", "f", "g"].map { ($0, nil) })

  static let caches = PowerCutWorkload(
    testDescription: "caches",
    steps: [
      entry("a", "a1"), entry("b", long("b1")), entry("a", "a2 is longer"),
      entry("c", "c1", durable: true), entry("d", long("d1"), durable: true),
      entry("c", long("c2", 5_000), durable: true), entry("c", "c3", durable: true),
      entry("d", "d2"), entry("b", nil),
      entry("e", "e1", durable: true, expiry: .days(1)), entry("e", "e2", expiry: .idle(.days(1))),
      Step(changes: ["gone": nil]) {
        try $0.cache.set("gone", forKey: "gone", expiry: .seconds(1e-9), durable: true)
      },
      file("f", long("f1"), durable: false), file("g", long("g1"), durable: true),
      tagged("a", "a2 with tags"), tagged("b", long("b3"), durable: true),
      fetched("b", long("b3")), entry("b", "b4"), tagged("b", "b5", durable: true),
      fetched("a", nil), tagged("a", "a2 again", durable: true), entry("a", "a2 plain"),
      Step { try $0.cache.removeExpired() },
      Step(changes: gone.merging(["h": "h1", "i": long("i1", 12_000)]) { $1 }) {
        $0.cache.sizeLimit = 40_000
        try $0.cache.set(Data("h1".utf8), forKey: "h")
        try $0.cache.set(Data(long("i1", 12_000).utf8), forKey: "i")
        $0.cache.sizeLimit = nil
        // An eviction that still runs would use paths that the steps below change.
        let files = try $0.cache.files
        try #require(files.evictionLock.withLock(timeout: .seconds(600)) { _ in true } == true)
      },
      entry("a", "a3", durable: true),
      Step(changes: gone.merging(["h": nil, "i": nil]) { $1 }) { try $0.cache.removeAll() },
      entry("a", "a4"), entry("d", "d3", durable: true), entry("a", "a5", durable: true),
    ],
    replacedMayBeMissing: true,
    read: { stage, keys in
      var found: [String: String] = [:]
      for key in keys {
        found[key] = try stage.cache.get(key).map { String(decoding: $0, as: UTF8.self) }
      }
      return found
    },
    continueUsing: { stage in
      var problems: [String] = []
      try stage.cache.set(Data("after".utf8), forKey: "after")
      if try Stage(stage.directory).cache.get("after") != Data("after".utf8) {
        problems.append("the new value is not found")
      }
      try stage.cache.remove("after")
      var left: [String] = []
      for _ in 0..<200 {
        try stage.cache.removeExpired()
        let files = FileManager.default.enumerator(atPath: stage.directory.path)?.allObjects
        left = try #require(files as? [String])
          .filter { $0.hasSuffix(".tmp") || $0.hasSuffix(".trash") }
        if left.isEmpty { break }
        // Work in the background may take a moment.
        usleep(5_000)
      }
      // Reading a damaged entry removes it, unless work in the background has just locked its key.
      try waitUntil("damaged entries are removed") {
        for key in try stage.cache.keys() { _ = try stage.cache.get(key) }
        return try stage.cache.keys().allSatisfy { try stage.cache.entry($0) != nil }
      }
      var size = 0
      for key in try stage.cache.keys() {
        let entry = try #require(try stage.cache.entry(key), "\(key) is listed")
        size += (entry.size + 4_095) / 4_096 * 4_096 + 4_096
      }
      if case .noValue = try stage.cache.engine.find("a", noValue: true).found {
        size += 4_096
      }
      let total = try stage.cache.totalSize
      if total != size { problems.append("the size is \(total) instead of \(size)") }
      return problems + left.map { "left behind: \($0)" } + stage.failures.all.map(\.description)
    })

  // MARK: Files

  private static func save(_ name: String, _ value: String) -> Step {
    Step(changes: [name: value], promise: .itself) { try $0.files.save(value, as: name) }
  }

  static let files = PowerCutWorkload(
    testDescription: "files",
    steps: [
      save("a", "a1"), save("a", long("a2")), save("d/b", "b1"), save("d/e/c", long("c1")),
      Step(changes: ["a": nil, "d/f": long("a2")], promise: .itself, isAtomic: true) {
        try $0.files.move("a", to: "d/f")
      },
      save("a", "a3"),
      Step(changes: ["a": nil, "d/b": "a3"], promise: .itself, isAtomic: true) {
        try $0.files.move("a", to: "d/b")
      },
      Step(changes: ["d/f": nil], promise: .itself) { try $0.files.delete("d/f") },
      Step(
        changes: ["d/b": nil, "d/e/c": nil, "g/b": "a3", "g/e/c": long("c1")], promise: .itself,
        isAtomic: true
      ) { try $0.files.move("d", to: "g") },
      Step(changes: ["g/b": nil, "g/e/c": nil], promise: .itself) { try $0.files.delete("g") },
      save("d/b", "b2"),
      Step(changes: ["d/n": long("n1")], promise: .itself) {
        try $0.files.save(long("n1"), as: "d/n", replacing: false)
      },
    ],
    read: { stage, keys in
      var found: [String: String] = [:]
      for key in keys { found[key] = try stage.files.load(key, type: String?.self) }
      let listed = Set(try stage.files.list(recursively: true).filter { !$0.hasSuffix("/") })
      for key in listed.symmetricDifference(found.keys) {
        found[key] = "inconsistent with the list of keys"
      }
      return found
    },
    continueUsing: { stage in
      var problems: [String] = []
      for name in ["after", "d/after", "d/e/after", "g/after", "g/e/after"] {
        try stage.files.save(name, as: name)
        if try Stage(stage.directory).files.load(name) != name {
          problems.append("the new file is not found")
        }
        try stage.files.delete(name)
      }
      return try problems + stage.directory.leftoverFiles().map { "left behind: \($0)" }
    })
}
