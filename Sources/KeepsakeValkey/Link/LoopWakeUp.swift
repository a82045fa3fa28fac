/// Whether the link's thread must be woken, so that it looks at the state again.
struct LoopWakeUp {
  /// Whether the thread looks at the state, or was woken for that.
  private var isAwake = false
  private var needsSignal = false

  /// Makes the thread look at the state again, unless it will anyway.
  mutating func wake() {
    if isAwake { return }
    (isAwake, needsSignal) = (true, true)
  }

  /// Whether the caller must signal the thread, after it has released the lock.
  mutating func takeSignal() -> Bool {
    defer { needsSignal = false }
    return needsSignal
  }

  /// The thread looks at the state.
  mutating func noteAwake() { (isAwake, needsSignal) = (true, false) }

  /// The thread has looked at the state, and will wait.
  mutating func noteWaiting() { isAwake = false }
}
