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
}
