import Foundation
import Testing

@testable import KeepsakeTestSupport

/// A server's process, below a shell that ends it when the test process ends, however that happens.
final class ServerProcess: Sendable {
  /// Unchecked because only the action at the end uses the child after it has started, and that
  /// runs once.
  private struct Shell: @unchecked Sendable {
    let child: Child
  }

  private static let script = """
    exec 2>/dev/null
    log=$1; shift
    "$@" >"$log" 2>&1 </dev/null &
    echo $!
    cat >/dev/null
    kill -CONT $! 2>/dev/null
    kill -KILL $! 2>/dev/null
    wait $!
    """

  let server: pid_t
  private let name: String

  init(_ executable: String, _ arguments: [String], log: String) throws {
    let child = try Child("/bin/sh", ["-c", Self.script, "sh", log, executable] + arguments)
    server = child.line().flatMap { pid_t($0) } ?? 0
    name = "server \(child.identifier)"
    try #require(server > 0, "the shell started no server")
    AtExit.shared.add(name) { [server, shell = Shell(child: child)] in
      _ = kill(server, SIGKILL)
      shell.child.finish()
    }
  }

  deinit { end() }

  var isRunning: Bool { kill(server, 0) == 0 }

  /// Whether SIGSTOP has taken effect.
  var isStopped: Bool {
    let status = try? String(contentsOfFile: "/proc/\(server)/stat", encoding: .utf8)
    return status?.split(separator: ")").last?.hasPrefix(" T") ?? false
  }

  func signal(_ signal: Int32) { _ = kill(server, signal) }

  /// Kills the server, and waits until it has ended.
  func end() { AtExit.shared.run(name) }
}
