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

  /// Puts the program's file in the place of the temporary file below `path`, or of another one.
  private func takeOver(below path: String, named name: String = ".tmp") throws -> Int32 {
    let numbers = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
    let number = try #require(
      numbers.first { number in
        let target = try? FileManager.default.destinationOfSymbolicLink(
          atPath: "/proc/self/fd/" + number)
        return target.map { $0.hasPrefix(path) && $0.hasSuffix(name) } ?? false
      }.flatMap { Int32($0) })
    try #require(dup2(own.descriptor, number) == number)
    return number
  }

  @Test func aFolderDoesNotWriteIntoIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    var number: Int32?
    await #expect(throws: StorageError.self) {
      let chunks = AsyncStream { continuation in
        for byte in [1, 2] as [UInt8] { continuation.yield([byte]) }
        continuation.finish()
      }
      try await folder.save(chunks: chunks, as: "file") { _, _ in
        number = number ?? (try? takeOver(below: directory.path))
      }
    }
    close(try #require(number))
    #expect(try own.status().size == 0)
    #expect(try folder.list(includingHidden: true) == [])
  }

  /// The program's file has the number of the folder's directory.
  @Test func aFolderDoesNotCloseIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    var number: Int32?
    await #expect(throws: StorageError.self) {
      let chunks = AsyncStream { continuation in
        for byte in [1, 2] as [UInt8] { continuation.yield([byte]) }
        continuation.finish()
      }
      try await folder.save(chunks: chunks, as: "file") { _, _ in
        number = number ?? (try? takeOver(below: directory.path, named: "/folder"))
      }
    }
    let taken = try #require(number)
    defer { close(taken) }
    #expect(try FileSystem.status(of: taken, "own").isSameFile(as: own.status()))
    #expect(try own.status().size == 0 && folder.list() == [])
  }

  /// Nor does it change the permissions of the program's file at the end.
  @Test func aFolderDoesNotFinishWithIt() async throws {
    let folder = Folder(directory.url.appending(path: "folder"))
    try folder.save("old", as: "file")
    try #require(chmod(directory.file("folder/file").path, 0o644) == 0)
    var number: Int32?
    await #expect(throws: StorageError.self) {
      let chunks = AsyncStream { continuation in
        continuation.yield([1] as [UInt8])
        continuation.finish()
      }
      try await folder.save(chunks: chunks, as: "file") { _, _ in
        number = try? takeOver(below: directory.path)
      }
    }
    close(try #require(number))
    #expect(try own.status().mode == 0o600)
    #expect(try folder.load("file") == "old")
  }

  @Test func aCacheDoesNotWriteIntoIt() throws {
    let store = directory.cache()
    let writer = try store.engine.startWriting("k")
    try ([1] as [UInt8]).withUnsafeBytes { try writer.append($0) }
    let number = try takeOver(below: directory.path)
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
