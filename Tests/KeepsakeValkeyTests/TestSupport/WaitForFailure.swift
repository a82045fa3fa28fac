import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Expects `body` to fail in this way sooner or later; before that, in any way or not at all.
func waitForFailure(
  _ code: StorageError.Code, reason: String = "",
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) {
  waitUntil("it did not fail: \(code) \(reason)", sourceLocation: sourceLocation) {
    do {
      try body()
      return false
    } catch {
      let error = error as? StorageError
      return error?.code == code && (reason.isEmpty || error?.reason?.contains(reason) == true)
    }
  }
}
