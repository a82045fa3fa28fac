import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct FileSystemTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  /// The clock of a machine without a battery may begin in 1970.
  @Test(arguments: [-1, 0, 999_999_999])
  func copiesAreFoundWhateverTheClockSays(_ time: Int64) throws {
    let stem = directory.file("f.damaged").path
    let path = try WallClock.$fixed.withValue(time * WallClock.second) {
      try FileSystem.unusedPath(stem)
    }
    try directory.write([], to: FileSystem.name(of: path))
    #expect(try FileSystem.copies(stem) == [path])
  }

  @Test func replacingShowsOldOrNewContentsWhole() async throws {
    let (old, new) = (Array("old".utf8), Array("new".utf8))
    let count = try await failingEachCall(
      { path in try FileSystem.replace(path, with: new, mode: 0o600, durable: true) },
      on: {
        let directory = try TemporaryDirectory(isQuick: true)
        let path = directory.file("f").path
        try FileSystem.replace(path, with: old, mode: 0o600, durable: false)
        #expect(try #require(try FileSystem.status(path)).mode == 0o600)
        return (path, [directory])
      },
      check: { _, directory, call in
        let contents = try directory.bytes(of: "f")
        #expect(contents == old || contents == new, call.comment)
        if call.failure == nil { #expect(contents == new, call.comment) }
        #expect(try directory.names() == ["f"], call.comment)
      })
    #expect(
      count > Coverage.count(sample: 4, complete: 30),
      "temporary file, write, sync, rename, directory")
  }

  @Test func durableReplacementSyncsFileThenRenamesThenSyncsDirectory() throws {
    let path = directory.file("f").path
    let calls = try systemCalls {
      try FileSystem.replace(path, with: [1], mode: 0o600, durable: true)
    }
    #expect(calls == [.open, .write, .fdatasync, .rename, .open, .fsync])
  }

  /// On a full btrfs, fsync of a directory failed after its files had been removed.
  @Test func aDirectoryIsSyncedWithItsFileSystemIfThereIsNoSpaceForLess() throws {
    let calls = Locked<[SystemCall]>([])
    func plan(failing full: Set<SystemCall>) -> FaultPlan {
      FaultPlan(decide: { event in
        calls.withLock { $0.append(event.call) }
        return full.contains(event.call) ? .fail(ENOSPC) : .proceed
      })
    }
    try FaultPlan.$current.withValue(plan(failing: [.fsync])) {
      try FileSystem.synchronizeDirectory(directory.path)
    }
    #expect(calls.withLock { $0 } == [.open, .fsync, .syncfs])
    FaultPlan.$current.withValue(plan(failing: [.fsync, .syncfs])) {
      let error = expectFailure(.diskFull) {
        try FileSystem.synchronizeDirectory(directory.path)
      }
      #expect(error?.path == directory.path)
    }
  }

  @Test func removingALinkWithoutPermissionDoesNotFollowIt() throws {
    try directory.makeDirectory("photos")
    try directory.write([1], to: "photos/1")
    try directory.link("link", to: "photos")
    // As in a sticky directory, where another user has laid it.
    let plan = FaultPlan(decide: { event in
      event.call == .unlink && event.path.hasSuffix("/link") ? .fail(EPERM) : .proceed
    })
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.accessDenied) { try FileSystem.remove(directory.path + "/link") }
    }
    #expect(try directory.bytes(of: "photos/1") == [1])
  }

  /// Such as one that was written before the clock was set back.
  @Test func anyAgeIncludesAFileOfTheFuture() throws {
    try directory.write([1], to: ".f.1f.tmp")
    try directory.age(".f.1f.tmp", seconds: -86_400)
    try FileSystem.removeStaleTemporaryFiles(for: directory.path + "/f")
    #expect(try directory.names() == [".f.1f.tmp"])
    try FileSystem.removeStaleTemporaryFiles(for: directory.path + "/f", olderThan: nil)
    #expect(try directory.names() == [])
  }

  @Test func directoriesAreCreatedListedAndRemoved() throws {
    let deep = directory.path + "/a/b/c"
    try FileSystem.createDirectory(deep)
    try FileSystem.createDirectory(deep)
    try directory.write([1], to: "a/b/file")
    try directory.link("a/link", to: directory.path)
    #expect(try FileSystem.list(directory.path + "/a").sorted() == ["b", "link"])
    #expect(try FileSystem.list(directory.path + "/none").isEmpty)
    try FileSystem.removeTree(directory.path + "/a")
    #expect(try FileSystem.list(directory.path).isEmpty)
    #expect(FileManager.default.fileExists(atPath: directory.path), "a link is not followed")
    try directory.write([1], to: "file")
    let error = #expect(throws: StorageError.self) {
      try FileSystem.createDirectory(directory.path + "/file/x")
    }
    #expect(error?.reason?.contains("a file is in the way of a directory") == true)
    #expect(try FileSystem.freeSpace(at: directory.path) > 0)
  }

  @Test func releasingFilesClosesTheirDescriptors() throws {
    // Other tests open files at the same time: look for our own.
    func ours() throws -> [String] {
      try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
      }.filter { $0.hasPrefix(directory.path) }
    }
    do {
      let store = directory.store()
      // It would keep replaced journals open for a moment.
      try keepFromBackgroundSync(store)
      for number in 0..<50 { try store.set(number, forKey: "k") }
      try store.removeAll()
      try store.set(1, forKey: "k")
      try store.journal.compact()
      let open = try ours()
      #expect(open.count == 1, "the journal: \(open)")
    }
  }

  @Test func descriptorsAreClosedOnExec() throws {
    let file = try File(directory.file("f").path, .createOrOpen)
    #expect(fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC != 0)
  }

  @Test func lockHasOneHolderAtATime() throws {
    let path = directory.file(".l").path
    let a = try LockFile.createOrOpen(path, mode: 0o600, timeout: .seconds(1), wordCount: 1) { [1] }
    let b = try LockFile.createOrOpen(path, mode: 0o600, timeout: .seconds(1), wordCount: 1) { [1] }
    try a.file.lock(Wait(timeout: .seconds(1)))
    #expect(throws: StorageError.self) {
      try b.file.lock(Wait(timeout: .milliseconds(20)))
    }
    a.file.unlock()
    try b.file.lock(Wait(timeout: .seconds(1)))
    #expect(a.word() == 1 && b.word() == 1)
    try b.publish(7, at: 0)
    #expect(a.word() == 7)
  }

  /// At any moment one of the others holds a byte, until another one waits for its own.
  @Test func allBytesCanBeLockedAmongManyLocksOfSingleOnes() throws {
    let path = directory.file("lock").path
    let holders = Holders()
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, result in
        if event.call == .lock, case .failure = result { holders.noteWait() }
      })
    let ends = (0..<12).map { number in
      startThread {
        let lock = ByteRangeLock(path)
        let byte = UInt64(number) << 50
        FaultPlan.$current.withValue(plan) {
          while !holders.areDone {
            _ = try? lock.withLock(byte..<(byte + 1), mode: 0o600, Wait(timeout: .seconds(600))) {
              holders.enter()
              holders.leave()
            }
          }
        }
      }
    }
    holders.waitForFirst()
    for _ in 0..<3 {
      try ByteRangeLock(path).withLock(
        ByteRangeLock.allBytes, mode: 0o600, Wait(timeout: .seconds(600))
      ) {}
    }
    holders.finish()
    for end in ends { end.wait() }
  }

  /// The threads that hold a byte. The last one keeps it until another one has come, or waits.
  private final class Holders: @unchecked Sendable {
    private let condition = NSCondition()
    private var count = 0
    private var waitCount = 0
    private var isDone = false

    var areDone: Bool { condition.withLock { isDone } }

    func enter() { change { count += 1 } }
    func noteWait() { change { waitCount += 1 } }
    func finish() { change { isDone = true } }

    func leave() {
      condition.withLock {
        let before = waitCount
        while count == 1, waitCount == before, !isDone { condition.wait() }
        count -= 1
      }
    }

    func waitForFirst() { condition.withLock { while count == 0 { condition.wait() } } }

    private func change(_ body: () -> Void) {
      condition.withLock {
        body()
        condition.broadcast()
      }
    }
  }
}
