import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// `keepsakectl`, run by a user whose files are all in a directory of the test.
struct Keepsakectl {
  /// Exists only if something was stored in it.
  let home: String
  private let directory: ServerDirectory

  init() throws {
    directory = try ServerDirectory()
    home = directory.path + "/home"
  }

  private var variables: [String: String] {
    var variables = ["HOME": home, "NO_COLOR": "1"]
    for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
      variables["XDG_\(name)_HOME"] = home + "/" + name.lowercased()
    }
    for name in ["CONFIGURATION", "STATE", "CACHE", "CREDENTIALS"] {
      variables["\(name)_DIRECTORY"] = ""
    }
    return variables
  }

  /// The stores that the app `app` has in the same directories.
  func stores() -> StorageScope {
    let variables = variables
    return StorageScope(finder: DirectoryFinder(app: "app", environment: { variables[$0] }))
  }

  /// - Parameters:
  ///   - input: What it reads from standard input.
  ///   - changes: Environment variables to add.
  func run(
    _ arguments: String..., input: String = "", environment changes: [String: String] = [:]
  ) throws -> ProgramRun {
    try run(arguments, input: input, environment: changes)
  }

  /// - Parameter body: Called while it runs, with its process and a function that reads what it has
  ///   printed so far.
  func run(
    _ arguments: [String], input: String = "", environment changes: [String: String] = [:],
    whileRunning body: (pid_t, @escaping @Sendable () -> String) throws -> Void = { _, _ in }
  ) throws -> ProgramRun {
    let path = Bundle.main.bundleURL.appending(path: "keepsakectl").path
    let settings = variables.merging(changes) { $1 }.map { "\($0)=\($1)" }
    return try ProgramRun(
      ["env"] + settings + [path] + arguments, input: input, in: directory, whileRunning: body)
  }
}

extension ProgramRun {
  /// Whether it failed with `message` in one line on standard error and printed nothing else.
  func failed(_ status: Int32, _ message: String) -> Bool {
    self.status == status && text.isEmpty && errors.contains(message)
      && errors.split(separator: "\n").count == 1
  }

  func json() throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
  }
}
