// The second process of tests. It runs the command of its arguments, or the requests on the lines
// of its standard input. Usage: keepsake-peer DIRECTORY COMMAND [ARGUMENT …]
//
// There is no top-level `await` here: with one, the Swift runtime starts Dispatch before anything
// else, and a process without a descriptor left for that could not be tested.
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc

func printLine(_ text: String) {
  var line = text + "\n"
  line.withUTF8 { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

/// The word at that position of the command as a number; 0 without one. The verb is at 0.
func number(_ position: Int) -> Int {
  CommandLine.arguments.dropFirst(2 + position).first.flatMap { Int($0) } ?? 0
}

/// Prints the error that `body` throws.
func printingErrors(_ body: () throws -> Void) {
  do { try body() } catch { printLine("error \(error)") }
}

/// Makes one step after another until this process is killed, and prints the number of each.
func acknowledge(from start: Int, _ step: (_ number: Int) throws -> Void) -> Never {
  var number = start
  while true {
    number += 1
    printingErrors {
      try step(number)
      printLine("\(number)")
    }
  }
}

/// Makes steps until the input of this process ends, and prints how many.
func countUntilClosed(_ step: (_ number: Int) throws -> Void) {
  var input = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
  var count = 0
  while poll(&input, 1, 0) == 0 {
    printingErrors {
      try step(count + 1)
      count += 1
    }
  }
  printLine("\(count)")
}

/// Calls again what has waited for a lock in vain, as it may beside others that hardly release it.
func retryingTimeouts(_ call: () throws -> Void) throws {
  while true {
    do {
      return try call()
    } catch let error as StorageError where error.code == .timedOut {
      continue
    }
  }
}

/// Answers one request, which is a verb, a key and perhaps a value.
func answer(_ words: [String], in store: Defaults.Store = Defaults.shared) -> String {
  do {
    switch words[0] {
    case "set":
      try store.set(Int(words[2]) ?? 0, forKey: words[1])
      return "ok"
    case "get": return try store.get(words[1]).map { (value: Int) in String(value) } ?? "nil"
    case "clear":
      try store.removeAll()
      return "ok"
    default: return "unknown \(words[0])"
    }
  } catch {
    return "error \(error)"
  }
}

/// Ends this process with a signal after a quarter of an hour, so that no test waits forever for a
/// process that hangs; after ten hours if the environment asks for longer tests.
func limitLifetime() {
  let longer = ["KEEPSAKE_KILLS", "KEEPSAKE_ROUNDS", "KEEPSAKE_SOAK"]
  alarm(longer.allSatisfy { getenv($0) == nil } ? 900 : 36_000)
}

func blocking<R: Sendable>(on body: @escaping @Sendable () async throws -> R) throws -> R {
  let isDone = DispatchSemaphore(value: 0)
  // Written before the signal and read after it.
  nonisolated(unsafe) var result: Result<R, any Error>?
  Task {
    do { result = .success(try await body()) } catch { result = .failure(error) }
    isDone.signal()
  }
  isDone.wait()
  return try result!.get()
}

limitLifetime()
let arguments = CommandLine.arguments
let directory = URL(filePath: arguments[1])
if arguments[2] != "change-home" {
  try StorageSystem.bootstrap(
    app: "peer",
    directories: .init(
      configuration: directory, data: directory, state: directory.appending(path: "state")),
    engines: ["files": StorageEngines.files(in: Folder(directory.appending(path: "files")))])
}

switch arguments[2] {
case "serve":  // [SUITE]: answers requests until its input ends; the suite is in the directory
  let shared = arguments.count > 3 ? Defaults.Suite(arguments[3], in: directory) : .standard
  while let line = readLine() {
    printLine(answer(line.split(separator: " ").map(String.init), in: Defaults.suite(shared)))
  }
case "set":  // KEY NUMBER: answers one request and exits
  printLine(answer(Array(arguments[2...])))
case "fill":  // PREFIX COUNT: sets distinct keys
  for index in 0..<number(2) where !Defaults.set(index, forKey: "\(arguments[3])\(index)") {
    exit(1)
  }
case "increment":  // KEY COUNT: adds one that many times
  for _ in 0..<number(2) { Defaults.update(arguments[3], default: 0) { $0 += 1 } }
case "engine-increment":  // KEY COUNT: increments with an engine of files
  StorageSystem.onFailure = { printLine("error \($0)") }
  for _ in 0..<number(2) { Defaults.update(arguments[3], default: 0, suite: "files") { $0 += 1 } }
case "paths":  // stores values inside and outside of temporary scopes and prints their paths
  try blocking { try await printPaths() }
case "acknowledge":  // START: sets increasing numbers for 50 keys, and prints each
  let padding = String(repeating: "x", count: 400)
  acknowledge(from: number(1)) { index in
    guard Defaults.set("\(index) \(padding)", forKey: "key\(index % 50)") else { exit(1) }
  }
case "follow":  // KEY: prints "ready", and then each new value until its input ends
  let sequence = Defaults.changes(arguments[3], default: 0)
  Task.detached {
    var changes = sequence.makeAsyncIterator()
    printLine("ready")
    while let value = await changes.next() { printLine("\(value)") }
  }
  while readLine() != nil {}
case "hold-lock":  // NAME: locks a file of the directory, prints "held", and ends with its input
  let file = open(directory.appending(path: arguments[3]).path, O_RDWR)
  guard file >= 0, flock(file, LOCK_EX) == 0 else { exit(1) }
  printLine("held")
  while readLine() != nil {}
case "fork-read":  // prints how often a child has the journal open that only reads
  Defaults.set(1, forKey: "count")
  // No thread of the parent uses the file at the fork: the child would keep it open for that one.
  Defaults.synchronize()
  let child = forkedChild()
  if child == 0 {
    let count = Defaults.int("count")
    let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
    let targets = names.compactMap {
      try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
    }
    printLine("\(count) \(targets.count { $0.hasSuffix("/standard.jsonl") })")
    exit(0)
  }
  if waitForExit(of: child) != 0 { exit(1) }
case "fork-mirror":  // prints how often a parent and its child have filled a mirror
  printLine(try blocking { try await readMirrorInBothProcesses() })
case "fork-while-reading":  // COUNT: children write while another thread of their parent reads
  Defaults.set(0, forKey: "count")
  // Swift's runtime takes locks when a type is first used, which a child would find locked: the
  // first children come before the thread, so that it is the first to use none.
  let firstCount = 3
  let text = String(repeating: "x", count: 300_000)  // which the thread reads for long
  for index in 0..<firstCount + number(1) {
    if index == firstCount { startReading() }
    let child = forkedChild(besideThread: index >= firstCount)
    if child == 0 {
      let isSet = Defaults.set(text, forKey: "text")
      _exit(isSet && Defaults.set(Defaults.int("count") + 1, forKey: "count") ? 0 : 1)
    }
    let status = waitForExit(of: child)
    if status != 0 { printLine("status \(status)") }
  }
  printLine("\(Defaults.int("count") - firstCount)")
case "fork-while-updating":  // a child writes, although another thread of its parent has the locks
  printLine(forkWhileUpdating())
case "as-user":  // USER GROUP VERB KEY [VALUE]: answers a request as another user
  guard setgid(gid_t(number(2))) == 0, setuid(uid_t(number(1))) == 0 else { exit(2) }
  printLine(answer(Array(arguments[5...])))
default:
  let words = Array(arguments[2...])
  if runProcessCommand(words) { break }
  StorageSystem.onFailure = { printLine("error \($0)") }
  if runCacheCommand(words, in: directory)
    || runFaultCommand(words, in: directory) || runFolderCommand(words, in: directory)
    || runHazardCommand(words, in: directory) || runHistoryCommand(words, in: directory)
    || runModelCommand(words, in: directory) || runRestoreCommand(words, in: directory)
    || runSandboxCommand(words, in: directory) || runTerminalCommand(words)
    || runVaultCommand(words)
  {
    break
  }
  let isDone = try blocking { [directory] in try await runMixedCommand(words, in: directory) }
  if !isDone { exit(64) }
}
