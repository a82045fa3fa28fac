import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct Failure: Error {}

@Suite(.temporaryStorage) struct LargeValueTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private func bytes(_ count: Int) -> Data {
    var generator = SystemRandomNumberGenerator()
    var data = Data(capacity: count + 8)
    while data.count < count {
      withUnsafeBytes(of: generator.next()) { data.append(contentsOf: $0) }
    }
    return data.prefix(count)
  }

  /// Begins to store chunks, of which the first has been written when this returns.
  private func startSet(
    _ first: Data, in store: DiskCache.Store
  ) async throws -> (Task<Void, any Error>, AsyncStream<Data>.Continuation) {
    let (stream, continuation) = AsyncStream<Data>.makeStream()
    continuation.yield(first)
    let started = Locked(false)
    let task = Task {
      try await store.set(chunks: stream, forKey: "k") { _, _ in started.withLock { $0 = true } }
    }
    try await eventually("the first chunk is written") { started.withLock { $0 } }
    return (task, continuation)
  }

  @Test(arguments: [0, 1, 31, 32, 33, 1_000_000, 4 << 20, (4 << 20) + 1])
  func valuesOfEachSizeRoundTrip(size: Int) throws {
    let store = directory.cache()
    let value = bytes(size)
    try store.set(value, forKey: "k")
    for reader in [store, store, directory.cache()] { #expect(try reader.get("k") == value) }
    try value.write(to: directory.file("source"))
    try store.set(contentsOf: directory.file("source"), forKey: "file", expiry: .days(1))
    #expect(try directory.cache().get("file") == value)
    #expect(try Data(contentsOf: URL(filePath: store.payload("file"))) == value)
    #expect(try directory.cache().entry("file")?.size == size)
    #expect(try directory.temporaries().isEmpty)
  }

  /// Another program restores a backup over the files of the cache.
  @Test func aLargeValueIsUnchangedWhenItsFileIsOverwrittenOrTruncated() throws {
    let store = directory.cache()
    let value = bytes(4 << 20)
    try store.set(value, forKey: "k")
    let path = try store.payload("k")
    let first = try #require(try store.get("k"))
    let second = try #require(try store.get("k"))
    let file = try File(path, .readWrite)
    try file.overwrite(Array("other".utf8).span.bytes, at: 0)
    #expect(first == value && second == value)
    #expect(ftruncate(file.descriptor, 0) == 0)
    #expect(first == value && second == value)
    #expect(try store.get("k") == nil)
  }

  @Test func theSizeOfALargeValueIsKnownWithoutReadingIt() throws {
    let store = directory.cache()
    try store.set(bytes(1 << 20), forKey: "k")
    var size: Int?
    let calls = try systemCalls { size = try directory.cache().entry("k")?.size }
    #expect(size == 1 << 20)
    #expect(calls.count { $0 == .read } == 1, "only the sidecar")
  }

  @Test func throwsAndKeepsTheOldValueIfTheSourceIsMissing() throws {
    let store = directory.cache()
    try store.set("old", forKey: "k")
    let error = expectFailure(.notFound) {
      try store.set(contentsOf: directory.file("missing"), forKey: "k")
    }
    #expect(error?.path == directory.file("missing").path)
    let isDirectory = expectFailure(.isDirectory) {
      try store.set(contentsOf: directory.url, forKey: "k")
    }
    #expect(isDirectory?.description.contains("in the way") == false, "it is the caller's own")
    #expect(throws: StorageError.self) {
      try store.set(contentsOf: URL(string: "http://example.com/")!, forKey: "k")
    }
    #expect(try store.model("k") == "old")
    #expect(try directory.temporaries().isEmpty)
  }

  @Test func storesChunksAsOneValueAndReportsProgress() async throws {
    let store = directory.cache()
    let pieces = [0, 1, 31, 100_000, 7, 300_000].map { bytes($0) }
    let stream = AsyncStream<Data> { continuation in
      for piece in pieces { continuation.yield(piece) }
      continuation.finish()
    }
    var seen: [Int] = []
    try await store.set(chunks: stream, forKey: "k", expiry: .hours(1), total: 400_039) {
      #expect($1 == 400_039)
      seen.append($0)
    }
    #expect(seen == [0, 1, 32, 100_032, 100_039, 400_039])
    #expect(try directory.cache().get("k") == pieces.reduce(Data(), +))
    #expect(try directory.cache().entry("k")?.expires != nil)
    // Chunks of a type other than Data, in a cache in memory.
    let memory = directory.cache(.memory)
    try await memory.set(chunks: FolderNameTests.chunks([[1, 2], [3]]), forKey: "k")
    #expect(try memory.get("k") == Data([1, 2, 3]))
    #expect(try directory.temporaries().isEmpty)
  }

  @Test func incompleteChunksLeaveNothingBehind() async throws {
    let store = directory.cache()
    try store.set("old", forKey: "k")
    let failing = AsyncThrowingStream<Data, any Error> { continuation in
      continuation.yield(Data([1, 2, 3]))
      continuation.finish(throwing: Failure())
    }
    await #expect(throws: Failure.self) { try await store.set(chunks: failing, forKey: "k") }
    #expect(try directory.temporaries().isEmpty)

    let (task, continuation) = try await startSet(bytes(1_000), in: store)
    #expect(try directory.temporaries().count == 1)
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    continuation.finish()
    #expect(try directory.temporaries().isEmpty)
    #expect(try directory.cache().model("k") == "old")
  }

  @Test func emptyingTheCacheKeepsChunksThatAreBeingWritten() async throws {
    let store = directory.cache()
    let value = bytes(1_000)
    let (task, continuation) = try await startSet(value, in: store)
    try store.removeAll()
    try directory.cache().removeExpired()
    continuation.finish()
    try await task.value
    #expect(try directory.cache().get("k") == value)
  }
}
