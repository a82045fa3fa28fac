import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

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
    /// The contents that the call changes, with what they are afterwards; nil for nothing.
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
  /// The contents that any write creates again.
  var createdByNextWrite: Set<String> = []
  /// Reads everything that is stored.
  let read: @Sendable (Stage) throws -> [String: String]
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

  /// A process that works in a directory.
  final class Stage: Sendable {
    let directory: TemporaryDirectory
    let failures = Failures()
    private let store = Locked<(any Sendable)?>(nil)

    init(_ directory: TemporaryDirectory) { self.directory = directory }

    /// The store of that model, which stays open.
    func store<Model: StoreModel>(_ model: Model.Type) throws -> Model.Store {
      try store.withLock { store in
        if let open = store as? Model.Store { return open }
        let new = try Model.open(directory, failures)
        store = new
        return new
      }
    }
  }
}

extension PowerCutWorkload {
  /// What stands for a directory among the files: it may be there although its file was lost.
  private static let directory = "directory"

  /// The steps of calls on an empty store, with the changes that the model expects.
  ///
  /// - Parameter rewritten: What a call writes again as it was.
  private static func steps<Model: StoreModel>(
    _ model: Model.Type, _ calls: [Model.Store.Call],
    rewritten: (Model.Store.Call) -> String? = { _ in nil },
    promise: (Model.Store.Call) -> (Promise, isAtomic: Bool)
  ) -> [Step] {
    var state = Model()
    return calls.map { call in
      let (before, outcomes) = (state.contents, state.outcomes(of: call, by: .first))
      state = outcomes[0].model
      let after = state.contents
      let changed = Set(before.keys).union(after.keys).filter {
        (before[$0] != after[$0] || $0 == rewritten(call))
          && ![before[$0], after[$0]].contains(directory)
      }
      let (promise, isAtomic) = promise(call)
      return Step(
        changes: Dictionary(uniqueKeysWithValues: changed.map { ($0, after[$0]) }),
        promise: promise, isAtomic: isAtomic
      ) { stage in
        let answer = try stage.store(model).answer(call)
        #expect(outcomes[0].matches(answer), "\(SourceText.of(call)) answered \(answer)")
      }
    }
  }

  static let all = [settings, damagedSettings, secrets, caches, files]

  // MARK: Settings

  private static func settings(_ calls: [SettingsUnderTest.Call]) -> [Step] {
    steps(DefaultsModel.self, calls) { call in
      switch call {
      case .synchronize, .synchronizeInBackground: (.everything, false)
      case .removeAll: (.everything, false)
      case .restore: (.everything, true)
      default: (.nothing, false)
      }
    }
  }

  static let settings = PowerCutWorkload(
    testDescription: "settings",
    steps: settings([
      .set(0, .text(8)), .set(1, .text(20)), .synchronizeInBackground, .set(0, .text(9)),
      .remove(1), .synchronizeInBackground, .set(0, .text(10)), .set(1, .int(1)), .synchronize,
      .set(0, .text(11)), .update(1), .set(2, .text(12)), .remove(1), .synchronize,
      .set(3, .pages(1)), .set(0, .text(13)), .remove(2), .set(1, .text(21)), .synchronize,
      .set(0, .text(14)), .compact, .set(0, .text(15)), .remove(3), .synchronize, .backUp,
      .set(1, .text(22)), .removeAll, .set(0, .text(16)), .set(1, .text(23)), .synchronize,
      .merge(0, 2, 7), .importExport, .synchronize, .restore, .set(0, .text(17)),
    ]) + [setDuringCompaction],
    read: settingsContents, continueUsing: continueUsingSettings)

  /// Another process sets a value durably when a compaction has copied the file.
  private static let setDuringCompaction: Step = {
    let value = Sample.text(18)
    return Step(changes: ["0": value.summary], promise: .everything) { stage in
      let other = Stage(stage.directory)
      try interrupt(before: .lock) {
        let other = try other.store(DefaultsModel.self)
        for call in [SettingsUnderTest.Call.set(0, value), .synchronize] {
          _ = other.answer(call)
        }
      } in: {
        try stage.store(DefaultsModel.self).store.journal.compact()
      }
      try #require(other.failures.all.isEmpty)
    }
  }()

  /// A byte of a record is damaged, and the next process repairs the file.
  static let damagedSettings: PowerCutWorkload = {
    let (old, lost) = (Sample.text(20), Sample.marked(1))
    return PowerCutWorkload(
      testDescription: "settings with damage",
      steps: settings([.set(0, old), .set(0, lost), .set(1, .text(8)), .synchronize]) + [
        // The previous value of the key remains.
        Step(changes: ["0": old.summary]) { stage in
          let path = stage.directory.path + "/" + TemporaryDirectory.journal
          let bytes = try Bytes.read(path)
          let position = try #require(bytes.firstRange(of: Array(Sample.mark.utf8))).lowerBound
          try Bytes.write(bytes[position] ^ 1, at: position, of: path)
        },
        Step { stage in
          // Another process finds the damage.
          let next = Stage(stage.directory)
          try anHourLater {
            try #require(next.store(DefaultsModel.self).contents()["0"] == old.summary)
          }
          try #require(next.failures.all.map(\.code) == [.damaged])
        },
      ]
        + [
          SettingsUnderTest.Call.set(1, .text(9)), .synchronize, .set(0, .text(10)), .synchronize,
        ].flatMap { settings([$0]) },
      isDamaged: true,
      read: settingsContents, continueUsing: continueUsingSettings)
  }()

  /// Starting the machine has taken time: no file counts as one that is being written.
  private static func settingsContents(_ stage: Stage) throws -> [String: String] {
    try anHourLater { try stage.store(DefaultsModel.self).contents() }
  }

  private static func continueUsingSettings(_ stage: Stage) throws -> [String] {
    // A backup that was interrupted stays as it is.
    try anHourLater {
      let settings = try stage.store(DefaultsModel.self).store
      try settings.set("after", forKey: "after")
      defer { _ = try? settings.remove("after") }
      var problems: [String] = []
      if try stage.directory.store().string("after") != "after" {
        problems.append("the new value is not found")
      }
      try settings.synchronize()
      try settings.journal.compact()
      try settings.remove("after")
      let left = try stage.directory.temporaries().filter { !$0.hasPrefix(".backup.") }
      return problems + left.map { "left behind: \($0)" }
    }
  }

  // MARK: Secrets

  static let secrets = PowerCutWorkload(
    testDescription: "secrets",
    steps: steps(
      VaultModel.self,
      [
        .set(0, in: 0, .text(8)), .set(0, in: 0, .text(9)), .set(1, in: 0, .pages(1)),
        .set(0, in: 1, .text(10)), .rotateKeys, .backUp, .remove(1, in: 0),
        .protectWithPassphrase(0), .set(2, in: 0, .text(11)), .addRecovery,
        .add(3, in: 0, .text(12)), .removeRecoveries, .forgetOldKeys, .remove(3, in: 0),
        .removeAll(in: 0), .set(0, in: 0, .text(13)), .protectWithKeyFile, .rotateKeys, .restore,
        .set(0, in: 0, .text(14)), .eraseVault, .set(0, in: 1, .text(15)),
      ]
    ) { call in
      if case .restore = call { (.itself, true) } else { (.itself, false) }
    },
    createdByNextWrite: [VaultUnderTest.Fact.protection],
    read: { stage in
      var contents = try stage.store(VaultModel.self).contents()
      contents[VaultUnderTest.Fact.passphrase] = nil
      return contents
    },
    continueUsing: { stage in
      var problems: [String] = []
      let (own, other) = (
        try stage.store(VaultModel.self), try VaultModel.open(stage.directory, stage.failures)
      )
      for vault in [own, other] { try VaultModel.prepare(vault) }
      let (store, protection) = (own.stores[2], try own.stores[2].protection)
      // The next set in each directory removes what an interrupted one has left there.
      for store in own.stores { try store.set("after", forKey: "after") }
      try VaultModel.prepare(other)
      if try other.stores[2].get("after") != "after" {
        problems.append("the new value is not found")
      }
      try store.rotateKeys()
      // The next write of a key file removes the temporary file of an interrupted one.
      if try stage.directory.temporaries().contains(where: { $0.hasPrefix("state/") }) {
        try store.protect(with: .keyFile)
        if protection == .passphrase {
          let passphrase = VaultUnderTest.passphrases[0]
          try store.protect(with: SecureVault.KeySource(.passphrase(passphrase, logN: 10)))
        }
      }
      for store in own.stores { try store.remove("after") }
      // The next restore removes what an interrupted one has copied.
      let vault = stage.directory.path + "/vault"
      try FileSystem.removeStaleTemporaryFiles(for: vault, olderThan: nil)
      // A backup that was interrupted stays as it is, and so does a replaced vault until the next
      // call that erases the vault.
      let left = try stage.directory.temporaries()
        .filter { !$0.hasPrefix("backup/") && !$0.hasPrefix("vault.replaced-") }
      return problems + left.map { "left behind: \($0)" } + stage.failures.all.map(\.description)
    })

  // MARK: Caches

  private static func cache(_ calls: [CacheUnderTest.Call]) -> [Step] {
    func renewed(_ call: CacheUnderTest.Call) -> String? {
      if case .renew(let key) = call { "\(key)" } else { nil }
    }
    return steps(AppCacheModel.self, calls, rewritten: renewed) { call in
      switch call {
      case .set(_, _, _, true), .setTagged(_, _, true), .setFile(_, _, true): (.itself, false)
      default: (.nothing, false)
      }
    }
  }

  static let caches: PowerCutWorkload = {
    let limited: [CacheUnderTest.Call] = [
      .set(7, .text(20), .endless, durable: false), .set(8, .pages(9), .endless, durable: false),
    ]
    // Any other entry may be evicted.
    let changes = cache(limited).reduce(into: [String: String?]()) { $0.merge($1.changes) { $1 } }
    let evicted = ModelKeys.all.indices.prefix(7).map { ("\($0)", String?.none) }
    return PowerCutWorkload(
      testDescription: "caches",
      steps: cache([
        .set(0, .text(20), .endless, durable: false), .set(1, .pages(1), .endless, durable: false),
        .set(0, .text(30), .endless, durable: false), .set(2, .text(21), .endless, durable: true),
        .set(3, .pages(2), .endless, durable: true), .set(2, .text(5_000), .endless, durable: true),
        .set(2, .text(22), .endless, durable: true), .set(3, .text(23), .endless, durable: false),
        .remove(1), .set(4, .text(24), .day, durable: true),
        .set(4, .text(25), .idle, durable: false), .set(9, .text(26), .moment, durable: true),
        .setFile(5, 9_000, durable: false), .setFile(6, 9_001, durable: true),
        .setTagged(0, .text(27), durable: false), .setTagged(1, .pages(3), durable: true),
        .renew(1), .set(1, .text(28), .endless, durable: false),
        .setTagged(1, .text(29), durable: true), .setNoValue(0),
        .setTagged(0, .text(31), durable: true), .set(0, .text(32), .endless, durable: false),
        .removeExpired,
      ]) + [
        Step(changes: changes.merging(evicted) { own, _ in own }) { stage in
          let cache = try stage.store(AppCacheModel.self)
          cache.store.sizeLimit = 40_000
          for call in limited { _ = try cache.perform(call) }
          cache.store.sizeLimit = nil
          // An eviction that still runs would use paths that the steps below change.
          let files = try cache.store.files
          try #require(files.eviction.lock.withLock(timeout: .seconds(600)) { _ in true } == true)
        }
      ] + cache([.set(0, .text(33), .endless, durable: true)]) + [
        Step(changes: changes.mapValues { _ in nil }.merging(evicted) { own, _ in own }) { stage in
          _ = try stage.store(AppCacheModel.self).perform(.removeAll)
        }
      ] + cache([.set(0, .text(34), .endless, durable: false)])
        + cache([.set(3, .text(35), .endless, durable: true)])
        + cache([.set(0, .text(36), .endless, durable: true)]),
      replacedMayBeMissing: true,
      // An entry that is damaged is listed until it is read.
      read: { stage in try stage.store(AppCacheModel.self).readableContents() },
      continueUsing: continueUsingCache)
  }()

  private static func continueUsingCache(_ stage: Stage) throws -> [String] {
    let own = try stage.store(AppCacheModel.self)
    let cache = own.store
    var problems: [String] = []
    try cache.set(Data("after".utf8), forKey: "after")
    if try stage.directory.cache().get("after") != Data("after".utf8) {
      problems.append("the new value is not found")
    }
    try cache.remove("after")
    // Work in the background may take a moment.
    var left: [String] = []
    try waitUntil("abandoned files are removed") {
      try cache.removeExpired()
      let files = FileManager.default.enumerator(atPath: stage.directory.path)?.allObjects
      left = try #require(files as? [String])
        .filter { $0.hasSuffix(".tmp") || $0.hasSuffix(".trash") }
      return left.isEmpty
    }
    // Reading a damaged entry removes it, unless work in the background has just locked its key.
    // Those of long keys are not listed.
    try waitUntil("damaged entries are removed") {
      _ = try own.readableContents()
      return try cache.keys().allSatisfy { try cache.entry($0) != nil }
    }
    var size = 0
    for key in try cache.keys() {
      let entry = try #require(try cache.entry(key), "\(key) is listed")
      size += (entry.size + 4_095) / 4_096 * 4_096 + 4_096
    }
    if case .noValue = try cache.engine.find(ModelKeys.all[0], noValue: true, tags: false).found {
      size += 4_096
    }
    let total = try cache.totalSize
    if total != size { problems.append("the size is \(total) instead of \(size)") }
    return problems + left.map { "left behind: \($0)" } + stage.failures.all.map(\.description)
  }

  // MARK: Files

  static let files = PowerCutWorkload(
    testDescription: "files",
    steps: steps(
      FolderModel.self,
      [
        .save("a", .text(20)), .save("a", .pages(1)), .save("d/b", .text(21)),
        .save("d/e/c", .pages(2)), .move("a", to: "d/f"), .save("a", .text(22)),
        .move("a", to: "d/b"), .delete("d/f"), .copy("d/b", to: "g"), .move("d", to: "h"),
        .delete("h"), .save("d/b", .text(23)), .saveNew("d/n", 9_000), .saveChunks("d/n", 30),
      ]
    ) { call in
      if case .move = call { (.itself, true) } else { (.itself, false) }
    },
    read: { stage in
      try stage.store(FolderModel.self).contents().filter { $0.value != directory }
    },
    continueUsing: { stage in
      var problems: [String] = []
      let files = try stage.store(FolderModel.self).directory
      for name in ["after", "d/after", "d/e/after", "h/after", "h/e/after"] {
        try files.save(name, as: name)
        if try FolderModel.open(stage.directory, Failures()).directory.load(name) != name {
          problems.append("the new file is not found")
        }
        try files.delete(name)
      }
      return try problems + stage.directory.leftoverFiles().map { "left behind: \($0)" }
    })
}
