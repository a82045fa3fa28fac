// Measures what Foundation's UserDefaults loses when a process is killed while it writes, and when
// several processes set different keys.
import Foundation

#if canImport(Glibc)
import Glibc
#endif

/// A failure to measure.
struct Failure: Error {
  let text: String
}

/// Another run of this program, with a task.
func start(_ task: String, _ arguments: [String] = []) throws -> (Process, FileHandle) {
  let process = Process()
  process.executableURL = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath()
  process.arguments = [task] + arguments
  let output = Pipe()
  process.standardOutput = output
  try process.run()
  return (process, output.fileHandleForReading)
}

/// How many keys a new process finds.
func countKeys(_ prefix: String) throws -> Int {
  let (process, output) = try start("count", [prefix])
  let text = String(decoding: try output.readToEnd() ?? Data(), as: UTF8.self)
  process.waitUntilExit()
  guard let count = Int(text) else { throw Failure(text: "a process printed no number") }
  return count
}

/// The file of the settings.
func settingsFile() throws -> String {
  guard let directory = ProcessInfo.processInfo.environment["XDG_CONFIG_HOME"] else {
    throw Failure(text: "XDG_CONFIG_HOME is not set")
  }
  return "\(directory)/user-defaults-loss.plist"
}

func size(of path: String) -> Int {
  var status = stat()
  return stat(path, &status) == 0 ? Int(status.st_size) : 0
}

/// Kills a process while it writes its settings, which is when their file has another size.
func measureKills(_ rounds: Int, keys: Int) throws {
  var losses = 0
  for _ in 0..<rounds {
    let (process, output) = try start("synchronize", ["\(keys)"])
    guard try output.read(upToCount: 1)?.isEmpty == false else {
      throw Failure(text: "a process ended too early")
    }
    let path = try settingsFile()
    let whole = size(of: path)
    while size(of: path) == whole {}
    kill(process.processIdentifier, SIGKILL)
    process.waitUntilExit()
    if try countKeys("setting") < keys { losses += 1 }
  }
  print("killed while it wrote \(keys) settings: lost them in \(losses) of \(rounds) runs")
}

/// Lets processes set their own keys at the same time.
func measureProcesses(_ count: Int, keys: Int) throws {
  let processes = try (0..<count).map { try start("set", ["process-\($0)-", "\(keys)"]).0 }
  for process in processes { process.waitUntilExit() }
  let kept = try countKeys("process-")
  print("\(count) processes that set \(keys) keys each: kept \(kept) of \(count * keys)")
}

let arguments = CommandLine.arguments.dropFirst()
let defaults = UserDefaults.standard
switch (arguments.first, arguments.dropFirst().map(\.self)) {
case (nil, _):
  try measureKills(100, keys: 1_000)
  try measureProcesses(3, keys: 200)
case ("count", let rest) where rest.count == 1:
  let keys = defaults.dictionaryRepresentation().keys.filter { $0.hasPrefix(rest[0]) }
  FileHandle.standardOutput.write(Data("\(keys.count)".utf8))
case ("synchronize", let rest) where rest.count == 1:
  for key in 0..<(Int(rest[0]) ?? 0) { defaults.set(key, forKey: "setting-\(key)") }
  defaults.synchronize()
  FileHandle.standardOutput.write(Data([1]))
  let parent = getppid()
  while getppid() == parent {
    // As long as before.
    defaults.set(Int.random(in: 100..<200), forKey: "setting-150")
    defaults.synchronize()
  }
case ("set", let rest) where rest.count == 2:
  for key in 0..<(Int(rest[1]) ?? 0) {
    defaults.set(key, forKey: rest[0] + "\(key)")
    defaults.synchronize()
  }
default: throw Failure(text: "unknown task")
}
