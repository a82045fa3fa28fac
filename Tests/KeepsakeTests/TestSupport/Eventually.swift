import Testing

/// Expects `condition` to become true within a minute, without blocking a thread of the pool.
func eventually(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () throws -> Bool, isolation: isolated (any Actor)? = #isolation
) async throws {
  let deadline = ContinuousClock.now + .seconds(60)
  while try !condition() {
    guard ContinuousClock.now < deadline else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    try await Task.sleep(for: .milliseconds(2))
  }
}
