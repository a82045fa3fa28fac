import Foundation
import Testing

@testable import KeepsakeTestSupport

/// One of the example programs, run by a user whose files are all in a directory of the test.
struct Example {
  let path: String
  let directory: TemporaryDirectory

  /// - Parameter program: The name of the executable product.
  init(_ program: String, in directory: TemporaryDirectory) {
    path = Peer.builtProduct(program).path
    self.directory = directory
  }

  struct Run {
    let status: Int32
    /// Standard output, unless it was the terminal.
    let text: String
    let errors: String
    /// Everything that the terminal showed.
    var screen = ""

    /// Whether it failed with `message` on standard error and printed nothing else.
    func failed(_ status: Int32, _ message: String) -> Bool {
      self.status == status && text.isEmpty && errors.contains(message)
    }

    func json() throws -> Any {
      try JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)
    }

    func rows() throws -> [[String: Any]] { try #require(try json() as? [[String: Any]]) }
  }

  var environment: [String: String] {
    var variables = [
      "HOME": directory.path, "TMPDIR": directory.path, "NO_COLOR": "", "TERM": "xterm",
      "TZ": "UTC",
    ]
    for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
      variables["XDG_\(name)_HOME"] = directory.path + "/" + name.lowercased()
    }
    for name in ["CONFIGURATION", "STATE", "CACHE", "CREDENTIALS"] {
      variables["\(name)_DIRECTORY"] = ""
    }
    return variables
  }

  /// Starts it for ten minutes at most, which are enough for a test on a busy machine; the test
  /// reads its output from the child.
  func start(_ arguments: String...) throws -> Child {
    try Child("timeout", ["600", path] + arguments, environment: environment, startsSession: true)
  }

  /// Runs it without a controlling terminal.
  ///
  /// - Parameters:
  ///   - input: A line on standard input.
  ///   - output: A file to redirect standard output to.
  ///   - changes: Environment variables to add or replace.
  func run(
    _ arguments: String..., input: String? = nil, output: String? = nil,
    environment changes: [String: String] = [:]
  ) throws -> Run {
    try run(arguments, input: input, output: output, environment: changes)
  }

  func run(
    _ arguments: [String], input: String? = nil, output: String? = nil,
    environment changes: [String: String] = [:]
  ) throws -> Run {
    let log = try TemporaryDirectory(isQuick: true)
    let errors = log.file("errors")
    let target = output.map { " >\"\($0)\"" } ?? ""
    // Through a shell, because a child has only one output pipe. The limit on file sizes protects
    // the machine from a program that writes without end.
    let command = "ulimit -f 65536; exec \"$0\" \"$@\" 2>\"\(errors.path)\"\(target)"
    let child = try Child(
      "/bin/sh", ["-c", command, path] + arguments,
      environment: environment.merging(changes) { $1 }, startsSession: true)
    if let input { try child.writeLine(input) }
    let text = child.finish()
    return Run(
      status: child.exitStatus, text: text, errors: try String(contentsOf: errors, encoding: .utf8))
  }

  /// Runs it at a terminal and types an answer at each prompt.
  ///
  /// - Parameters:
  ///   - isInteractive: Whether the terminal is also its standard input and standard error;
  ///     otherwise its errors are part of `text`.
  ///   - showsOutput: Whether the terminal is also its standard output.
  ///   - changes: Environment variables to add or replace.
  func type(
    _ arguments: [String], answers: [(prompt: String, line: String)] = [], columns: UInt16 = 80,
    isInteractive: Bool = true, showsOutput: Bool = false,
    environment changes: [String: String] = [:]
  ) throws -> Run {
    let terminal = try PseudoTerminal(columns: columns)
    let child = try Child(
      path, arguments, environment: environment.merging(changes) { $1 },
      mergesErrors: !isInteractive, terminal: terminal, isInteractive: isInteractive,
      showsOutput: showsOutput)
    for answer in answers { try terminal.answer(answer.prompt, answer.line) }
    let text = child.finish()
    return Run(status: child.exitStatus, text: text, errors: "", screen: terminal.finish())
  }

  /// Starts it at a terminal that shows its errors and, if `showsOutput`, its output.
  func run(_ arguments: String..., at terminal: PseudoTerminal, showsOutput: Bool = false) throws
    -> Child
  {
    try Child(
      path, arguments, environment: environment, terminal: terminal, isInteractive: true,
      showsOutput: showsOutput)
  }
}
