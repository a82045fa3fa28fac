internal import KeepsakeLibc

/// The time of day as files have it, in nanoseconds since 1970; it can be set back and forth.
enum WallClock {
  static let second: Int64 = 1_000_000_000

  static var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    #if DEBUG
    return time.nanoseconds.addingSaturated(shift)
    #else
    return time.nanoseconds
    #endif
  }

  #if DEBUG
  /// How far a test has set the clock on or back.
  @TaskLocal static var shift: Int64 = 0
  #endif
}

/// Goes on a few hundred times a second, whatever is done to the clock, and costs next to nothing.
enum CoarseClock {
  /// The longest time that ``now`` stays the same, in nanoseconds: some kernels tick a hundred
  /// times a second.
  static let resolution: Int64 = 10_000_000

  static var now: Int64 {
    var time = timespec()
    #if os(Linux)
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time)
    #else
    clock_gettime(CLOCK_MONOTONIC, &time)
    #endif
    return time.nanoseconds
  }
}

extension timespec {
  init(nanoseconds: Int64) {
    let (seconds, rest) = nanoseconds.quotientAndRemainder(dividingBy: WallClock.second)
    // Before 1970 the rest is negative, which the system does not take.
    let isBorrowed = rest < 0
    self.init(
      tv_sec: Int(seconds) - (isBorrowed ? 1 : 0),
      tv_nsec: Int(isBorrowed ? rest + WallClock.second : rest))
  }

  var nanoseconds: Int64 {
    let (seconds, isTooLarge) = Int64(tv_sec).multipliedReportingOverflow(by: WallClock.second)
    if isTooLarge { return tv_sec < 0 ? .min : .max }
    let (sum, overflow) = seconds.addingReportingOverflow(Int64(tv_nsec))
    return overflow ? .max : sum
  }
}

extension Int64 {
  /// Times that files claim may be any number.
  func addingSaturated(_ other: Int64) -> Int64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? (other < 0 ? .min : .max) : sum
  }

  func subtractingSaturated(_ other: Int64) -> Int64 {
    let (difference, overflow) = subtractingReportingOverflow(other)
    return overflow ? (other < 0 ? .max : .min) : difference
  }
}
