internal import KeepsakeLibc

/// A cheap clock that ticks a few hundred times a second and cannot be set.
enum CoarseClock {
  /// Nanoseconds since an unspecified time.
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
