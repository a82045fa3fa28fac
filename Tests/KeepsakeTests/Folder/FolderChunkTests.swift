import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct Failure: Error {}

/// Files that are saved in chunks.
@Suite struct FolderChunkTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws { home = try TemporaryDirectory(isQuick: true) }

  @Test func chunksBecomeOneFileWithProgress() async throws {
    var seen: [[Int?]] = []
    let pieces: [[UInt8]] = [[], [1], [2, 3], Array(repeating: 9, count: 100_000)]
    try await directory.save(chunks: FolderNameTests.chunks(pieces), as: "d/f", total: 100_003) {
      seen.append([$0, $1])
    }
    #expect(seen == [[0, 100_003], [1, 100_003], [3, 100_003], [100_003, 100_003]])
    #expect(try home.bytes(of: "d/f") == pieces.flatMap { $0 })
    seen = []
    let data = AsyncStream<Data> { continuation in
      continuation.yield(Data([7]))
      continuation.finish()
    }
    try await directory.save(chunks: data, as: "d/f") { seen.append([$0, $1]) }
    #expect(seen == [[1, nil]])
    #expect(try home.bytes(of: "d/f") == [7] && home.leftoverFiles() == [])
    try await directory.save(chunks: FolderNameTests.chunks([]), as: "d/f")
    #expect(try directory.size("d/f") == 0)
  }

  @Test func oldFileStaysUntilTheLastChunk() async throws {
    try directory.save("old", as: "f")
    let directory = directory
    var count = 0
    try await directory.save(chunks: FolderNameTests.chunks([[1], [2]]), as: "f") { _, _ in
      count += 1
      let (old, names) = (
        try? directory.load("f") as String, try? directory.list(includingHidden: true)
      )
      #expect(old == "old" && names == ["f"])
    }
    #expect(try count == 2 && home.bytes(of: "f") == [1, 2])
  }

  @Test func failingSequenceLeavesNothingBehind() async throws {
    try directory.save("old", as: "f")
    for count in 0..<200 {
      let stream = AsyncThrowingStream<[UInt8], any Error> { continuation in
        for byte in 0..<(count % 4) { continuation.yield([UInt8(byte)]) }
        continuation.finish(throwing: Failure())
      }
      await #expect(throws: Failure.self) { try await directory.save(chunks: stream, as: "f") }
      // Immediately, not some time later.
      try #require(try home.names() == ["f"], "round \(count)")
    }
    #expect(try directory.load("f") as String == "old")
  }

  @Test(arguments: [0, 1, 2]) func cancelledTaskLeavesNothingBehind(_ chunks: Int) async throws {
    try directory.save("old", as: "f")
    let (stream, continuation) = AsyncStream<[UInt8]>.makeStream()
    for byte in 0..<chunks { continuation.yield([UInt8(byte)]) }
    let arrived = Locked(0)
    let directory = directory
    let task = Task {
      try await directory.save(chunks: stream, as: "f") { _, _ in arrived.withLock { $0 += 1 } }
    }
    try await eventually("the chunks are written") { arrived.withLock { $0 } == chunks }
    if chunks > 0 { #expect(try home.leftoverFiles().count == 1) }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try home.names() == ["f"] && directory.load("f") as String == "old")
  }

  @Test func insufficientSpaceIsReportedBeforeReading() async throws {
    let isRead = Locked(false)
    let stream = AsyncStream<[UInt8]> {
      isRead.withLock { $0 = true }
      return nil
    }
    let error = await #expect(throws: StorageError.self) {
      try await directory.save(chunks: stream, as: "f", total: .max)
    }
    #expect(error?.code == .diskFull && error?.operation == "save" && error?.path == home.path)
    #expect(try !isRead.withLock { $0 } && home.names().isEmpty)
    // The same for a single value that is too large.
    let plan = FaultPlan(decide: { $0.call == .space ? .fail(EIO) : .proceed })
    expectFailure(.system(EIO)) {
      try FaultPlan.$current.withValue(plan) { try directory.save(Data(count: 1 << 20), as: "f") }
    }
    try FaultPlan.$current.withValue(plan) { try directory.save(Data(count: 1_000), as: "f") }
  }

  @MainActor @Test func progressRunsInTheCallersIsolation() async throws {
    final class Model { var bytes = 0 }
    let model = Model()
    try await directory.save(chunks: FolderNameTests.chunks([[1], [2]]), as: "f") { bytes, _ in
      MainActor.assertIsolated()
      model.bytes = bytes
    }
    #expect(model.bytes == 2)
  }
}
