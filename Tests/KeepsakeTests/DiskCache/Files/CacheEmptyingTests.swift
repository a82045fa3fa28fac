import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Emptying, sweeping and evicting remove entries, and nothing that lies beside or behind them.
@Suite struct CacheEmptyingTests {
  private let directory: TemporaryDirectory
  private let failures = Failures()
  private static let cachePath = "caches/standard"

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  private func store() -> DiskCache.Store { directory.cache(failures: failures) }

  private func fill(_ store: DiskCache.Store) throws {
    for key in 0..<40 { try store.set(Data(repeating: 7, count: 500), forKey: "k\(key)") }
  }

  /// Expects the cache to be empty and to work, for the store that emptied it and for others.
  private func expectEmptied(_ stores: [DiskCache.Store]) throws {
    for store in stores {
      #expect(try store.keys() == [] && store.totalSize == 0)
      for key in 0..<40 { #expect(try store.get("k\(key)") == nil) }
    }
    for (number, store) in stores.enumerated() {
      try store.set(Data([1]), forKey: "new\(number)")
      for other in stores { #expect(try other.get("new\(number)") == Data([1])) }
    }
    #expect(try stores[0].totalSize == stores.count * 8_192)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Waits until what was renamed is deleted.
  private func waitForTrash(in path: String) throws {
    try waitUntil("the trash is deleted") {
      try FileSystem.list(path).allSatisfy { !$0.hasSuffix(".trash") }
    }
  }

  @Test func whatLiesBesideTheEntriesIsKept() throws {
    let (store, other) = (store(), store())
    try fill(store)
    #expect(try other.get("k1") != nil)
    let path = directory.file(Self.cachePath).path
    let inode = try #require(try FileSystem.status(path)).inode
    let number = FileSystem.name(of: FileSystem.parent(of: try store.payload("k1")))
    let others = [
      "README", "notes/one.txt", number + "/mine.txt", number + "/x.meta.bak", number + "/.hidden",
      number + "/inner/deep.txt",
    ].map { Self.cachePath + "/" + $0 }
    for name in others {
      try FileManager.default.createDirectory(
        atPath: FileSystem.parent(of: directory.path + "/" + name),
        withIntermediateDirectories: true)
      try directory.write(Array("mine".utf8), to: name)
    }
    #expect(try store.removeExpired() == 0 && store.keys().count == 40)
    try directory.expectPresent(others, "after a sweep")
    try store.removeAll()
    try expectEmptied([store, other, self.store()])
    #expect(try FileSystem.status(path)?.inode == inode, "the directory stays")
    try waitForTrash(in: path)
    try directory.expectPresent(others, "after removeAll")
  }

  /// People move caches to another disk, and leave a link.
  @Test func aLinkedCacheIsEmptiedInPlace() throws {
    let foreign = try directory.makeForeignFiles(in: "disk")
    try directory.makeDirectory("caches")
    try directory.link(Self.cachePath, to: directory.file("disk").path)
    let (store, other) = (store(), store())
    for round in 0..<2 {
      try fill(store)
      #expect(try other.get("k1") != nil)
      if round == 0 { try store.removeAll() } else { _ = try self.store().removeAll() }
      try directory.expectPresent(foreign, "round \(round)")
      try expectEmptied([store, other, self.store()])
      #expect(try directory.status(Self.cachePath)?.isSymbolicLink == true)
    }
    store.sizeLimit = 20_000
    try fill(store)
    try store.removeExpired()
    try directory.expectPresent(foreign, "after evictions and a sweep")
  }

  @Test(.enabled(if: getuid() == 0, "mounting needs root"))
  func aMountedCacheIsEmptiedInPlace() throws {
    let path = directory.file(Self.cachePath).path
    try directory.makeDirectory(Self.cachePath)
    guard mount("tmpfs", path, "tmpfs", 0, "size=4m") == 0 else { return }
    defer { umount2(path, 2) }
    let foreign = try directory.makeForeignFiles(in: Self.cachePath)
    let (store, other) = (store(), store())
    try fill(store)
    // Pieces are not written to the file system above.
    let file = directory.file("source")
    try Data(count: 10_000).write(to: file)
    try store.set(contentsOf: file, forKey: "k0")
    #expect(try other.get("k0")?.count == 10_000)
    try store.removeAll()
    try directory.expectPresent(foreign, "a mount")
    try expectEmptied([store, other, self.store()])
    #expect(try FileSystem.status(path)?.isMountPoint == true)
  }

  /// Everybody may use a cache in such a directory, and no one else's files beside it.
  @Test(.enabled(if: getuid() == 0, "becoming another user needs root"))
  func anotherUserEmptiesACacheInAStickyDirectory() throws {
    try #require(chmod(directory.path, 0o1777) == 0)
    let store = directory.ownCache("x", failures: failures)
    try fill(store)
    try directory.write([1], to: "x/README")
    let peer = try Child(
      "setpriv",
      ["--reuid=1234", "--regid=1234", "--clear-groups", Peer.executable, directory.path]
        + ["cache-clear", "1"], mergesErrors: true)
    let said = peer.finish()
    #expect(said == "" && peer.exitStatus == 0, "\(said)")
    try directory.expectPresent(["x/README"], "another user")
    try expectEmptied([store, directory.ownCache("x", failures: failures)])
  }

  /// What a killed program left has a name of ours; it is deleted only if it is what we make.
  @Test func trashThatIsALinkIsNotFollowed() throws {
    let store = store()
    try fill(store)
    let foreign = try directory.makeForeignFiles(in: "foreign")
    let trash = Self.cachePath + "/.ab.00000000000000ff.trash"
    try directory.link(trash, to: directory.file("foreign").path)
    try self.store().removeExpired()
    try directory.expectPresent(foreign, "a link")
    #expect(try directory.status(trash) == nil && store.keys().count == 40)
    // Deleting a tree does not start at a link either.
    try directory.link(trash, to: directory.file("foreign").path)
    expectFailure(.accessDenied) { try FileSystem.removeTree(directory.path + "/" + trash) }
    try directory.expectPresent(foreign, "removeTree")
  }

  @Test func aRemovalThatWasKilledIsFinishedByTheNextSweep() throws {
    for number in 0..<12 {
      let directory = try TemporaryDirectory(isQuick: true)
      let store = directory.cache()
      for key in 0..<6 { try store.set(Data([1]), forKey: "k\(key)") }
      let count = Locked(0)
      let plan = FaultPlan(decide: { event in
        event.path.contains("caches") && count.increment() > number ? .fail(EIO) : .proceed
      })
      FaultPlan.$current.withValue(plan) { _ = try? store.removeAll() }
      let next = directory.cache()
      let found = try next.keys()
      #expect(try next.totalSize == found.count * 8_192, "before call \(number)")
      try next.removeAll()
      try next.removeExpired()
      #expect(try next.keys() == [] && next.totalSize == 0)
      let path = directory.file(Self.cachePath).path
      try waitUntil("the trash is deleted") {
        try next.removeExpired()
        return try FileSystem.list(path) == ["CACHEDIR.TAG"]
      }
    }
  }

  /// One that opens the cache with a read, and may write.
  @Test func aRemovalThatWasKilledIsFinishedByAReader() throws {
    let store = store()
    try fill(store)
    let plan = FaultPlan(decide: {
      $0.call != .rename && $0.path.contains(".trash") ? .fail(EIO) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.removeAll() }
    let reader = directory.cache()
    #expect(try reader.get("k1") == nil)
    try waitForTrash(in: directory.file(Self.cachePath).path)
  }

  /// A rename can fail for many reasons: an overlay, a sticky directory, a full disk, a mount.
  @Test(arguments: [EXDEV, EPERM, EACCES, EBUSY, ENOSPC, EDQUOT])
  func subdirectoriesThatCannotBeRenamedAreEmptied(code: Int32) throws {
    let (store, other) = (store(), store())
    try fill(store)
    let foreign = FileSystem.parent(of: try store.payload("k1")) + "/mine.txt"
    try Data("mine".utf8).write(to: URL(filePath: foreign))
    #expect(try other.get("k1") != nil)
    let plan = FaultPlan(decide: {
      $0.call == .rename && $0.path.contains(".trash") ? .fail(code) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.removeAll() }
    #expect(FileManager.default.fileExists(atPath: foreign))
    try expectEmptied([store, other, self.store()])
  }

  /// Puts a directory of the user's in the place of a file.
  private func replaceByDirectory(_ path: String) throws {
    try FileSystem.unlink(path)
    try FileManager.default.createDirectory(
      atPath: path + "/inner", withIntermediateDirectories: true)
  }

  /// The cache makes no directories of these names: they belong to the user.
  @Test(arguments: [true, false])
  func aDirectoryWithTheNameOfAnEntryIsNotRemoved(isPayload: Bool) throws {
    let store = store()
    try fill(store)
    let path = try isPayload ? store.payload("k1") : store.sidecar("k1")
    try replaceByDirectory(path)
    let next = self.store()
    #expect(try next.get("k1") == nil && !next.contains("k1"))
    let error = expectFailure(.isDirectory) { try next.set(Data([2]), forKey: "k1") }
    #expect(error?.path == path)
    try next.removeExpired()
    try next.remove("k1")
    next.sizeLimit = 8_192
    try waitUntil("entries are evicted") { try next.totalSize <= 8_192 }
    #expect(FileManager.default.fileExists(atPath: path + "/inner"))
    // A set of another key still works.
    next.sizeLimit = nil
    try next.set(Data([3]), forKey: "k2")
    #expect(try next.get("k2") == Data([3]))
  }

  /// The store need not look at a payload that it has just stored.
  @Test func aDirectoryThatTakesThePlaceOfAnEntryIsNotMoved() throws {
    let store = store()
    try fill(store)
    let path = try store.payload("k1")
    try replaceByDirectory(path)
    let error = expectFailure(.isDirectory) { try store.set(Data([2]), forKey: "k1") }
    #expect(error?.path == path)
    #expect(FileManager.default.fileExists(atPath: path + "/inner"))
    #expect(try directory.temporaries() == [])
  }

  /// A fetch can store its value after a removal has found no cache, and before it ends the fetch.
  @Test func aValueThatIsStoredAfterNoCacheWasFoundIsRemoved() throws {
    let (store, other) = (store(), store())
    var isStored = false
    try store.files.remove("k", by: nil) { commit throws(StorageError) in
      if !isStored { try other.set(Data([1]), forKey: "k") }
      isStored = true
      try commit()
    }
    #expect(try !other.contains("k") && !store.contains("k"))
  }

  /// One entry that cannot be removed costs itself: the others go, and the error is thrown.
  @Test func anEntryThatCannotBeRemovedDoesNotKeepTheOthers() throws {
    let store = store()
    try fill(store)
    let path = try store.payload("k1")
    let plan = FaultPlan(decide: {
      $0.call == .rename && $0.path.contains(".trash") || $0.call == .unlink && $0.path == path
        ? .fail(EPERM) : .proceed
    })
    expectFailure(.accessDenied) {
      try FaultPlan.$current.withValue(plan) { try store.removeAll() }
    }
    #expect(try self.store().keys() == ["k1"])
  }
}
