import Foundation
import Testing

@testable import KeepsakeTestSupport

/// README and the articles: a test runs every snippet; every link, program and test that they name
/// exists; and the errors that they quote are current.
@Suite(.singleThreaded) struct SnippetTests {
  @Test(arguments: Document.all.filter { $0.name != "ComingFrom" })
  func everyLineOfASnippetIsInATest(document: Document) throws {
    let tests = try Code.tests.get()
    let count = try document.text().matches(of: /(?m)^ *```swift/).count
    #expect(try document.snippets().count == count)
    for snippet in try document.snippets() where !snippet.isManifest && !snippet.isPartOfManifest {
      let isInATest = tests.contains { snippet.missingLines(in: $0) == [] }
      #expect(isInATest, "\(snippet.lines)")
    }
  }

  @Test func theDocumentsHaveSnippets() throws {
    #expect(try Document.all.count { try !$0.snippets().isEmpty } >= 15)
  }

  @Test func missingLinesAreFound() {
    let code = Code(source: "let a = 1\nf(\n  a)\n// g()\nlet b = 2")
    func missing(_ text: String) -> [String] { Snippet(text: text).missingLines(in: code) }
    #expect(missing("let a = 1     // a comment\n\nf(a)\nlet b = 2") == [])
    #expect(missing("let a = 1\ng()") == ["g()"])
    #expect(missing("f(a)\nlet a = 1") == ["let a = 1"])
  }

  // MARK: Manifests

  /// Runs `swift package` without what its processes share: it leaves lock files in the temporary
  /// directory, and prints a warning if another process uses the cache of manifests.
  private static func runPackage(
    _ command: String, at path: String, temporary: TemporaryDirectory
  ) async throws -> (status: Int32, output: String) {
    try await Command.run(
      ["swift", "package", "--package-path", path, "--manifest-cache", "none", command],
      environment: ["TMPDIR": temporary.path])
  }

  @Test(arguments: Document.all)
  func manifestsAreValid(document: Document) async throws {
    for snippet in try document.snippets() where snippet.isManifest {
      let directory = try TemporaryDirectory()
      try Data(snippet.text.utf8).write(to: directory.file("Package.swift"))
      let dump = try await Self.runPackage(
        "dump-package", at: directory.path, temporary: directory)
      #expect(dump.status == 0 && dump.output.contains("\"Keepsake\""), "\(dump.output)")
    }
  }

  /// Without a test target, and with the one in the article on tests.
  @Test(arguments: [false, true])
  func theFirstManifestFindsItsProducts(hasTests: Bool) async throws {
    var manifest = try #require(
      try Document.gettingStarted.snippets().first(where: \.isManifest)?.text)
    var sources = ["Sources/mytool/main.swift"]
    if hasTests {
      let target = try #require(try Document.testing.snippets().first(where: \.isTestTarget)?.text)
      let end = try #require(manifest.range(of: "\n  ]\n)", options: .backwards))
      manifest.insert(contentsOf: "\n\(target)", at: end.lowerBound)
      sources.append("Tests/mytoolTests/Tests.swift")
    }
    // The program is in a directory next to the repository, as the article says.
    let directory = try TemporaryDirectory()
    let files = FileManager.default
    try files.createSymbolicLink(
      at: directory.file("Keepsake"), withDestinationURL: Repository.url)
    for source in sources {
      let file = directory.file("mytool/\(source)")
      try files.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data("import Keepsake\n".utf8).write(to: file)
    }
    try Data(manifest.utf8).write(to: directory.file("mytool/Package.swift"))
    let package = directory.file("mytool").path
    let tree = try await Self.runPackage(
      "show-dependencies", at: package, temporary: directory)
    #expect(tree.status == 0 && !tree.output.contains("warning"), "\(tree.output)")
  }

  @Test func theDependencyLinesOfReadmeAreInThatManifest() throws {
    let lines = try #require(try Document.readme.snippets().first(where: \.isPartOfManifest))
    let manifest = try #require(try Document.gettingStarted.snippets().first(where: \.isManifest))
    #expect(lines.missingLines(in: Code(source: manifest.text)) == [])
  }

  // MARK: Links, programs and tests

  /// A repository browser follows file names; `.ci/documentation` turns them into links of DocC.
  @Test(arguments: Document.all)
  func linksLeadToFilesAndHeadings(document: Document) throws {
    #expect(try !document.text().contains("<doc:"))
    for link in try document.text().matches(of: /\]\(([^)<]+)\)/).map(\.1)
    where !link.hasPrefix("http") {
      let parts = link.split(separator: "#", omittingEmptySubsequences: false)
      let file =
        parts[0].isEmpty
        ? document.url
        : document.url.deletingLastPathComponent().appending(path: String(parts[0]))
      guard let text = try? String(contentsOf: file, encoding: .utf8) else {
        Issue.record("there is no file \(link)")
        continue
      }
      guard parts.count > 1 else { continue }
      let headings = text.matches(of: /(?m)^#+ (.+)$/).map {
        $0.1.lowercased().replacing(" ", with: "-")
      }
      #expect(headings.contains(parts[1].lowercased()), "\(link)")
    }
  }

  @Test(arguments: Document.all)
  func programsToRunExist(document: Document) throws {
    for program in try document.text().matches(of: /swift run ([a-z][a-z-]+)/).map(\.1) {
      #expect(
        FileManager.default.fileExists(atPath: Peer.builtProduct(String(program)).path),
        "\(program)")
    }
  }

  @Test(arguments: Document.all)
  func testsThatAreNamedExist(document: Document) throws {
    let text = try document.text()
    // Every name that ends in "Tests", and the filters in the table of Reliability.
    var names = text.matches(of: /`(\w+Tests)`/).map(\.1)
    if document.name == "Reliability" {
      for cells in text.matches(of: /(?m)^\| [^|]+ \| [0-9a,][^|]+ \| ([^|]+) \|/).map(\.1) {
        names += cells.matches(of: /`(\w+)`/).map(\.1)
      }
      #expect(names.count > 20)
    }
    let declarations = try Self.declarations.get()
    for name in names {
      #expect(declarations.contains { $0.contains(name) }, "\(name)")
    }
  }

  /// The names of all suites and functions in the tests.
  private static let declarations = Result {
    try ["Tests/KeepsakeTests", "Tests/KeepsakeValkeyTests"].map { try sources(in: $0) }
      .joined().matches(of: /(?:struct|class|func) (\w+)/).map(\.1)
  }

  /// The directories in the tables of Contributing, and the source files in its text.
  @Test func directoriesAndFilesOfContributingExist() throws {
    let text = try #require(Document.all.first { $0.name == "Contributing" }).text()
    let paths = [
      "", "Sources/", "Sources/Keepsake/", "Tests/", "Tests/KeepsakeTests/",
      "Tests/KeepsakeValkeyTests/",
    ]
    let rows = text.matches(of: /(?m)^\| (`.+?) \|/).map(\.1)
    for name in rows.flatMap({ $0.matches(of: /`([^`]+)`/).map(\.1) }) {
      #expect(
        paths.contains { FileManager.default.fileExists(atPath: Repository.file($0 + name).path) },
        "\(name)")
    }
    let files = try FileManager.default.subpathsOfDirectory(
      atPath: Repository.file("Sources/Keepsake").path)
    for name in text.matches(of: /`([\w+]+\.swift)`/).map(\.1) {
      #expect(files.contains { $0.hasSuffix("/\(name)") }, "\(name)")
    }
  }

  // MARK: Errors

  @Test(arguments: Document.all)
  func quotedErrorsAreCurrent(document: Document) throws {
    let errors = try document.text().matches(
      of: /(?m)^keepsake: \S+ failed for key "\w+": ([a-z ]+)(?: \([^)]+\))?(?: at \S+)?\. (.+)$/)
    guard !errors.isEmpty else { return }
    // Long literals continue on the next line.
    let sources = try Self.sources(in: "Sources/Keepsake").replacing(/"\s+\+ "/, with: "")
    for error in errors {
      #expect(sources.contains("\"\(error.1)\""), "\(error.1)")
      #expect(sources.contains(error.2), "\(error.2)")
    }
  }

  /// The text of all Swift files in a directory of the repository.
  private static func sources(in directory: String) throws -> String {
    let path = Repository.file(directory).path
    return try FileManager.default.subpathsOfDirectory(atPath: path)
      .filter { $0.hasSuffix(".swift") }
      .map { try String(contentsOfFile: "\(path)/\($0)", encoding: .utf8) }
      .joined(separator: "\n")
  }
}
