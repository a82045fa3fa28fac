import Foundation
import Testing

/// A child process with pipes to its standard input and from its standard output.
///
/// Made with posix_spawn(3): Foundation's `Process.run()` crashes at times when other threads open
/// and close files at the same moment, as parallel tests do.
final class Child {
  let identifier: pid_t
  private let input: FileHandle
  private let output: FileHandle
  private var pending = Data()
  private let ending: Ending
  /// Whether it leads a process group, which is then killed with it.
  private let isGroup: Bool
  private static let spawning = NSLock()

  /// - Parameters:
  ///   - environment: Variables to add to those of the test process, or to replace.
  ///   - startsSession: Whether to start a session without a controlling terminal.
  ///   - terminal: The controlling terminal of the child.
  ///   - isInteractive: Whether the terminal is also standard input and standard error.
  ///   - showsOutput: Whether the terminal is also standard output.
  init(
    _ executable: String, _ arguments: [String], environment: [String: String] = [:],
    mergesErrors: Bool = false, startsSession: Bool = false,
    terminal: PseudoTerminal? = nil, isInteractive: Bool = false,
    showsOutput: Bool = false
  ) throws {
    // One at a time, so that no child inherits a pipe before it is marked close-on-exec.
    Self.spawning.lock()
    defer { Self.spawning.unlock() }
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
    if mergesErrors { posix_spawn_file_actions_adddup2(&actions, outputEnd, STDERR_FILENO) }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    // A shell ignores SIGINT in what it runs in the background, and nohup ignores SIGHUP; children
    // inherit that.
    var defaults = sigset_t()
    sigemptyset(&defaults)
    sigaddset(&defaults, SIGINT)
    sigaddset(&defaults, SIGHUP)
    posix_spawnattr_setsigdefault(&attributes, &defaults)
    // The threads of Dispatch block signals, and children inherit that too.
    var noSignals = sigset_t()
    sigemptyset(&noSignals)
    posix_spawnattr_setsigmask(&attributes, &noSignals)
    var flags = Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK)
    if startsSession || terminal != nil { flags |= 0x80 }  // POSIX_SPAWN_SETSID
    posix_spawnattr_setflags(&attributes, flags)
    if let terminal {
      // The first terminal that a session leader opens becomes its controlling terminal.
      let inputAndErrors = isInteractive ? [STDIN_FILENO, STDERR_FILENO] : [9]
      for descriptor in inputAndErrors + (showsOutput ? [STDOUT_FILENO] : []) {
        posix_spawn_file_actions_addopen(&actions, descriptor, terminal.path, O_RDWR, 0)
      }
    }

    let variables = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    var words: [UnsafeMutablePointer<CChar>?] =
      ([executable] + arguments).map { strdup($0) } + [nil]
    var settings: [UnsafeMutablePointer<CChar>?] = variables.map { strdup("\($0)=\($1)") } + [nil]
    defer { for text in words + settings { free(text) } }
    var identifier: pid_t = 0
    let code = posix_spawnp(&identifier, executable, &actions, &attributes, &words, &settings)
    self.input = FileHandle(fileDescriptor: input, closeOnDealloc: true)
    self.output = FileHandle(fileDescriptor: output, closeOnDealloc: true)
    self.identifier = identifier
    isGroup = startsSession || terminal != nil
    ending = Ending(of: identifier, isStarted: code == 0)
    try #require(code == 0, "cannot start \(executable): \(String(cString: strerror(code)))")
  }

  /// The read end and the write end, both closed in other children.
  private static func makePipe() throws -> (Int32, Int32) {
    var ends: [Int32] = [0, 0]
    // In one step: a child that another thread starts at this moment would keep them open. Swift
    // does not see the function.
    typealias Function = @convention(c) (UnsafeMutablePointer<Int32>, Int32) -> Int32
    let pipe2 = unsafeBitCast(try #require(dlsym(nil, "pipe2")), to: Function.self)
    try #require(pipe2(&ends, O_CLOEXEC) == 0)
    return (ends[0], ends[1])
  }

  deinit { killAndWait() }

  /// Reads the next line of its output; nil at the end.
  func line() -> String? {
    while true {
      if let end = pending.firstIndex(of: 10) {
        let line = String(decoding: pending[..<end], as: UTF8.self)
        pending = Data(pending[(end + 1)...])
        return line
      }
      let more = output.availableData
      if more.isEmpty { return nil }
      pending.append(more)
    }
  }

  /// Reads that many bytes of its output; nil if it ends earlier.
  func bytes(_ count: Int) -> Data? {
    while pending.count < count {
      let more = output.availableData
      if more.isEmpty { return nil }
      pending.append(more)
    }
    defer { pending = Data(pending.dropFirst(count)) }
    return Data(pending.prefix(count))
  }

  /// Writes a line to its standard input.
  func writeLine(_ text: String) throws { try input.write(contentsOf: Data((text + "\n").utf8)) }

  /// Writes a line and reads the answer.
  func ask(_ request: String) throws -> String? {
    try writeLine(request)
    return line()
  }

  /// Closes its standard input, waits for it to end, and returns the rest of its output.
  @discardableResult
  func finish() -> String {
    try? input.close()
    let rest = output.readDataToEndOfFile()
    ending.wait()
    return String(decoding: pending + rest, as: UTF8.self)
  }

  func killAndWait() {
    ending.kill(isGroup: isGroup)
    ending.wait()
  }

  /// Waits for it to end; its exit status, or 128 plus the number of the signal that ended it.
  var exitStatus: Int32 {
    let status = ending.wait()
    return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
  }

  /// Whether it is still running. Writing to a child that has ended raises SIGPIPE.
  var isRunning: Bool { ending.isRunning }
}

/// How a process ends.
///
/// A thread collects its status at once. As long as nobody does, Swift Testing, which waits for any
/// child of this process while an exit test runs, finds that one over and over, and not its own.
private final class Ending: @unchecked Sendable {
  private let identifier: pid_t
  private let condition = NSCondition()
  private var status: Int32?

  init(of identifier: pid_t, isStarted: Bool) {
    self.identifier = identifier
    if isStarted { Thread.detachNewThread { self.collectStatus() } } else { status = 0 }
  }

  private func collectStatus() {
    var information = siginfo_t()
    let options = WEXITED | WNOWAIT
    while waitid(P_PID, id_t(identifier), &information, options) == -1, errno == EINTR {}
    condition.withLock {
      var raw: Int32 = 0
      while waitpid(identifier, &raw, 0) == -1, errno == EINTR {}
      status = raw
      condition.broadcast()
    }
  }

  /// Kills it, and its process group if it leads one, unless it has ended: another process may have
  /// its identifier then.
  func kill(isGroup: Bool) {
    condition.withLock {
      if status == nil { _ = Glibc.kill(isGroup ? -identifier : identifier, SIGKILL) }
    }
  }

  @discardableResult
  func wait() -> Int32 {
    condition.withLock {
      while true {
        if let status { return status }
        condition.wait()
      }
    }
  }

  var isRunning: Bool {
    condition.withLock {
      var information = siginfo_t()
      let options = WEXITED | WNOHANG | WNOWAIT
      return status == nil && waitid(P_PID, id_t(identifier), &information, options) == 0
        && information.si_signo == 0
    }
  }
}

extension TemporaryDirectory {
  /// Copies a program into this directory, and returns its path.
  ///
  /// By another process: a child that is started at the same moment would inherit the descriptor of
  /// the copy, and nothing can be executed while it is open for writing.
  func copyProgram(_ path: String, as name: String) throws -> String {
    let copy = file(name).path
    let child = try Child("/bin/cp", [path, copy], mergesErrors: true)
    let output = child.finish()
    try #require(child.exitStatus == 0, "\(output)")
    return copy
  }
}
