internal import KeepsakeLibc

extension timespec {
  init(nanoseconds: Int64) {
    let (seconds, rest) = nanoseconds.quotientAndRemainder(dividingBy: WallClock.second)
    // Before 1970 the rest is negative, which system calls reject.
    let borrowsSecond = rest < 0
    self.init(
      tv_sec: Int(seconds) - (borrowsSecond ? 1 : 0),
      tv_nsec: Int(borrowsSecond ? rest + WallClock.second : rest))
  }

  /// The limits of `Int64` for times beyond them.
  var nanoseconds: Int64 {
    let (seconds, isTooLarge) = Int64(tv_sec).multipliedReportingOverflow(by: WallClock.second)
    if isTooLarge { return tv_sec < 0 ? .min : .max }
    let (sum, overflow) = seconds.addingReportingOverflow(Int64(tv_nsec))
    return overflow ? .max : sum
  }
}

/// Arithmetic on times and sizes, which may be any number in a file.
extension SignedInteger where Self: FixedWidthInteger {
  package func addingSaturated(_ other: Self) -> Self {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? (other < 0 ? .min : .max) : sum
  }

  package func subtractingSaturated(_ other: Self) -> Self {
    let (difference, overflow) = subtractingReportingOverflow(other)
    return overflow ? (other < 0 ? .max : .min) : difference
  }
}
