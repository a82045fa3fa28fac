/// The attempt of one fetch to be the only one that produces a value, on any machine.
package protocol FetchTurn: AnyObject, Sendable {
  /// nil until the producer may run.
  var production: SharedProduction? { get }
  /// Whether another machine was found to produce the value.
  var isElsewhere: Bool { get }

  /// Begins, or waits for the machine that has begun.
  ///
  /// - Parameters:
  ///   - version: The version of the entry that was found.
  ///   - waits: Whether to wait.
  /// - Returns: Whether to produce the value; if not, look again.
  /// - Throws: `CancellationError`.
  func begin(
    knowing version: EntryVersion?, waits: Bool, isolation: isolated (any Actor)?
  ) async throws -> Bool

  /// Lets another machine begin, unless the value was stored.
  func end()
}
