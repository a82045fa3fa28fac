// Tasks that follow changes.
import Foundation

struct Watchers {
  private let tasks: [Task<Void, Never>]

  /// Returns when each task has seen a change, so that what it watches is active.
  ///
  /// - Parameters:
  ///   - change: Makes a change.
  ///   - follow: Passes on each change until its task is cancelled.
  init(
    count: Int = 1, change: () -> Void,
    follow: @escaping @Sendable (_ hasSeen: @Sendable () -> Void) async -> Void
  ) throws {
    let seen = (0..<count).map { _ in DispatchSemaphore(value: 0) }
    tasks = seen.map { seen in Task.detached { await follow { seen.signal() } } }
    for seen in seen {
      var isActive = false
      for _ in 0..<100 where !isActive {
        change()
        isActive = seen.wait(timeout: .now() + .milliseconds(50)) == .success
      }
      guard isActive else {
        cancel()
        throw Failure("no change was seen within five seconds")
      }
    }
  }

  func cancel() { for task in tasks { task.cancel() } }
}
