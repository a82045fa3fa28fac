import Foundation

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
}
