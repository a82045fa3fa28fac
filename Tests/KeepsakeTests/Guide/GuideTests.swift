import Foundation
import Testing

/// The article "Coming from other libraries": what it says to write is what the tests beside this
/// one run.
@Suite struct GuideTests {
  @Test func everyCallOfTheGuideIsInATest() throws {
    let guide = try Guide(article: Guide.article())
    #expect(guide.sections.map(\.title) == Guide.tests.map(\.key))
    for section in guide.sections {
      let source = try Guide.source(testing: section)
      #expect(section.calls.filter { !source.contains($0) } == [], "\(section.title)")
    }
  }

  /// As an app would be: without what only this package sees.
  @Test(arguments: Guide.tests.map(\.value))
  func runsWhatAnAppCanWrite(test: String) throws {
    #expect(try !Guide.file(test).contains("@testable"))
  }

  @Test func everyRowHasACallThatFitsALine() throws {
    let guide = try Guide(article: Guide.article())
    #expect(guide.sections.flatMap(\.rows).count > 150)
    for section in guide.sections {
      #expect(!section.rows.isEmpty, "\(section.title)")
      for row in section.rows {
        #expect(row.cells.count == 2 && !row.calls.isEmpty, "\(row.text)")
        #expect(row.calls.allSatisfy { $0.count <= 90 }, "\(row.text)")
      }
    }
  }

  @Test(arguments: [
    "| `old.purge()` | `Defaults.purge()` |",
    "| `old.purge()` | `Defaults.keys()`, `Defaults.purge()` |",
    "```swift\nDefaults.purge()   // nothing tests it\n```",
  ])
  func noticesACallWithoutATest(addition: String) throws {
    let anchor = "\n## A facade"
    let article = try Guide.article().replacing(anchor, with: "\n\(addition)\n\(anchor)")
    let section = try #require(try Guide(article: article).sections.first)
    let source = try Guide.source(testing: section)
    #expect(section.calls.filter { !source.contains($0) } == [Code("Defaults.purge()")])
  }

  @Test func aCommentIsNoTest() {
    let source = Code(source: "f(\n  1)\n// g()\n  /// `h()`\n")
    #expect(source.contains(Code("f(1)")))
    #expect(!source.contains(Code("g()")) && !source.contains(Code("h()")))
  }
}

/// What the article says to write.
private struct Guide {
  struct Row {
    let text: String
    let cells: [String]

    /// The code of the right-hand cell; a link to a symbol is none.
    var calls: [Code] {
      let right = (cells.last ?? "").replacing(/``[^`]+``/, with: "")
      return right.matches(of: /`([^`]+)`/).map { Code($0.1) }
    }
  }

  struct Section {
    let title: String
    var rows: [Row] = []
    /// The lines of code between the tables.
    var examples: [Code] = []

    var calls: [Code] { rows.flatMap(\.calls) + examples }
  }

  var sections: [Section] = []

  /// Which file runs the calls of which section.
  static let tests: KeyValuePairs = [
    "Foundation's UserDefaults": "ComingFromUserDefaultsTests",
    "A facade for settings, keychain and cache": "ComingFromFacadesTests",
    "A storage protocol": "ComingFromProtocolsTests",
    "Readable and writable storages": "ComingFromDiskStoragesTests",
    "One interface to all storages": "ComingFromUnifiedStoragesTests",
    "What Linux does not have": "ComingFromApplePlatformsTests",
  ]

  private static let folder = URL(filePath: #filePath).deletingLastPathComponent()

  static func article() throws -> String {
    let place = "../../../Sources/Keepsake/Keepsake.docc/ComingFrom.md"
    return try String(contentsOf: folder.appending(path: place), encoding: .utf8)
  }

  static func file(_ test: String) throws -> String {
    try String(contentsOf: folder.appending(path: "\(test).swift"), encoding: .utf8)
  }

  static func source(testing section: Section) throws -> Code {
    let test = try #require(tests.first { $0.key == section.title }, "no tests: \(section.title)")
    return try Code(source: file(test.value))
  }

  init(article: String) throws {
    var isInCode = false
    for line in article.split(separator: "\n") {
      if line.hasPrefix("```") {
        isInCode.toggle()
      } else if isInCode {
        let code = Code(line.replacing(/\s+\/\/ .*$/, with: ""))
        sections[sections.count - 1].examples.append(code)
      } else if line.hasPrefix("## "), line != "## Overview" {
        sections.append(Section(title: String(line.dropFirst(3))))
      } else if line.hasPrefix("| "), !line.hasPrefix("| What you write") {
        let cells = line.dropFirst(2).dropLast(2).split(separator: " | ").map(String.init)
        sections[sections.count - 1].rows.append(Row(text: String(line), cells: cells))
      }
    }
  }
}
