internal import KeepsakeLibc

/// The time of day in nanoseconds since 1970, as in file times. It can be set back.
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
  /// How far a test has set the clock forward, or back if negative.
  @TaskLocal static var shift: Int64 = 0
  #endif
}
