import Foundation

/// The results of `body` on this many threads, which may block.
@discardableResult
func onThreads<R: Sendable>(
  _ count: Int, _ body: @escaping @Sendable (Int) -> R
) async -> [R] {
  await withTaskGroup(of: R.self) { group in
    for number in 0..<count {
      group.addTask {
        await withCheckedContinuation { continuation in
          Thread.detachNewThread { continuation.resume(returning: body(number)) }
        }
      }
    }
    return await group.reduce(into: []) { $0.append($1) }
  }
}
