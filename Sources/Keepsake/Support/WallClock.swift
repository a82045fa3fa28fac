internal import KeepsakeLibc
internal import Synchronization

/// The time of day in nanoseconds since 1970, as in file times. It can be set back.
package enum WallClock {
  package static let second: Int64 = 1_000_000_000

  package static var now: Int64 {
    #if DEBUG
    if let fixed { return fixed }
    #endif
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    if !hasBeenAdvanced.load(ordering: .relaxed) { return time.nanoseconds }
    return time.nanoseconds.addingSaturated(advance)
  }

  #if DEBUG
  /// The time to which a test has set the clock, which then stands still.
  @TaskLocal static var fixed: Int64?
  #endif

  /// How far a test has advanced the clock. Reading it is slow, so it is only read once any test
  /// has done so.
  @TaskLocal private static var advance: Int64 = 0
  private static let hasBeenAdvanced = Atomic(false)

  /// Wraps `body` so that on another thread it sees the clock of the current task.
  static func carryingAdvance<R>(_ body: @escaping @Sendable () -> R) -> @Sendable () -> R {
    if !hasBeenAdvanced.load(ordering: .relaxed) { return body }
    let advance = advance
    return { $advance.withValue(advance, operation: body) }
  }

  /// Runs `body` with the clock advanced, or put back if `duration` is negative. It goes on.
  package static func advanced<R>(
    by duration: Duration, isolation: isolated (any Actor)?, _ body: () async throws -> R
  ) async rethrows -> R {
    hasBeenAdvanced.store(true, ordering: .relaxed)
    let advance = advance.addingSaturated(duration.saturatedNanoseconds)
    return try await $advance.withValue(advance, operation: body, isolation: isolation)
  }
}
