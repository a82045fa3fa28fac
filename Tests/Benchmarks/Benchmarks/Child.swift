// A child process: another program, or this one with another task.
import Foundation
import Glibc

final class Child {
  /// The option before the name of a child's task.
  static let flag = "--child"

  private let id: pid_t
  private let input: Int32
  private let output: Int32
  private var hasEnded = false

  /// Starts a program, connected by two pipes.
  init(_ program: String, _ arguments: [String] = [], environment: [String] = []) throws {
    let (toChild, fromChild) = (try Self.pipe(), try Self.pipe())
    (input, output) = (toChild.write, fromChild.read)
    defer {
      close(toChild.read)
      close(fromChild.write)
    }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, toChild.read, STDIN_FILENO)
    posix_spawn_file_actions_adddup2(&actions, fromChild.write, STDOUT_FILENO)
    id = try Self.spawn(program, arguments, environment, &actions)
  }

  /// Starts this program again.
  convenience init(task: String, _ arguments: [String]) throws {
    try self.init(Self.ownPath, [Self.flag, task] + arguments)
  }

  deinit {
    if !hasEnded {
      kill(id, SIGKILL)
      waitpid(id, nil, 0)
    }
    close(input)
    close(output)
  }

  /// Waits until it reaches the barrier; see `Barrier`.
  func waitUntilReady() throws {
    var byte: UInt8 = 0
    guard read(output, &byte, 1) == 1 else { throw Failure("a child ended too early") }
  }

  func start() throws {
    var byte: UInt8 = 1
    guard write(input, &byte, 1) == 1 else { throw Failure("a child ended too early") }
  }

  /// All of its output; throws if it fails.
  func text() throws -> String {
    let data = try FileHandle(fileDescriptor: output, closeOnDealloc: false).readToEnd() ?? Data()
    try Self.wait(for: id)
    hasEnded = true
    return String(decoding: data, as: UTF8.self)
  }

  /// The number that it prints.
  func number() throws -> Double {
    guard let number = Double(try text().trimmingCharacters(in: .whitespacesAndNewlines)) else {
      throw Failure("a child printed no number")
    }
    return number
  }

  /// Runs a program without pipes and waits for its end.
  static func run(
    _ program: String, _ arguments: [String] = [], environment: [String] = []
  ) throws {
    try wait(for: spawn(program, arguments, environment, nil))
  }

  /// Starts this program again with the same input and output.
  static func startSelf(_ arguments: [String]) throws -> pid_t {
    try spawn(ownPath, arguments, [], nil)
  }

  /// The path of another executable of this package.
  static func program(_ name: String) throws -> String {
    try URL(filePath: ownPath).deletingLastPathComponent().appending(path: name).path
  }

  /// The path of the first of these programs that is in a directory of PATH.
  static func installed(_ names: String...) -> String? {
    let directories = ProcessInfo.processInfo.environment["PATH"]?.split(separator: ":") ?? []
    let paths = names.flatMap { name in directories.map { "\($0)/\(name)" } }
    return paths.first(where: FileManager.default.isExecutableFile)
  }

  private static var ownPath: String {
    get throws { try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") }
  }

  private static func spawn(
    _ program: String, _ arguments: [String], _ environment: [String],
    _ actions: UnsafePointer<posix_spawn_file_actions_t>?
  ) throws -> pid_t {
    let own = ProcessInfo.processInfo.environment.map { "\($0)=\($1)" }
    var values = ([program] + arguments).map { strdup($0) } + [nil]
    var names = (own + environment).map { strdup($0) } + [nil]
    defer { for text in values + names { free(text) } }
    var child: pid_t = 0
    let code = posix_spawn(&child, program, actions, nil, &values, &names)
    guard code == 0 else { throw Failure("\(program): \(String(cString: strerror(code)))") }
    return child
  }

  private static func wait(for child: pid_t) throws {
    var status: Int32 = 0
    guard waitpid(child, &status, 0) == child, status == 0 else {
      throw Failure("a child ended with status \(status)")
    }
  }

  /// Both ends are closed in children: an inherited end would keep the pipe open.
  private static func pipe() throws -> (read: Int32, write: Int32) {
    var ends: [Int32] = [0, 0]
    try check(Glibc.pipe(&ends))
    for end in ends { try check(fcntl(end, F_SETFD, FD_CLOEXEC)) }
    return (ends[0], ends[1])
  }
}

/// A barrier at which children wait for each other.
enum Barrier {
  static func wait() throws {
    var byte: UInt8 = 1
    guard write(STDOUT_FILENO, &byte, 1) == 1, read(STDIN_FILENO, &byte, 1) == 1 else {
      throw Failure("the parent process has ended")
    }
  }
}
