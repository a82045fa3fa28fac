import Foundation
import Testing

@testable import KeepsakeTestSupport

/// What the examples have in common as command-line programs.
///
/// The quickstart is not one of them: it leaves out options and exit codes to stay short.
@Suite(.ownThread, .singleThreaded) struct ExampleTests {
  /// The directories. Programs are called `keepsake-…`, because an app that depends on the
  /// library could not have a target of the same name.
  static let names = [
    "textstats", "tokens", "notes", "timer", "shelf", "server", "pages", "shop",
  ]

  @Test(arguments: names) func printsHelpAndRefusesWrongUse(name: String) throws {
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

  @Test(arguments: names) func failsWhenOutputCannotBeWritten(name: String) throws {
    let run = try Example("keepsake-\(name)", in: try TemporaryDirectory()).run(
      "--help", output: "/dev/full")
    #expect(run.failed(74, "The output cannot be written."), "\(run)")
  }

  @Test(arguments: names) func headerCommentShowsEveryVerbAndOption(name: String) throws {
    let header = try headerComment(of: name)
    let shown = Set(header.matches(of: /[a-z-]+/).map { String($0.output) })
    let usage = try Example("keepsake-\(name)", in: try TemporaryDirectory()).run("--help").text
    let words = usage.matches(of: /--[a-z-]+|\b[a-z-]+\b(?= [A-Z])/).map { String($0.output) }
    for word in words { #expect(shown.contains(word), "\(word)") }
  }

  @Test(arguments: names + ["quickstart"])
  func headerCommentShowsHowToRunIt(name: String) throws {
    #expect(try headerComment(of: name).contains("swift run keepsake-\(name)"))
  }

  private func headerComment(of name: String) throws -> String {
    let file = Repository.file("Examples/\(name)/main.swift")
    let source = try String(contentsOf: file, encoding: .utf8)
    return source.split(separator: "\n").prefix { $0.hasPrefix("//") }.joined(separator: "\n")
  }
}

extension Example {
  /// Runs it, expects that it succeeds and reports nothing, and returns what it prints.
  @discardableResult
  func output(
    _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    let run = try run(arguments)
    #expect(run.status == 0 && run.errors.isEmpty, "\(run)", sourceLocation: sourceLocation)
    return run.text
  }
}
