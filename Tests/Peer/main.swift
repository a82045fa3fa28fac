// A second process for the tests: does what its arguments say, or what its standard input asks for,
// line by line. Usage: keepsake-peer FOLDER COMMAND [ARGUMENT …]
//
// There is no `await` here: with one the language's runtime starts Dispatch before anything else,
// and a process that had no descriptor left for that could not be tested.
import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

func say(_ text: String) {
  var line = text + "\n"
  line.withUTF8 { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

func number(_ index: Int) -> Int {
  CommandLine.arguments.indices.contains(index) ? Int(CommandLine.arguments[index]) ?? 0 : 0
}

/// One request: a verb, a key, a value. Answers on one line.
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

/// Ends this process with a signal when it hangs, so that the tests do not wait for it for ever;
/// those that were asked to go on for longer have ten hours.
func limitLifetime() {
  let longer = ["KEEPSAKE_KILLS", "KEEPSAKE_ROUNDS", "KEEPSAKE_SOAK"]
  alarm(longer.allSatisfy { getenv($0) == nil } ? 900 : 36_000)
}

func waiting<R: Sendable>(for body: @escaping @Sendable () async throws -> R) throws -> R {
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
try StorageSystem.bootstrap(
  app: "peer",
  directories: .init(
    configuration: directory, data: directory, state: directory.appending(path: "state")),
  engines: ["files": FileEngine(Folder(directory.appending(path: "files")))])

switch arguments[2] {
case "serve":  // [SUITE]: answers requests until its input ends; the suite's directory is this one
  let shared = arguments.count > 3 ? Defaults.Suite(arguments[3], in: directory) : .standard
  while let line = readLine() {
    say(answer(line.split(separator: " ").map(String.init), in: Defaults.suite(shared)))
  }
case "set", "get":  // one request, then a plain exit
  say(answer(Array(arguments[2...])))
case "fill":  // PREFIX COUNT: distinct keys
  for index in 0..<number(4) where !Defaults.set(index, forKey: "\(arguments[3])\(index)") {
    exit(1)
  }
case "increment":  // KEY COUNT
  for _ in 0..<number(4) { Defaults.update(arguments[3], default: 0) { $0 += 1 } }
case "engine-increment":  // KEY COUNT: on an engine of files
  StorageSystem.onFailure = { say("error \($0)") }
  for _ in 0..<number(4) { Defaults.update(arguments[3], default: 0, suite: "files") { $0 += 1 } }
case "engine-acknowledge":  // START: likewise, as the next one
  let padding = String(repeating: "x", count: 20_000)
  var index = number(3)
  while true {
    index += 1
    guard Defaults.set("\(index) \(padding)", forKey: "key\(index % 5)", suite: "files") else {
      exit(1)
    }
    say(String(index))
  }
case "places":  // stores something of each kind, in and out of temporary scopes, and says where
  try waiting { try await sayPlaces() }
case "acknowledge":  // START: sets ever higher numbers under 50 keys, and says each once it is set
  let padding = String(repeating: "x", count: 400)
  var index = number(3)
  while true {
    index += 1
    guard Defaults.set("\(index) \(padding)", forKey: "key\(index % 50)") else { exit(1) }
    say(String(index))
  }
case "fork":  // a child and its parent write at once
  Defaults.set(0, forKey: "count")
  let child = forkedChild()
  for _ in 0..<number(3) { Defaults.update("count", default: 0) { $0 += 1 } }
  if child == 0 {
    Defaults.set(true, forKey: "child")
    exit(0)
  }
  let status = ended(child)
  say("\(Defaults.int("count")) \(Defaults.bool("child")) \(status)")
case "as-user":  // USER GROUP VERB KEY [VALUE]: as somebody without rights
  guard setgid(gid_t(number(4))) == 0, setuid(uid_t(number(3))) == 0 else { exit(2) }
  say(answer(Array(arguments[5...])))
default:
  let words = Array(arguments[2...])
  if runCaching(words, in: directory) || runFiling(words, in: directory)
    || runHazards(words, in: directory) || runModelling(words, in: directory) || runSealing(words)
  {
    break
  }
  let isDone = try waiting { [directory] in try await runMixing(words, in: directory) }
  if !isDone { exit(64) }
}
