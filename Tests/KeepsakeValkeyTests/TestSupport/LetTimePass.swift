import Foundation

/// Blocks the thread of a slow server. Links and caches measure times with the clock of the system,
/// which a test cannot move.
func letTimePass(_ duration: Duration) {
  Thread.sleep(forTimeInterval: duration / .seconds(1))
}
