import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Whether a process notices what others have stored and removed.
@Suite(.ownThread) struct SubdirectoryChangesTests {
  private let directory: TemporaryDirectory
  private let (store, other): (DiskCache.Store, DiskCache.Store)

  init() throws {
    directory = try TemporaryDirectory()
    (store, other) = (directory.cache(), directory.cache())
  }

  private func isNoticed(_ change: (FileCache) throws -> Void) throws -> Bool {
    let changes = try store.files.changes(near: "k")
    try change(other.files)
    return try !store.files.isUnchanged(near: "k", since: changes)
  }

  private func remove(_ key: String, in files: FileCache, if condition: Bool = true) throws {
    let isNoticed = try files.removeNoticeably(
      key, if: { condition }, hook: { commit throws(StorageError) in try commit() })
    #expect(isNoticed == condition)
  }

  @Test func whatOthersStoreAndRemoveIsNoticed() throws {
    try store.set("a", forKey: "k")
    #expect(try isNoticed { try remove("k", in: $0) })
    #expect(try isNoticed { _ in try other.set("a", forKey: "k") })
    #expect(try isNoticed { _ in try other.removeAll() })
    #expect(try !isNoticed { _ in _ = try other.get("k") })
  }

  /// The caller has looked for the entry, and relies on others to store no old one.
  @Test func theRemovalOfAMissingEntryIsNoticed() throws {
    try store.set("a", forKey: "l")
    #expect(try isNoticed { try remove("k", in: $0) })
    #expect(try !isNoticed { try remove("k", in: $0, if: false) })
    // Without a second tier, nobody needs to know.
    #expect(try !isNoticed { _ in try other.remove("k") })
  }

  /// They are known to the process in any case.
  @Test func ownChangesDoNotCount() throws {
    try store.set("a", forKey: "l")
    #expect(
      try !isNoticed { _ in
        try store.set("a", forKey: "k")
        try store.remove("k")
        try remove("k", in: store.files)
      })
    let changes = try other.files.changes(near: "k")
    #expect(try !other.files.isUnchanged(near: "k", since: nil))
    #expect(try other.files.isUnchanged(near: "k", since: changes))
  }

  @Test func whatOthersDoToANewCacheIsNoticed() throws {
    #expect(try store.files.changes(near: "k") == nil)
    try store.set("a", forKey: "k")
    #expect(try store.files.isUnchanged(near: "k", since: nil))
    try other.remove("k")
    #expect(try !store.files.isUnchanged(near: "k", since: nil))
  }

  @Test func aCacheThatWasMadeAndEmptiedIsNoticed() throws {
    #expect(try store.files.changes(near: "k") == nil)
    try other.set("a", forKey: "k")
    try other.removeAll()
    try store.set("a", forKey: "l")
    #expect(try !store.files.isUnchanged(near: "k", since: nil))
  }

  @Test func anEmptiedCacheIsUnchanged() throws {
    try other.set("a", forKey: "k")
    try other.removeAll()
    let changes = try #require(try store.files.changes(near: "k"))
    try store.set("a", forKey: "l")
    #expect(try store.files.isUnchanged(near: "k", since: changes))
    try other.removeAll()
    #expect(try !store.files.isUnchanged(near: "k", since: changes))
  }

  /// The sizes become unknown, as after the clock was set back.
  @Test func theCountsGoOnWhenTheLedgerIsWrittenAgain() throws {
    try store.set("a", forKey: "k")
    let ledger = try #require(other.files.openCache()?.ledger)
    #expect(try isNoticed { _ in try ledger.invalidate() })
  }
}
