// The processes of the example: the server and the machines. On real machines, systemd or a
// container starts them.

import Dispatch
import FoundationEssentials
import Synchronization

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// A process that reads lines and answers with lines. It also ends when its input ends, as it does
/// when this process is killed.
final class Child {
  private let name: String
  private let identifier: pid_t
  private let input: Int32
  private let output: Int32

  /// - Parameter environment: All of its variables.
  init(
    _ program: String, _ arguments: [String], name: String, environment: [String: String]
  ) throws {
    let (inputEnd, input) = try makePipe()
    let (output, outputEnd) = try makePipe()
    defer {
      close(inputEnd)
      close(outputEnd)
    }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, inputEnd, STDIN_FILENO)
    posix_spawn_file_actions_adddup2(&actions, outputEnd, STDOUT_FILENO)

    // Its own process group, so that Control-C reaches only this process, which ends the others in
    // their order. The signals that this process ignores or blocks have their usual effect on it.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    for number in endingSignals + [SIGPIPE] { sigaddset(&signals, number) }
    posix_spawnattr_setsigdefault(&attributes, &signals)
    posix_spawnattr_setflags(
      &attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

    var words = ([program] + arguments).map { strdup($0) } + [nil]
    var variables = environment.map { strdup("\($0)=\($1)") } + [nil]
    defer { for text in words + variables { free(text) } }
    identifier = try children.withLock { children in
      if children.signal != nil { throw interruption }
      var child: pid_t = 0
      let code = posix_spawn(&child, program, &actions, &attributes, &words, &variables)
      guard code == 0 else { throw Exit("posix_spawn \(program)", code) }
      children.running.insert(child)
      return child
    }
    (self.name, self.input, self.output) = (name, input, output)
  }

  /// Sends a line.
  func send(_ line: String) {
    var text = line + "\n"
    text.withUTF8 { _ = write(input, $0.baseAddress, $0.count) }
  }

  /// Waits for the next line; nil if the process has ended.
  func readLine() -> String? {
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(output, &byte, 1) == 1 {
      if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
      line.append(byte)
    }
    return nil
  }

  /// Prints the next line after the process's name.
  func printLine() throws {
    guard let line = readLine() else { throw ended() }
    say("  \(name) \(line)")
  }

  /// Sends a line and prints the answer.
  func ask(_ line: String) throws {
    send(line)
    try printLine()
  }

  func ended() -> Exit {
    let isInterrupted = children.withLock { $0.signal != nil }
    return isInterrupted ? interruption : Exit(message: "\(name) has ended.", status: 69)
  }

  /// Ends the process, and waits for its end.
  func end() {
    kill(-identifier, SIGTERM)
    while readLine() != nil {}
    close(input)
    close(output)
    _ = children.withLock { $0.running.remove(identifier) }
    while waitpid(identifier, nil, 0) == -1, errno == EINTR {}
  }
}

/// A pipe that children do not inherit.
private func makePipe() throws -> (Int32, Int32) {
  var ends: [Int32] = [-1, -1]
  guard pipe(&ends) == 0 else { throw Exit("pipe") }
  for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
  return (ends[0], ends[1])
}

extension Exit {
  /// A system call that failed.
  fileprivate init(_ call: String, _ code: Int32 = errno) {
    self.init(message: "\(call): \(String(cString: strerror(code)))", status: 71)
  }
}

// MARK: Signals

private let endingSignals = [SIGHUP, SIGINT, SIGTERM]
private let interruption = Exit(message: "Interrupted.", status: 75)

/// The children that run, and the signal that has ended them.
private let children = Mutex<(running: Set<pid_t>, signal: Int32?)>(([], nil))

/// Lets the signals that end this process end its children. It finds that they have ended, and
/// cleans up as after any other error.
func endChildrenAtSignals() {
  for number in endingSignals {
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      // Keeps the source.
      _ = source
      children.withLock { children in
        children.signal = number
        for child in children.running { kill(-child, SIGTERM) }
      }
    }
    source.activate()
  }
}

// MARK: The server

/// Starts a server on the socket `socket` in a directory, and waits until it accepts connections.
func startServer(in directory: String) throws -> Child {
  let directories = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
  let paths = ["valkey-server", "redis-server"].flatMap { name in
    directories.map { "\($0)/\(name)" }
  }
  guard let program = paths.first(where: { access($0, X_OK) == 0 }) else {
    throw Exit(
      message: "There is no Valkey or Redis server on this machine. Install one, for example with "
        + "`sudo apt-get install redis-server`, or use a running one with --server URL.",
      status: 69)
  }
  // A server does not end with its input, so a shell watches the input.
  let script = #"exec 3<&0; (read _ <&3; kill $$) >/dev/null 2>&1 & exec "$@" 3<&- </dev/null"#
  let server = try Child(
    "/bin/sh",
    [
      "-c", script, "sh", program, "--port", "0", "--unixsocket", "\(directory)/socket",
      "--dir", directory, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
    ], name: "The server", environment: ProcessInfo.processInfo.environment)
  var log: [String] = []
  while let line = server.readLine() {
    log.append(line)
    if line.contains("eady to accept connections") {
      say("Started \(program), and a shop on three machines that share it:")
      return server
    }
  }
  server.end()
  fputs(log.map { $0 + "\n" }.joined(), stderr)
  throw server.ended()
}

// MARK: Directories

/// Variables for machines: a key to the vault that all of them have, as systemd passes it to a
/// service (`LoadCredentialEncrypted=vault.key`), and none that names a directory of the user.
func machineEnvironment(in directory: String) throws -> [String: String] {
  let credentials = directory + "/credentials"
  guard mkdir(credentials, 0o700) == 0 else { throw Exit("mkdir \(credentials)") }
  let key = Data((0..<32).map { _ in UInt8.random(in: .min ... .max) })
  try key.write(to: URL(filePath: credentials + "/vault.key"))
  var environment = ProcessInfo.processInfo.environment.filter {
    !$0.key.hasPrefix("XDG_") && !$0.key.hasSuffix("_DIRECTORY")
  }
  environment["CREDENTIALS_DIRECTORY"] = credentials
  return environment
}

/// A directory that only this user can read.
func makeTemporaryDirectory() throws -> String {
  let parent = FileManager.default.temporaryDirectory.path
  var template = Array("\(parent)/keepsake-shop-XXXXXX".utf8CString)
  guard mkdtemp(&template) != nil else { throw Exit("mkdtemp in \(parent)") }
  return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
