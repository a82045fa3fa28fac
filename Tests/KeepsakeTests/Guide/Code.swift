import Foundation

/// Code without its white space and semicolons, which formatting changes.
struct Code: Equatable, CustomStringConvertible {
  private let text: String
  let description: String

  init(_ code: some StringProtocol) {
    text = String(code.filter { !$0.isWhitespace && $0 != ";" })
    description = String(code)
  }

  /// A file, without the lines that are comments.
  init(source: String) {
    let lines = source.split(separator: "\n").filter {
      !$0.drop(while: \.isWhitespace).hasPrefix("//")
    }
    self.init(lines.joined(separator: "\n"))
  }

  var count: Int { description.count }
  func contains(_ other: Code) -> Bool { text.contains(other.text) }

  /// What stands after the first place where the other is; nil if it is nowhere.
  func after(_ other: Code) -> Code? {
    text.range(of: other.text).map { Code(text[$0.upperBound...]) }
  }

  static func == (one: Code, other: Code) -> Bool { one.text == other.text }
}
