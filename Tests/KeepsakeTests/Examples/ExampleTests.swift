import Foundation
import Testing

/// What all examples have in common, as somebody expects it of a program on a command line.
@Suite struct ExampleTests {
  /// The directories; the programs' names begin with the library's, as they would otherwise take a
  /// name from a target of an app that uses the library.
  static let names = ["quickstart", "textstats", "tokens", "notes", "timer", "shelf"]

  @Test(arguments: names) func helpIsOutputAndWrongUseAnError(name: String) throws {
    let example = Example("keepsake-\(name)", in: try TemporaryDirectory())
    let help = try example.run("--help")
    #expect(help.status == 0 && help.text.hasPrefix("usage: keepsake-\(name)"), "\(help)")
    #expect(help.errors.isEmpty, "\(help)")
    #expect(try example.run("-h").text == help.text)
    for arguments in [["--bogus"], ["--bogus", "x", "y", "z"]] {
      let wrong = try example.run(arguments)
      #expect(wrong.failed(64, help.text), "\(wrong)")
    }
  }

  @Test(arguments: names) func outputThatCannotBeWrittenIsAnError(name: String) throws {
    let run = try Example("keepsake-\(name)", in: try TemporaryDirectory()).run(
      "--help", output: "/dev/full")
    #expect(run.failed(74, "The output cannot be written."), "\(run)")
  }

  /// The comment that starts each one shows every verb and option that its usage names.
  @Test(arguments: names) func itsFirstCommentSaysHowToRunIt(name: String) throws {
    let file = Repository.file("Examples/\(name)/main.swift")
    let source = try String(contentsOf: file.standardized, encoding: .utf8)
    let header = source.split(separator: "\n").prefix { $0.hasPrefix("//") }.joined(separator: "\n")
    let shown = Set(header.matches(of: /[a-z-]+/).map { String($0.output) })
    let usage = try Example("keepsake-\(name)", in: try TemporaryDirectory()).run("--help").text
    let words = usage.matches(of: /--[a-z-]+|\b[a-z-]+\b(?= [A-Z])/).map { String($0.output) }
    #expect(header.contains("swift run keepsake-\(name)"))
    for word in words { #expect(shown.contains(word), "\(word)") }
  }
}
