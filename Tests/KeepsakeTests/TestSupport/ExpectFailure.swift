import Keepsake
import Testing

/// Expects `body` to throw a ``StorageError`` of that code, and returns it.
@discardableResult
func expectFailure(
  _ code: StorageError.Code, sourceLocation: SourceLocation = #_sourceLocation,
  _ body: () throws -> Void
) -> StorageError? {
  let error = #expect(throws: StorageError.self, sourceLocation: sourceLocation) { try body() }
  #expect(error?.code == code, sourceLocation: sourceLocation)
  return error
}
