import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Entries and files that are read in pieces.
@Suite(.timeLimit(.minutes(20))) struct FileChunkTests {
  private let directory: TemporaryDirectory
  private static let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) })
  private var bytes: Data { Self.bytes }

  init() throws { directory = try TemporaryDirectory() }

  private func collect(_ chunks: FileChunks?) async throws -> [Data] {
    var pieces: [Data] = []
    for try await piece in try #require(chunks) { pieces.append(piece) }
    return pieces
  }

  private static let ranges: [Range<Int>?] = [
    nil, 0..<300_000, 0..<1, 299_999..<300_000, 100..<200_100, 5..<5, 299_000..<400_000,
    400_000..<500_000, -7..<3,
  ]

  @Test(arguments: ranges, [1_000, 65_536, 300_000, 1 << 20])
  func piecesAreTheBytes(range: Range<Int>?, size: Int) async throws {
    let store = directory.cache()
    let memory = directory.cache(.memory)
    let folder = Folder(directory.file("files"))
    for cache in [store, memory] { try cache.set(bytes, forKey: "k") }
    try folder.save(bytes, as: "k")
    let clamped = (range ?? 0..<300_000).clamped(to: 0..<300_000)
    for _ in 0..<2 {
      for chunks in [
        try store.chunks("k", size: size, range: range),
        try memory.chunks("k", size: size, range: range),
        try folder.chunks(of: "k", size: size, range: range),
      ] {
        #expect(chunks?.count == clamped.count)
        let pieces = try await collect(chunks)
        #expect(pieces.reduce(Data(), +) == bytes[clamped])
        #expect(pieces.dropLast().allSatisfy { $0.count == size })
        #expect(pieces.count == (clamped.count + size - 1) / size)
      }
    }
    #expect(store.statistics.damaged == 0 && store.statistics.hits == 2)
  }

  @Test func missingEntriesAndFiles() async throws {
    let store = directory.cache()
    #expect(try store.chunks("k") == nil)
    try store.set("old", forKey: "k", expiry: .seconds(0), keptFor: .days(1), tags: [:])
    #expect(try store.chunks("k") == nil && store.statistics.misses == 2)
    try store.set(Data(), forKey: "empty")
    #expect(try await collect(store.chunks("empty")) == [])
    expectFailure(.notFound) { _ = try Folder(directory.url).chunks(of: "none") }
    try Folder(directory.url).subfolder("d").create()
    #expect(throws: StorageError.self) { try Folder(directory.url).chunks(of: "d") }
  }

  @Test func anEntryThatIsReplacedOrRemovedIsReadToItsEnd() async throws {
    let store = directory.cache()
    try store.set(bytes, forKey: "k")
    var iterator = try #require(try store.chunks("k", size: 100_000)).makeAsyncIterator()
    var read = try #require(try await iterator.next())
    try store.set("new", forKey: "k")
    read += try #require(try await iterator.next())
    try store.removeAll()
    read += try #require(try await iterator.next())
    #expect(try await iterator.next() == nil && read == bytes)
  }

  /// A flipped byte, or a shorter file, ends the sequence with an error before its last piece.
  @Test(arguments: [0, 1, 99_999, 150_000, 299_999], [nil, 200..<1_000])
  func damageIsAnErrorBeforeTheLastPiece(position: Int, range: Range<Int>?) async throws {
    for isCut in [false, true] {
      let store = directory.cache()
      try store.set(bytes, forKey: "k")
      let path = try store.payload("k")
      let status = try #require(try FileSystem.status(path, withTimes: true))
      var damaged = try Bytes.read(path)
      damaged[position] ^= 1
      let reader = directory.cache()
      let chunks = try #require(try reader.chunks("k", size: 100_000, range: range))
      try Bytes.write(isCut ? Array(damaged[..<position]) : damaged, to: path)
      try File(path, .readWrite).setTimes(accessed: status.accessed, modified: status.modified)
      var count = 0
      let error = await #expect(throws: StorageError.self) {
        for try await piece in chunks { count += piece.count }
      }
      #expect(error?.code == .damaged && count < chunks.count)
      #expect(try directory.cache().get("k") == nil)
    }
  }

  @Test func cancellationEndsThePass() async throws {
    let store = directory.cache()
    try store.set(bytes, forKey: "k")
    let chunks = try #require(try store.chunks("k", size: 10))
    let count = Locked(0)
    let task = Task {
      for try await _ in chunks {
        if count.increment() == 10 { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(count.withLock { $0 } == 10)
  }

  @Test func onePieceIsReadAheadButNotOfTheFirst() async throws {
    let folder = Folder(directory.file("files"))
    try folder.save(bytes, as: "k")
    let reads = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .read { _ = reads.increment() }
      return .proceed
    })
    try await FaultPlan.$current.withValue(plan) {
      var iterator = try folder.chunks(of: "k", size: 1_000).makeAsyncIterator()
      for (taken, read) in [(1, 1), (2, 3), (3, 4)] {
        _ = try #require(try await iterator.next())
        try await eventually("\(read) reads for \(taken) pieces") {
          reads.withLock { $0 } >= read
        }
        // Blocking work begins in order, so a further read would have begun.
        for _ in 0..<20 { try await BlockingWork.run {} }
        #expect(reads.withLock { $0 } == read)
      }
    }
  }

  /// The thread that reads does not notice at once, but the caller does.
  @Test func aWaitingCallerIsCancelledWhileThePieceIsRead() async throws {
    let folder = Folder(directory.file("files"))
    try folder.save(bytes, as: "k")
    let isReading = Locked(false)
    let mayRead = DispatchSemaphore(value: 0)
    let plan = FaultPlan(decide: { event in
      if event.call == .read {
        isReading.withLock { $0 = true }
        mayRead.wait()
        mayRead.signal()
      }
      return .proceed
    })
    let pieces = try folder.chunks(of: "k", size: 100_000)
    let task = Task {
      try await FaultPlan.$current.withValue(plan) {
        var count = 0
        for try await piece in pieces { count += piece.count }
        return count
      }
    }
    try await eventually("the piece is read") { isReading.withLock { $0 } }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    mayRead.signal()
    #expect(try await collect(pieces).reduce(Data(), +) == bytes)
  }

  @Test func aPieceThatDoesNotFitIntoMemoryIsAnError() async throws {
    let memory = try TemporaryDirectory(isQuick: true)
    let file = try File(memory.file("sparse").path, .create)
    // Other file systems have smaller files.
    guard ftruncate(file.descriptor, 1 << 60) == 0 else { return }
    let chunks = try memory.files.chunks(of: "sparse", size: .max)
    await #expect {
      for try await _ in chunks {}
    } throws: {
      ($0 as? StorageError)?.code == .system(ENOMEM)
    }
  }

  @Test func aFailingReadEndsThePassAfterThePiecesBefore() async throws {
    let folder = Folder(directory.file("files"))
    try folder.save(bytes, as: "k")
    let reads = Locked(0)
    let plan = FaultPlan(decide: { event in
      event.call == .read && reads.increment() == 3 ? .fail(EIO) : .proceed
    })
    try await FaultPlan.$current.withValue(plan) {
      var iterator = try folder.chunks(of: "k", size: 100_000).makeAsyncIterator()
      #expect(try await iterator.next()?.count == 100_000)
      #expect(try await iterator.next()?.count == 100_000)
      await #expect(throws: StorageError.self) { try await iterator.next() }
      #expect(try await iterator.next() == nil && reads.withLock { $0 } == 3)
    }
  }

  /// The pieces of a large entry use few buffers in turn.
  @Test(.multiprocess) func memoryIsBoundedByThePiece() async throws {
    let size = Coverage.count(sample: 32, complete: 1_024) << 20
    let store = directory.ownCache("x")
    let large = directory.file("large")
    #expect(FileManager.default.createFile(atPath: large.path, contents: nil))
    try FileHandle(forWritingTo: large).truncate(atOffset: UInt64(size))
    try store.set(contentsOf: large, forKey: "k")
    try FileManager.default.removeItem(at: large)
    var addresses: Set<UInt> = []
    var count = 0
    for try await piece in try #require(try store.chunks("k")) {
      count += piece.count
      addresses.insert(piece.withUnsafeBytes { UInt(bitPattern: $0.baseAddress) })
    }
    #expect(count == size && addresses.count <= 3)
    let said = try Peer.start(directory, "cache-read-chunks", "k").finish()
    let growth = try #require(Int(said.dropLast()), "\(said)")
    #expect(growth < 8 << 20)
    print("proof: chunks: \(size >> 20) MiB read twice in \(growth >> 10) KiB of memory")
  }
}
