import Foundation
import Testing

/// Stops threads until another thread opens it.
final class ThreadGate: Sendable {
  private let semaphore = DispatchSemaphore(value: 0)

  /// Waits for ``open()``, as long as ``waitUntil(_:sourceLocation:_:)``.
  func wait() {
    if semaphore.wait(timeout: .now() + 600) == .timedOut { Issue.record("the gate stayed closed") }
    semaphore.signal()
  }

  func open() { semaphore.signal() }

  var isOpen: Bool {
    let isOpen = semaphore.wait(timeout: .now()) == .success
    if isOpen { semaphore.signal() }
    return isOpen
  }
}

/// Runs `body` on a thread of its own.
///
/// - Returns: A gate that opens when `body` has ended.
func startThread(_ body: @escaping @Sendable () -> Void) -> ThreadGate {
  let hasEnded = ThreadGate()
  Thread.detachNewThread {
    body()
    hasEnded.open()
  }
  return hasEnded
}
