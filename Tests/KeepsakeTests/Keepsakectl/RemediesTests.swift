import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsakectl

/// What keepsakectl prints never tells its user to call Swift.
@Suite struct RemediesTests {
  @Test func noSentenceOfTheLibraryNamesASwiftCall() throws {
    var count = 0
    for directory in ["Sources/Keepsake", "Sources/KeepsakeValkey"] {
      let root = Repository.file(directory)
      for case let path as String in try #require(
        FileManager.default.enumerator(atPath: root.path))
      where path.hasSuffix(".swift") {
        let source = try String(contentsOf: root.appending(path: path), encoding: .utf8)
        // Without comments and attributes, and with literals in one piece.
        let code = source.replacing(/(?m)^ *(\/\/|@available).*$/, with: "")
          .replacing(/"\s*\+ "/, with: "")
        for literal in code.matches(of: /"((?:\\.|[^"\\\n])*)"/) where literal.1.contains(" ") {
          let text = Remedies.withoutSwift(String(literal.1))
          if text != literal.1 { count += 1 }
          let call = text.firstMatch(
            of: /(SecureVault|StorageSystem|ValkeyBacking|DiskCache)\.\w|\bunlock\(|\.replicas/)
          // Names of the library's own types in traps and of calls in C are no advice.
          #expect(call == nil || text.contains("precondition"), "\(path): \(text)")
        }
      }
    }
    #expect(count >= 20, "the sentences of the library")
  }

  @Test func namesTheCommandInstead() {
    let error = StorageError(
      .locked, operation: "open", reason: "lock() has closed the vault",
      remedy: "Call SecureVault.unlock(passphrase:) first.")
    #expect(
      Problem(error).line == "the vault was locked. Run the command at a terminal, or pass the "
        + "passphrase with --passphrase-fd.")
  }
}
