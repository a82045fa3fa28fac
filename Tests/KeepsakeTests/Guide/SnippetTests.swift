import Foundation
import Testing

/// The snippets of the documents: what they say to write is what the tests beside this one run, in
/// that order.
@Suite struct SnippetTests {
  @Test(arguments: Document.all)
  func eachLineOfASnippetIsInATest(document: Document) throws {
    let source = try document.test()
    #expect(try document.snippets().count > 1)
    for snippet in try document.snippets() where !snippet.isManifest {
      #expect(snippet.missingLines(in: source) == [], "\(document): \(snippet.lines)")
    }
  }

  /// As an app would be: without what only this package sees.
  @Test(arguments: Document.all)
  func theTestIsWhatAnAppCanWrite(document: Document) throws {
    #expect(try !document.testText().contains("@testable"))
  }

  @Test func aLineWithoutATestIsNoticed() {
    let source = Code(source: "let a = 1\nf(\n  a)\n// g()\nlet b = 2")
    func missing(_ text: String) -> [String] { Snippet(text).missingLines(in: source) }
    #expect(missing("let a = 1     // it says why\n\nf(a)\nlet b = 2") == [])
    #expect(missing("let a = 1\ng()") == ["g()"])
    #expect(missing("f(a)\nlet a = 1") == ["let a = 1"])
  }

  @Test(arguments: Document.all)
  func eachManifestIsOne(document: Document) async throws {
    for snippet in try document.snippets() where snippet.isManifest {
      let folder = try TemporaryDirectory()
      try Data(snippet.text.utf8).write(to: folder.file("Package.swift"))
      let dump = try await Command.run(
        ["swift", "package", "--package-path", folder.path, "dump-package"])
      #expect(dump.status == 0 && dump.output.contains("\"Keepsake\""), "\(dump.output)")
    }
  }

  @Test func theManifestOfReadmeFindsItsProducts() async throws {
    let manifest = try #require(try Document.readme.snippets().first(where: \.isManifest)?.text)
    // The program lies beside the repository, as the text says.
    let folder = try TemporaryDirectory()
    let files = FileManager.default
    try files.createSymbolicLink(
      at: folder.file("Keepsake"), withDestinationURL: Repository.url)
    for target in ["Sources/mytool/main.swift", "Tests/mytoolTests/Tests.swift"] {
      let file = folder.file("mytool/\(target)")
      try files.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data("import Keepsake\n".utf8).write(to: file)
    }
    try Data(manifest.utf8).write(to: folder.file("mytool/Package.swift"))
    let package = folder.file("mytool").path
    let tree = try await Command.run(
      ["swift", "package", "--package-path", package, "show-dependencies"])
    #expect(tree.status == 0 && !tree.output.contains("warning"), "\(tree.output)")
  }

  /// Links of a document to files and to headings.
  @Test(arguments: Document.all)
  func eachLinkLeadsSomewhere(document: Document) throws {
    let text = try document.text()
    let headings = text.matches(of: /(?m)^#+ (.+)$/).map {
      $0.1.lowercased().replacing(" ", with: "-")
    }
    for link in text.matches(of: /\]\(([^)]+)\)/).map(\.1) where !link.hasPrefix("http") {
      if link.hasPrefix("#") {
        #expect(headings.contains(link.dropFirst().lowercased()), "\(link)")
      } else {
        let file = document.url.deletingLastPathComponent().appending(path: link)
        #expect(FileManager.default.fileExists(atPath: file.path), "\(link)")
      }
    }
  }

  /// Programs of this package that a document says to run.
  @Test(arguments: Document.all)
  func eachProgramThatIsToBeRunIsThere(document: Document) throws {
    for program in try document.text().matches(of: /swift run ([a-z][a-z-]+)/).map(\.1) {
      #expect(
        FileManager.default.fileExists(atPath: Peer.builtProduct(String(program)).path),
        "\(program)")
    }
  }
}

/// A document whose snippets a test runs.
struct Document: CustomTestStringConvertible {
  let path: String
  let testName: String

  static let readme = Document(path: "README.md", testName: "ReadmeTests")
  static let all =
    [readme]
    + [
      "Keepsake": "OverviewTests", "Engines": "OverviewTests", "Testing": "OverviewTests",
      "SettingUp": "OverviewTests",
      "WorkingWithSettings": "WorkingWithSettingsTests",
      "WorkingWithSecrets": "WorkingWithSecretsTests",
      "WorkingWithCaches": "WorkingWithCachesTests",
      "WorkingWithFiles": "WorkingWithFilesTests",
    ].map { Document(path: "Sources/Keepsake/Keepsake.docc/\($0).md", testName: $1) }

  var testDescription: String { path }
  var url: URL { Repository.file(path) }

  func text() throws -> String { try String(contentsOf: url, encoding: .utf8) }

  func testText() throws -> String {
    let file = Repository.file("Tests/KeepsakeTests/Guide/\(testName).swift")
    return try String(contentsOf: file, encoding: .utf8)
  }

  func test() throws -> Code { Code(source: try testText()) }

  /// The blocks of Swift in it.
  func snippets() throws -> [Snippet] {
    try text().matches(of: /(?ms)^ *```swift\n(.*?)^ *```$/).map { Snippet(String($0.1)) }
  }
}

struct Snippet {
  let text: String

  init(_ text: String) { self.text = text }

  var isManifest: Bool { text.hasPrefix("// swift-tools-version") }

  /// Its lines of code, without what is said beside them.
  var lines: [String] {
    text.split(separator: "\n")
      .map { $0.replacing(/(^|\s+)\/\/ .*$/, with: "").trimmingCharacters(in: .whitespaces) }
      .filter { !$0.isEmpty }
  }

  /// What is not in the code, or not in the place where it should be; imports stand anywhere.
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
