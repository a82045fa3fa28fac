import Foundation
import Testing

@testable import Keepsake

@Suite struct FileSystemTests {
  @Test func replacingKeepsTheOldContentsUntilTheNewAreWhole() async throws {
    let (old, new) = (Array("old".utf8), Array("new".utf8))
    let count = try await failingEachCall(
      { path in try FileSystem.replace(path, with: new, mode: 0o600, durable: true) },
      on: {
        let folder = try TemporaryFolder(isQuick: true)
        let path = folder.file("f").path
        try FileSystem.replace(path, with: old, mode: 0o600, durable: false)
        #expect(try #require(try FileSystem.status(path)).mode == 0o600)
        return (path, [folder])
      },
      check: { _, folder, call in
        let contents = try folder.bytes(of: "f")
        #expect(contents == old || contents == new, call.comment)
        if call.failure == nil { #expect(contents == new, call.comment) }
        #expect(try folder.names() == ["f"], call.comment)
      })
    #expect(count > 30, "temporary file, write, sync, rename, folder")
  }

  @Test func aDurableReplacementSyncsTheFileBeforeItsNameAndTheFolderAfter() throws {
    let folder = try TemporaryFolder()
    let path = folder.file("f").path
    let calls = try systemCalls {
      try FileSystem.replace(path, with: [1], mode: 0o600, durable: true)
    }
    #expect(calls == [.open, .write, .fdatasync, .rename, .open, .fsync])
  }

  @Test func aLinkThatMayNotGoIsNotFollowed() throws {
    let folder = try TemporaryFolder()
    try FileSystem.createFolder(folder.path + "/photos")
    try folder.write([1], to: "photos/1")
    try FileManager.default.createSymbolicLink(
      atPath: folder.path + "/link", withDestinationPath: "photos")
    // As in a sticky folder, where another user has laid it.
    let plan = FaultPlan(decide: { event in
      event.call == .unlink && event.path.hasSuffix("/link") ? .fail(EPERM) : .proceed
    })
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.accessDenied) { try FileSystem.remove(folder.path + "/link") }
    }
    #expect(try folder.bytes(of: "photos/1") == [1])
  }

  @Test func foldersAreMadeRemovedAndListed() throws {
    let folder = try TemporaryFolder()
    let deep = folder.path + "/a/b/c"
    try FileSystem.createFolder(deep)
    try FileSystem.createFolder(deep)
    try folder.write([1], to: "a/b/file")
    try FileManager.default.createSymbolicLink(
      atPath: folder.path + "/a/link", withDestinationPath: folder.path)
    #expect(try FileSystem.list(folder.path + "/a").sorted() == ["b", "link"])
    #expect(try FileSystem.list(folder.path + "/none").isEmpty)
    try FileSystem.removeTree(folder.path + "/a")
    #expect(try FileSystem.list(folder.path).isEmpty)
    #expect(FileManager.default.fileExists(atPath: folder.path), "a link is not followed")
    try folder.write([1], to: "file")
    let error = #expect(throws: StorageError.self) {
      try FileSystem.createFolder(folder.path + "/file/x")
    }
    #expect(error?.remedy.contains("file stands where a folder belongs") == true)
    #expect(try FileSystem.freeSpace(at: folder.path) > 0)
  }

  @Test func descriptorsDoNotOutliveTheirFiles() throws {
    let folder = try TemporaryFolder()
    // Other tests open files meanwhile: look for our own.
    func ours() throws -> [String] {
      try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
      }.filter { $0.hasPrefix(folder.path) }
    }
    do {
      let store = folder.store()
      for number in 0..<50 { try store.set(number, forKey: "k") }
      try store.removeAll()
      try store.set(1, forKey: "k")
      try store.journal.compact()
      let open = try ours()
      #expect(open.count == 2, "the journal and its lock file: \(open)")
    }
  }

  @Test func descriptorsAreClosedOnExec() throws {
    let folder = try TemporaryFolder()
    let file = try File(folder.file("f").path, .createOrOpen)
    #expect(fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC != 0)
  }

  @Test func onlyOneHolderOfALockAtATime() throws {
    let folder = try TemporaryFolder()
    let path = folder.file(".l").path
    let a = try LockFile.createOrOpen(path, mode: 0o600, timeout: .seconds(1)) { [1] }
    let b = try LockFile.createOrOpen(path, mode: 0o600, timeout: .seconds(1)) { [1] }
    try a.lock(timeout: .seconds(1))
    #expect(throws: StorageError.self) { try b.lock(timeout: .milliseconds(20)) }
    a.unlock()
    try b.lock(timeout: .seconds(1))
    #expect(a.word() == 1 && b.word() == 1)
    try b.publish(7)
    #expect(a.word() == 7)
  }
}
