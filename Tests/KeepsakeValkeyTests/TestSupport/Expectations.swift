import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// Expects an error of that code, whose reason has these words.
func expectFailure(
  _ code: StorageError.Code, reason: String = "", sourceLocation: SourceLocation = #_sourceLocation,
  _ body: () throws -> Void
) {
  do {
    try body()
    Issue.record("nothing was thrown", sourceLocation: sourceLocation)
  } catch {
    let error = error as? StorageError
    #expect(error?.code == code, "\(String(describing: error))", sourceLocation: sourceLocation)
    #expect(
      reason.isEmpty || error?.reason?.contains(reason) == true, "\(String(describing: error))",
      sourceLocation: sourceLocation)
  }
}

extension Reply {
  /// What a bulk string or a status says.
  var text: String? {
    switch self {
    case .bytes(let bytes), .status(let bytes): String(decoding: bytes, as: UTF8.self)
    default: nil
    }
  }

  var errorCode: String? {
    if case .error(let error) = self { return error.code }
    return nil
  }
}

/// Bytes that no other call has returned.
func randomBytes(_ count: Int) -> [UInt8] {
  let source = FileHandle(forReadingAtPath: "/dev/urandom")
  return Array((try? source?.read(upToCount: count)) ?? Data())
}
