// Measures Keepsake against the least that each operation could cost, and against what a program
// would use instead. Prints one table and never fails over a number.
//
//   keepsake-benchmarks [--folder PATH] [--quick] [--only settings|cache|secrets|files] [--million]
import Foundation
import Keepsake

func option(_ name: String) -> String? {
  let arguments = CommandLine.arguments
  guard let place = arguments.firstIndex(of: name), place + 1 < arguments.count else { return nil }
  return arguments[place + 1]
}

let homeVariable = "KEEPSAKE_BENCHMARKS_HOME"
guard let home = ProcessInfo.processInfo.environment[homeVariable] else {
  // Foundation has looked at HOME by now: only a new image of this program sees another one.
  let base = option("--folder") ?? FileManager.default.temporaryDirectory.path
  let home = "\(base)/keepsake-benchmarks-\(getpid())"
  try FileManager.default.createDirectory(
    atPath: home + "/.config", withIntermediateDirectories: true)
  setenv(homeVariable, home, 1)
  setenv("HOME", home, 1)
  setenv("XDG_CONFIG_HOME", home + "/.config", 1)
  // A program that is started finds its vault below HOME.
  for name in ["XDG_DATA_HOME", "XDG_STATE_HOME"] { unsetenv(name) }
  var arguments = CommandLine.arguments.map { strdup($0) } + [nil]
  execv("/proc/self/exe", &arguments)
  throw SystemFailure(code: errno)
}
defer { try? FileManager.default.removeItem(atPath: home) }

try StorageSystem.bootstrap(
  app: "benchmarks",
  directories: .init(
    configuration: URL(filePath: home + "/settings"), data: URL(filePath: home + "/data"),
    state: URL(filePath: home + "/state"), cache: URL(filePath: home + "/cache")))
var bench = Bench(rounds: CommandLine.arguments.contains("--quick") ? 5 : 21)
let only = option("--only")
if only == nil || only == "settings" {
  var settings = try Settings(folder: home)
  for count in [10, 1_000, 10_000] {
    settings.fill(to: count)
    try settings.measureReading(&bench)
    try settings.measureWriting(&bench)
  }
  let opening = Opening(folder: home, home: home, keys: 10_000)
  try opening.measureOpening(&bench)
  try opening.measureStarting(&bench)
}
if only == nil || only == "cache" {
  // The last one takes minutes and some gigabytes.
  let counts = [1_000, 100_000] + (CommandLine.arguments.contains("--million") ? [1_000_000] : [])
  try Caching(folder: home, counts: counts).measure(&bench)
}
if only == nil || only == "secrets" {
  let secrets = Secrets(folder: home)
  try secrets.measure(&bench)
  try Opening(folder: home, home: home, keys: 1).measureStartingWithSecret(&bench)
}
if only == nil || only == "files" { try Files(folder: home).measure(&bench) }
print("medians of \(bench.rounds) rounds in \(home)")
print(bench.table)
// Now: removing the files of a million entries takes minutes.
fflush(nil)
