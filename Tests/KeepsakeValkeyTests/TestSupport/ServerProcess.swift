import Foundation
import Testing

@testable import KeepsakeValkey

/// A server's process, below a shell that ends it when the test process ends, however that happens.
///
/// Made with posix_spawn(3): Foundation's `Process.run()` crashes at times when other threads open
/// and close files at the same moment, as parallel tests do.
final class ServerProcess: Sendable {
  private let shell: pid_t
  let server: pid_t
  private let input: Int32
  private static let spawning = NSLock()

  init(_ executable: String, _ arguments: [String], log: String) throws {
    // One at a time, so that no child inherits a pipe before it is marked close-on-exec.
    let (shell, input, output) = try Self.spawning.withLock {
      let (inputEnd, input) = try Self.makePipe()
      let (output, outputEnd) = try Self.makePipe()
      defer {
        close(inputEnd)
        close(outputEnd)
      }
      var actions = posix_spawn_file_actions_t()
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      posix_spawn_file_actions_adddup2(&actions, inputEnd, STDIN_FILENO)
      posix_spawn_file_actions_adddup2(&actions, outputEnd, STDOUT_FILENO)
      // The threads of Dispatch block signals, and children inherit that.
      var attributes = posix_spawnattr_t()
      posix_spawnattr_init(&attributes)
      defer { posix_spawnattr_destroy(&attributes) }
      var none = sigset_t()
      sigemptyset(&none)
      posix_spawnattr_setsigmask(&attributes, &none)
      posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
      let script = """
        exec 2>/dev/null
        log=$1; shift
        "$@" >"$log" 2>&1 </dev/null &
        echo $!
        cat >/dev/null
        kill -CONT $! 2>/dev/null
        kill -KILL $! 2>/dev/null
        wait $!
        """
      var words: [UnsafeMutablePointer<CChar>?] =
        (["/bin/sh", "-c", script, "sh", log, executable] + arguments).map { strdup($0) } + [nil]
      defer { for word in words { free(word) } }
      var shell: pid_t = 0
      let code = posix_spawn(&shell, "/bin/sh", &actions, &attributes, &words, environ)
      try #require(code == 0, "cannot start a shell: \(String(cString: strerror(code)))")
      return (shell, input, output)
    }
    self.shell = shell
    self.input = input
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(output, &byte, 1) == 1, byte != 10 { line.append(byte) }
    close(output)
    server = pid_t(String(decoding: line, as: UTF8.self)) ?? 0
    try #require(server > 0, "the shell started no server")
    AtExit.shared.add("server \(shell)") { [server, shell, input] in
      _ = kill(server, SIGKILL)
      close(input)
      var status: Int32 = 0
      while waitpid(shell, &status, 0) == -1, errno == EINTR {}
    }
  }

  private static func makePipe() throws -> (Int32, Int32) {
    var ends: [Int32] = [0, 0]
    // In one step: a child that another thread starts at this moment would keep them open.
    try #require(socketpair(AF_UNIX, Socket.streamType, 0, &ends) == 0)
    return (ends[0], ends[1])
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
  func end() { AtExit.shared.run("server \(shell)") }
}
