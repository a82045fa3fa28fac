import Foundation

/// Waits until a random moment within `limit`, such as the one at which a test kills a process.
func waitForARandomMoment(upTo limit: Duration) {
  // The moment must not depend on what the process does, so there is no event to wait for.
  usleep(.random(in: 0...UInt32(limit / .microseconds(1))))
}
