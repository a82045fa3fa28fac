// A server of the section's own.
import Foundation
import Glibc

final class ValkeyServer {
  /// The server's program: that of the environment variable, or the first one that is installed.
  static let executable =
    ProcessInfo.processInfo.environment["KEEPSAKE_VALKEY_SERVER"]
    ?? Child.installed("valkey-server", "redis-server")

  /// What Keepsake was measured with, such as `Redis server v=7.0.15`.
  let version: String
  private let child: Child

  /// The socket of the server, whose address is needed before it is started.
  static func socket(below home: String) -> String { "\(home)/server" }

  /// Starts a server that keeps its data in memory, and waits until it accepts connections.
  init(at socket: String, in directory: String) throws {
    guard let executable = Self.executable else { throw Failure("no server is installed") }
    version = try Child(executable, ["--version"]).text().split(separator: " ").prefix(3)
      .joined(separator: " ")
    child = try Child(
      task: ChildTask.server.rawValue,
      [
        executable, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
        "--dir", directory, "--logfile", "\(directory)/log", "--daemonize", "no",
      ])
    let deadline = ContinuousClock.now + .seconds(30)
    while (try? PeerValkey(at: socket).perform("PING")) == nil {
      guard ContinuousClock.now < deadline else { throw Failure("the server did not start") }
      usleep(5_000)
    }
  }

  /// The task of a child: becomes the server, which ends with its parent as the child would.
  static func run(_ arguments: [String]) throws {
    var words = arguments.map { strdup($0) } + [nil]
    execv(arguments[0], &words)
    throw SystemFailure(code: errno)
  }
}
