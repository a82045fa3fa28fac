import Foundation

@testable import KeepsakeTestSupport

/// Source code, compared without white space and semicolons, which a formatter changes.
struct Code: Equatable, CustomStringConvertible {
  private let text: String
  let description: String

  init(_ code: some StringProtocol) {
    text = String(code.filter { !$0.isWhitespace && $0 != ";" })
    description = String(code)
  }

  /// The code of a file, without comment lines.
  init(source: String) {
    let lines = source.split(separator: "\n").filter {
      !$0.drop(while: \.isWhitespace).hasPrefix("//")
    }
    self.init(lines.joined(separator: "\n"))
  }

  var count: Int { description.count }
  func contains(_ other: Code) -> Bool { text.contains(other.text) }

  /// The code after the first occurrence of `other`, or nil if there is none.
  func after(_ other: Code) -> Code? {
    text.range(of: other.text).map { Code(text[$0.upperBound...]) }
  }

  static func == (one: Code, other: Code) -> Bool { one.text == other.text }

  /// The files of tests that run the code in the documents. They import the library as apps do,
  /// which cannot use internal declarations.
  static let tests = Result {
    try [
      "KeepsakeTests/Guide", "KeepsakeValkeyTests/Guide", "Clients/Recipes/Sources/Recipes",
      "Clients/Recipes/Sources/tool",
    ].flatMap {
      try FileManager.default.contentsOfDirectory(
        at: Repository.file("Tests/\($0)"), includingPropertiesForKeys: nil)
    }
    .map { try String(contentsOf: $0, encoding: .utf8) }
    .filter { $0.contains(/(?m)^import Keepsake$/) && !$0.contains("@testable import Keepsake\n") }
    .map { Code(source: $0) }
  }
}
