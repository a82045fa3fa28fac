import Foundation
import Testing

/// One of the example programs, as somebody runs it whose files all lie in a directory of a test's
/// own.
struct Example {
  let path: String
  let directory: TemporaryDirectory

  /// - Parameter program: As the package names it.
  init(_ program: String, in directory: TemporaryDirectory) {
    path = Peer.builtProduct(program).path
    self.directory = directory
  }

  struct Run {
    let status: Int32
    /// On standard output, if that is no terminal.
    let text: String
    let errors: String
    /// What a terminal has shown.
    var screen = ""

    /// Whether it said nothing but what is wrong, and that where it belongs.
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

  /// Its standard output is to be read from the child, for a minute at most.
  func start(_ arguments: String...) throws -> Child {
    try Child("timeout", ["60", path] + arguments, environment: environment, startsSession: true)
  }

  /// Runs it without a terminal, not even that of whoever runs the tests.
  ///
  /// - Parameters:
  ///   - input: A line on standard input.
  ///   - output: A file for standard output.
  ///   - changes: What is otherwise in its environment.
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
    // A shell, as there is one pipe from a child. Files of more than some megabytes are none of a
    // test's.
    let command = "ulimit -f 65536; exec \"$0\" \"$@\" 2>\"\(errors.path)\"\(target)"
    let child = try Child(
      "/bin/sh", ["-c", command, path] + arguments,
      environment: environment.merging(changes) { $1 }, startsSession: true)
    if let input { try child.say(input) }
    let text = child.finish()
    return Run(
      status: child.exitStatus, text: text, errors: try String(contentsOf: errors, encoding: .utf8))
  }

  /// Runs it at a terminal, where somebody answers what it asks.
  ///
  /// - Parameters:
  ///   - isInteractive: Whether its streams are the terminal too; if not, its errors are in its
  ///     text.
  ///   - showsOutput: Whether standard output is.
  ///   - changes: What is otherwise in its environment.
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

  /// Runs it at a terminal that shows its errors, and its output too where that is wished.
  func run(_ arguments: String..., at terminal: PseudoTerminal, showsOutput: Bool = false) throws
    -> Child
  {
    try Child(
      path, arguments, environment: environment, terminal: terminal, isInteractive: true,
      showsOutput: showsOutput)
  }
}
