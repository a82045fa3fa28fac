import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A server of its own for one test, on a socket in a temporary directory. It ends with its last
/// reference, and with the test process.
final class TestServer: SocketServer, @unchecked Sendable {
  /// The server's program: that of the environment variable, or the first one that is installed.
  static let executable: String? = {
    let variables = ProcessInfo.processInfo.environment
    if let path = variables["KEEPSAKE_VALKEY_SERVER"] { return path }
    let search = variables["PATH"] ?? ""
    let directories = search.split(separator: ":").map(String.init) + ["/usr/sbin", "/sbin"]
    for name in ["valkey-server", "redis-server"] {
      for directory in directories {
        let path = "\(directory)/\(name)"
        if FileManager.default.isExecutableFile(atPath: path) { return path }
      }
    }
    return nil
  }()

  let directory: ServerDirectory
  private let arguments: [String]
  private let lock = NSLock()
  private var shell: ServerProcess?

  /// - Parameter arguments: Settings that come after those of all tests.
  init(_ arguments: [String] = [], in directory: ServerDirectory? = nil) throws {
    self.directory = try directory ?? ServerDirectory()
    self.arguments = arguments
    try start()
  }

  deinit { shell?.end() }

  var socketPath: String { directory.path + "/s" }

  // MARK: Its process

  /// Starts it, and waits until it accepts connections.
  func start() throws {
    let executable = try #require(Self.executable, "no server: apt-get install redis-server")
    let path = socketPath
    unlink(path)
    let process = try ServerProcess(
      executable,
      [
        "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir",
        directory.path, "--daemonize", "no",
      ] + arguments, log: directory.path + "/log")
    lock.withLock { shell = process }
    try waitUntil("the server did not start") {
      try #require(process.isRunning, "the server ended: \(log)")
      return acceptsConnections
    }
  }

  private var acceptsConnections: Bool {
    guard let address = SocketAddress(path: socketPath) else { return false }
    return (try? Socket.connect(to: address)) != nil
  }

  private var log: String {
    (try? String(contentsOfFile: directory.path + "/log", encoding: .utf8)) ?? ""
  }

  private var process: ServerProcess? { lock.withLock { shell } }

  /// As `kill -9` does.
  func kill() { process?.end() }

  var processID: pid_t? { process?.server }

  /// Returns once it makes no more replies.
  func freeze() {
    guard let process else { return }
    process.signal(SIGSTOP)
    waitUntil("the server was not stopped") { process.isStopped }
  }

  func unfreeze() { process?.signal(SIGCONT) }
}

extension Trait where Self == ConditionTrait {
  /// For tests that need a server. `.ci/run` sets `KEEPSAKE_TESTS=all`, and then its absence fails.
  static var server: Self {
    .enabled(
      if: Coverage.isComplete || TestServer.executable != nil,
      "needs a server: apt-get install valkey-server, or redis-server")
  }
}
