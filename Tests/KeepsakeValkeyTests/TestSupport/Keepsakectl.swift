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

  struct Run {
    let status: Int32
    let text: String
    let errors: String

    /// Whether it failed with `message` in one line on standard error and printed nothing else.
    func failed(_ status: Int32, _ message: String) -> Bool {
      self.status == status && text.isEmpty && errors.contains(message)
        && errors.split(separator: "\n").count == 1
    }

    func json() throws -> [String: Any] {
      try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }
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
  ) throws -> Run {
    try run(arguments, input: input, environment: changes)
  }

  func run(
    _ arguments: [String], input: String = "", environment changes: [String: String] = [:]
  ) throws -> Run {
    let files = directory.path + "/" + UUID().uuidString
    try input.write(toFile: files + ".in", atomically: true, encoding: .utf8)
    let line = commandLine(arguments, changes)
    // Ten minutes are enough on a busy machine.
    let status = system("exec timeout 600 \(line) <\(files).in >\(files).out 2>\(files).err")
    return Run(
      status: status >> 8 & 0xFF,
      text: try String(contentsOfFile: files + ".out", encoding: .utf8),
      errors: try String(contentsOfFile: files + ".err", encoding: .utf8))
  }

  /// Runs it until `body` returns, which gets a function that reads what it has printed so far.
  ///
  /// - Returns: What it printed.
  func withRunning(
    _ arguments: String..., body: (@escaping @Sendable () -> String) throws -> Void
  ) throws -> Run {
    let files = directory.path + "/" + UUID().uuidString
    let line = "echo $$ >\(files).pid; exec \(commandLine(arguments, [:]))"
    let status = Recorder<Int32>()
    let ended = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      status.append(system("\(line) </dev/null >\(files).out 2>\(files).err"))
      ended.signal()
    }
    @Sendable func text(_ name: String) -> String {
      (try? String(contentsOfFile: files + name, encoding: .utf8)) ?? ""
    }
    waitUntil("it did not start") { text(".pid").hasSuffix("\n") }
    let identifier = pid_t(text(".pid").dropLast())
    let result = Result { try body { text(".out") } }
    if let identifier { kill(identifier, SIGTERM) }
    ended.wait()
    try result.get()
    let raw = status.all.first ?? -1
    return Run(
      status: raw & 0x7F == 0 ? raw >> 8 & 0xFF : 128 + raw & 0x7F, text: text(".out"),
      errors: text(".err"))
  }

  private func commandLine(_ arguments: [String], _ changes: [String: String]) -> String {
    let path = Bundle.main.bundleURL.appending(path: "keepsakectl").path
    let settings = variables.merging(changes) { $1 }.map { "\($0)=\($1)" }
    return (["env"] + settings + [path] + arguments)
      .map { "'" + $0.replacingOccurrences(of: "'", with: "'\\''") + "'" }.joined(separator: " ")
  }
}

extension TestServer {
  /// The server as a URL. A busy machine must not fail a test.
  var url: String { "unix:\(socketPath)?timeout=60s&connect-timeout=60s" }
}
