// Entries that are stored piece by piece.
import Checks
import FoundationEssentials
import Keepsake

func body(_ count: Int) -> AsyncStream<Data> {
  AsyncStream { continuation in
    for _ in 0..<count { continuation.yield(Data([7])) }
    continuation.finish()
  }
}

/// A sequence that is not `Sendable`, unless it belongs to an actor.
final class Countdown: AsyncSequence, AsyncIteratorProtocol {
  private var rest: [UInt8]
  init(_ rest: [UInt8]) { self.rest = rest }
  func makeAsyncIterator() -> Countdown { self }

  func next() async throws -> [UInt8]? {
    await Task.yield()
    return rest.popLast().map { [$0] }
  }
}

extension Caller {
  func checkChunks() async throws {
    try await DiskCache.shared.set(chunks: body(3), forKey: "film", total: 3) { bytes, total in
      count = 100 * bytes / (total ?? 1)
    }
    check(count == 100)
    try await DiskCache.named("Films").set(chunks: body(1), forKey: "film", expiry: .hours(1))
    var steps: [Int] = []
    try await DiskCache.shared.set(chunks: Countdown([3, 2, 1]), forKey: "count") { bytes, total in
      steps.append(bytes)
      self.count += 1
      check(total == nil)
    }
    check(steps == [1, 2, 3] && count == 103 && DiskCache.get("count") == Data([1, 2, 3]))
    let upper = body(2).map { $0.map { $0 + 1 } }
    try await DiskCache.shared.set(chunks: upper, forKey: "upper", durable: true)
    check(DiskCache.get("upper"), is: Data([8, 8]))
    let empty = AsyncThrowingStream<[UInt8], Error> { $0.finish() }
    try await images.set(chunks: empty, forKey: "empty", expiry: .idle(.minutes(30)))
    check(try images.get("empty"), is: Data())
  }
}
