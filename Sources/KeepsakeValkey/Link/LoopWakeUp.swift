/// Whether the link's thread must be woken, so that it looks at the state again.
struct LoopWakeUp {
  private var isAwake = false
  private var isSignaled = false
  private var needsSignal = false

  /// Makes the thread look at the state again, unless it will anyway.
  mutating func wake() {
    guard !isAwake, !isSignaled else { return }
    isSignaled = true
    needsSignal = true
  }

  /// Whether the caller must signal the thread, after it has released the lock.
  mutating func takeSignal() -> Bool {
    defer { needsSignal = false }
    return needsSignal
  }

  /// The thread looks at the state.
  mutating func noteAwake() { (isAwake, isSignaled, needsSignal) = (true, false, false) }

  /// The thread has looked at the state, and will wait.
  mutating func noteWaiting() { isAwake = false }
}
