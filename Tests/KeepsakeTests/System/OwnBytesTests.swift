import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What stores keep in memory, and share, is independent of the `Data` that it came from.
@Suite(.temporaryStorage) struct OwnBytesTests {
  private let slice = Data(0..<100)[4...]

  /// Stores `value` in all ways that keep it in memory, and returns what is read then.
  private func stored(
    _ value: Data, afterwards change: () -> Void = {}
  ) throws -> [(store: String, value: Data?)] {
    let suites: [Defaults.Suite] = [.standard, .memory]
    for suite in suites {
      try Defaults.suite(suite).set(value, forKey: "set")
      try Defaults.suite(suite).update("update", default: Data()) { $0 = value }
    }
    let cache = DiskCache.named(.memory)
    try cache.set(value, forKey: "k")
    change()
    var values = try suites.flatMap { suite in
      try ["set", "update"].map { ("\(suite) \($0)", try Defaults.suite(suite).data($0)) }
    }
    values.append(("cache", try cache.get("k")))
    return values
  }

  @Test(arguments: [5, 14, 15, 100]) func slicesAreReadFromIndexZero(end: Int) throws {
    let slice = slice[..<end]
    for (store, value) in try stored(slice) {
      #expect(value?.startIndex == 0 && value == slice, "\(store)")
    }
  }

  @Test func memoryThatTheCallerUsesAgainIsNotShared() throws {
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 1)
    defer { memory.deallocate() }
    memory.initializeMemory(as: UInt8.self, repeating: 1)
    let value = Data(
      bytesNoCopy: try #require(memory.baseAddress), count: memory.count, deallocator: .none)
    let read = try stored(value) { memory.initializeMemory(as: UInt8.self, repeating: 2) }
    for (store, value) in read { #expect(value == Data(repeating: 1, count: 100), "\(store)") }
  }

  @Test func piecesOfAValueInMemoryAreReadFromIndexZero() async throws {
    let cache = DiskCache.named(.memory)
    try cache.set(Data(0..<100), forKey: "k")
    var bytes = Data()
    for try await piece in try #require(try cache.chunks("k", size: 40)) {
      #expect(piece.startIndex == 0)
      bytes += piece
    }
    #expect(bytes == Data(0..<100))
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func fetchesThatWaitForASliceReadItFromIndexZero(_ name: DiskCache.Name) async throws {
    let store = DiskCache.named(name)
    let gate = Gate()
    async let first = store.fetch("k") {
      await gate.pass()
      return slice
    }
    try await eventually("the first call produces") { await gate.entered == 1 }
    async let second = store.fetch("k") { Data() }
    try await eventually("the second call waits") {
      InFlightFetches.shared.waiterCount(of: store) == 1
    }
    await gate.open()
    let values = try await [first, second]
    #expect(values == [slice, slice] && values[1].startIndex == 0)
  }
}
