#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The time of day as files have it, in nanoseconds since 1970; it can be set back and forth.
enum WallClock {
  static let second: Int64 = 1_000_000_000

  static var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
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
