import Testing

@testable import Keepsake

/// Expects `body` to throw a ``StorageError`` of that code, whose reason contains these words, and
/// returns it.
@discardableResult
func expectFailure(
  _ code: StorageError.Code, reason: String = "",
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) -> StorageError? {
  let error = #expect(throws: StorageError.self, sourceLocation: sourceLocation) { try body() }
  let comment: Comment = "\(String(describing: error))"
  #expect(error?.code == code, comment, sourceLocation: sourceLocation)
  let hasReason = reason.isEmpty || error?.reason?.contains(reason) == true
  #expect(hasReason, comment, sourceLocation: sourceLocation)
  return error
}
