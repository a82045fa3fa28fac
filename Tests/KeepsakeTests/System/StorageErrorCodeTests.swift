import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct StorageErrorCodeTests {
  /// They are labels of metrics, and must not change.
  @Test func namesAreThoseOfTheInterface() throws {
    let interface = try String(
      contentsOf: Repository.file("Tests/PublicInterface.txt"), encoding: .utf8)
    let names = interface.matches(of: /StorageError\.Code: static (?:let|func) (\w+)/).map {
      String($0.1)
    }
    let codes: [StorageError.Code] = [
      .notFound, .alreadyExists, .wrongType, .encodingFailed, .decodingFailed, .damaged,
      .accessDenied, .locked, .wrongPassphrase, .diskFull, .timedOut, .unsupportedVersion, .misuse,
      .engineFailed, .unreachable, .outcomeUnknown, .fetchFailed, .system(5),
    ]
    #expect(codes.map(\.name).sorted() == names.sorted())
    #expect("\(StorageError.Code.diskFull), \(StorageError.Code.misuse)" == "disk full, misuse")
    #expect("\(StorageError.Code.system(5))" == "system error 5")
  }

  /// A name of a file forges no line of a log.
  @Test func descriptionIsOneLine() {
    let error = StorageError(
      .notFound, operation: "load", key: "a\nb", path: "/tmp/ü\n\u{1B}[2K\r",
      reason: "c\u{85}d", remedy: "Look.")
    #expect(
      error.description
        == #"load failed for key "a\nb": c\u{0085}d at /tmp/ü\n\u{1B}[2K\r. Look."#)
    #expect(error.path == "/tmp/ü\n\u{1B}[2K\r")
  }
}
