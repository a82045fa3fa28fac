public import Keepsake

extension StorageSystem {
  /// Runs `body` later, as far as caches can tell, so that a test of an expiry need not wait.
  ///
  /// ```swift
  /// @Test(.temporaryStorage) func theHomePageExpires() async throws {
  ///   DiskCache.set("page", forKey: "home", expiry: .minutes(5))
  ///   await StorageSystem.withClock(advancedBy: .minutes(6)) {
  ///     #expect(!DiskCache.contains("home"))
  ///   }
  /// }
  /// ```
  ///
  /// The clock goes on from there. It is advanced for `body`, the tasks that it creates and the
  /// work in the background that the library starts for them, so tests can run in parallel, and
  /// calls inside each other add up. Detached tasks and dispatch queues use the system's clock. The
  /// clock of the app's own code, such as `Date.now`, stays as it is.
  ///
  /// - Parameters:
  ///   - duration: How far to advance the clock. A negative duration sets it back.
  ///   - isolation: The isolation in which `body` runs, by default the caller's.
  ///   - body: The code to run.
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws.
  @discardableResult
  public static func withClock<R>(
    advancedBy duration: Duration, isolation: isolated (any Actor)? = #isolation,
    _ body: () async throws -> R
  ) async rethrows -> R {
    try await WallClock.advanced(by: duration, isolation: isolation, body)
  }
}
