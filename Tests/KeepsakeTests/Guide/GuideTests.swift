import Foundation
import Testing

@testable import KeepsakeTestSupport

/// The article "Coming from other libraries": the tests beside this one run every call in it.
@Suite struct GuideTests {
  @Test func everyCallIsInATest() throws {
    for section in try Guide(article: Guide.article()).sections {
      #expect(try section.callsWithoutATest() == [], "\(section.title)")
    }
  }

  @Test func everyRowHasAShortCall() throws {
    let guide = try Guide(article: Guide.article())
    #expect(guide.sections.flatMap(\.rows).count > 120)
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
    "```swift\nDefaults.purge()   // not in a test\n```",
  ])
  func callsWithoutATestAreFound(addition: String) throws {
    let anchor = "\n## Defaults, the package"
    let article = try Guide.article().replacing(anchor, with: "\n\(addition)\n\(anchor)")
    let section = try #require(try Guide(article: article).sections.first)
    #expect(try section.callsWithoutATest() == [Code("Defaults.purge()")])
  }

  @Test func commentsDoNotCountAsTests() {
    let source = Code(source: "f(\n  1)\n// g()\n  /// `h()`\n")
    #expect(source.contains(Code("f(1)")))
    #expect(!source.contains(Code("g()")) && !source.contains(Code("h()")))
  }
}

/// The calls in the article.
private struct Guide {
  struct Row {
    let text: String
    let cells: [String]

    /// The code in the right-hand cell, without links to symbols.
    var calls: [Code] {
      let right = (cells.last ?? "").replacing(/``[^`]+``/, with: "")
      return right.matches(of: /`([^`]+)`/).map { Code($0.1) }
    }
  }

  struct Section {
    let title: String
    var rows: [Row] = []
    /// The lines of code outside the tables.
    var examples: [Code] = []

    func callsWithoutATest() throws -> [Code] {
      let tests = try Code.tests.get()
      return (rows.flatMap(\.calls) + examples).filter { call in
        !tests.contains { $0.contains(call) }
      }
    }
  }

  var sections: [Section] = []

  static func article() throws -> String {
    let path = "Sources/Keepsake/Keepsake.docc/ComingFrom.md"
    return try String(contentsOf: Repository.file(path), encoding: .utf8)
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
