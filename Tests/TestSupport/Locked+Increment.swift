@testable import Keepsake

extension Locked<Int> {
  /// Adds one, and returns the sum.
  func increment() -> Int {
    withLock { count in
      count += 1
      return count
    }
  }
}
