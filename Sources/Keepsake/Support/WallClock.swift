internal import KeepsakeLibc

/// The time of day in nanoseconds since 1970, as in file times. It can be set back.
package enum WallClock {
  package static let second: Int64 = 1_000_000_000

  package static var now: Int64 {
    #if DEBUG
    if let fixed { return fixed }
    #endif
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return time.nanoseconds
  }

  #if DEBUG
  /// The time to which a test has set the clock, which then stands still.
  @TaskLocal static var fixed: Int64?
  #endif
}
