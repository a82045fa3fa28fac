@testable import Keepsake

/// Runs `body` with the clock put forward, so that nothing counts as just written: neither a file
/// that a program may still be restoring, nor a temporary file that a writer may still need.
func anHourLater<Result>(_ body: () throws -> Result) rethrows -> Result {
  try WallClock.$fixed.withValue(WallClock.now + 3_600 * WallClock.second) { try body() }
}

/// Runs `body` with the clock put back, so that what it stores for less than a second has expired.
func aSecondAgo<Result>(_ body: () throws -> Result) rethrows -> Result {
  try WallClock.$fixed.withValue(WallClock.now - WallClock.second) { try body() }
}
