import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Between two pieces of a streamed value, the program has closed all descriptors, and has a file
/// of its own under the number of the library's.
@Suite struct ReplacedDescriptorTests {
  private let directory: TemporaryDirectory
  private let own: File

  init() throws {
    directory = try TemporaryDirectory()
    own = try File(directory.file("own").path, .create, mode: 0o600)
  }

  /// Puts the program's file in the place of an open file whose path ends with `name`.
  private func takeOver(_ name: String) throws -> Int32 {
    let numbers = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
    let number = try #require(
      numbers.first { number in
        let target = try? FileManager.default.destinationOfSymbolicLink(
          atPath: "/proc/self/fd/" + number)
        return target.map { $0.hasPrefix(directory.path) && $0.hasSuffix(name) } ?? false
      }.flatMap { Int32($0) })
    try #require(dup2(own.descriptor, number) == number)
    return number
  }

  /// Saves so many pieces, and takes over a descriptor after the first one.
  ///
  /// - Returns: The number of the descriptor.
  private func save(pieces: Int, in folder: Folder, takingOver name: String) async throws -> Int32 {
    var number: Int32?
    await #expect(throws: StorageError.self) {
      let chunks = FolderNameTests.chunks((0..<pieces).map { [UInt8($0)] })
      try await folder.save(chunks: chunks, as: "file") { _, _ in
        number = number ?? (try? takeOver(name))
      }
    }
    return try #require(number)
  }

  @Test func aFolderDoesNotWriteIntoIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    close(try await save(pieces: 2, in: folder, takingOver: ".tmp"))
    #expect(try own.status().size == 0)
    #expect(try folder.list(includingHidden: true) == [])
  }

  /// The program's file has the number of the folder's directory.
  @Test func aFolderDoesNotCloseIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    let taken = try await save(pieces: 2, in: folder, takingOver: "/folder")
    defer { close(taken) }
    #expect(try FileSystem.status(of: taken, "own").isSameFile(as: own.status()))
    #expect(try own.status().size == 0 && folder.list() == [])
  }

  /// Nor does it change the permissions of the program's file at the end.
  @Test func aFolderDoesNotFinishWithIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    try folder.save("old", as: "file")
    try #require(chmod(directory.file("folder/file").path, 0o644) == 0)
    close(try await save(pieces: 1, in: folder, takingOver: ".tmp"))
    #expect(try own.status().mode == 0o600)
    #expect(try folder.load("file") == "old")
  }

  /// The program does that while a compaction waits for the lock.
  @Test(arguments: [false, true]) func aCompactionDoesNotUseIt(isChanged: Bool) throws {
    let (store, other) = (directory.store(), directory.store())
    try store.set(1, forKey: "k")
    let number = Locked<Int32?>(nil)
    try interrupt(before: .lock) {
      if isChanged { try other.set(2, forKey: "k") }
      let taken = try takeOver(".tmp")
      number.withLock { $0 = taken }
    } in: {
      expectFailure(.notFound) { try store.journal.compact() }
    }
    close(try #require(number.withLock { $0 }))
    #expect(try own.status().size == 0)
    for store in [store, directory.store()] { #expect(try store.int("k") == (isChanged ? 2 : 1)) }
  }

  /// A file system in user space whose process has ended.
  @Test(.enabled(if: geteuid() == 0, "mounting needs root"))
  func aDescriptorOnALostFileSystemIsClosed() throws {
    let mountPoint = try TemporaryDirectory()
    let server = open("/dev/fuse", O_RDWR | O_CLOEXEC)
    let options = "fd=\(server),rootmode=40000,user_id=0,group_id=0"
    guard server >= 0, mount("none", mountPoint.path, "fuse", 0, options) == 0 else { return }
    defer { umount2(mountPoint.path, Int32(MNT_DETACH)) }
    let descriptor = open(mountPoint.path, 0o10000000 | O_CLOEXEC)  // O_PATH
    close(server)
    let identity = DescriptorIdentity()
    identity.note(try own.status(), of: descriptor)
    let (isUsed, isClosed) = (
      identity.isKept(by: descriptor), identity.isKept(by: descriptor, ifUnreachable: true)
    )
    #expect(!isUsed && isClosed)
    close(descriptor)
    let isClosedAgain = identity.isKept(by: descriptor, ifUnreachable: true)
    #expect(!isClosedAgain)
  }

  @Test func aCacheDoesNotWriteIntoIt() throws {
    let store = directory.cache()
    let writer = try store.engine.startWriting("k")
    try ([1] as [UInt8]).withUnsafeBytes { try writer.append($0) }
    let number = try takeOver(".tmp")
    expectFailure(.notFound) { try ([2] as [UInt8]).withUnsafeBytes { try writer.append($0) } }
    expectFailure(.notFound) {
      try writer.finish(WriteOptions(expiry: .never, isDurable: false)) {
        commit throws(StorageError) in try commit()
      }
    }
    close(number)
    #expect(try own.status().size == 0)
    #expect(try store.get("k") == nil)
  }
}
