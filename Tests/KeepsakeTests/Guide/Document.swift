import Foundation
import Testing

@testable import KeepsakeTestSupport

/// A Markdown file of the repository: README, the changelog, or an article of the catalog.
struct Document: CustomTestStringConvertible {
  /// The path in the repository.
  let path: String

  static let readme = Document(path: "README.md")
  static let gettingStarted = Document(path: "\(catalogs[0])/GettingStarted.md")
  static let testing = Document(path: "\(catalogs[0])/Testing.md")
  static let workingWithSettings = Document(path: "\(catalogs[0])/WorkingWithSettings.md")

  /// All documents, so that a new article cannot be forgotten.
  static let all = [readme, Document(path: "CHANGELOG.md")] + articles

  private static let catalogs = [
    "Sources/Keepsake/Keepsake.docc", "Sources/KeepsakeValkey/KeepsakeValkey.docc",
  ]
  private static let articles = catalogs.flatMap { catalog in
    let names = try? FileManager.default.contentsOfDirectory(
      atPath: Repository.file(catalog).path)
    return (names ?? []).filter { $0.hasSuffix(".md") }.sorted()
      .map { Document(path: "\(catalog)/\($0)") }
  }

  private init(path: String) { self.path = path }

  var testDescription: String { path }
  var url: URL { Repository.file(path) }
  /// The file name without its extension.
  var name: String { url.deletingPathExtension().lastPathComponent }

  func text() throws -> String { try String(contentsOf: url, encoding: .utf8) }

  /// The blocks of Swift code.
  func snippets() throws -> [Snippet] {
    try text().matches(of: /(?ms)^ *```swift\n(.*?)^ *```$/).map { Snippet(text: String($0.1)) }
  }
}

/// A block of Swift code in a document.
struct Snippet {
  let text: String

  /// Whether this is a whole `Package.swift`.
  var isManifest: Bool { text.hasPrefix("// swift-tools-version") }

  /// Whether this is a part of a `Package.swift`.
  var isPartOfManifest: Bool { text.hasPrefix(".package(") || isTestTarget }

  /// Whether this is a test target of a `Package.swift`.
  var isTestTarget: Bool { text.hasPrefix(".testTarget(") }

  /// The lines of code, without comments.
  var lines: [String] {
    text.split(separator: "\n")
      .map { $0.replacing(/(^|\s+)\/\/ .*$/, with: "").trimmingCharacters(in: .whitespaces) }
      .filter { !$0.isEmpty }
  }

  /// The lines that `code` does not contain in this order. Imports may be anywhere.
  func missingLines(in code: Code) -> [String] {
    var rest = code
    return lines.filter { line in
      if line.hasPrefix("import ") { return !code.contains(Code(line)) }
      guard let next = rest.after(Code(line)) else { return true }
      rest = next
      return false
    }
  }
}
