// Measures Keepsake against the least that each operation could cost, and against what a program
// would use instead. Never fails over a figure; --help says what it can be asked for.
import Foundation
import Glibc
import Keepsake

let homeVariable = "KEEPSAKE_BENCHMARKS_HOME"

/// Leaves nothing behind when the run is broken off.
func removeWhenInterrupted(_ home: String) -> [any DispatchSourceSignal] {
  [SIGINT, SIGTERM].map { number in
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler {
      try? FileManager.default.removeItem(atPath: home)
      exit(128 + number)
    }
    source.resume()
    return source
  }
}

/// Has this program see another home: Foundation has looked at HOME by now, and only a new image of
/// it looks again.
func restart(in base: String) throws -> Never {
  let home = try makeFolder("\(base)/keepsake-benchmarks-\(getpid())").path
  _ = try makeFolder("\(home)/.config")
  setenv(homeVariable, home, 1)
  setenv("HOME", home, 1)
  setenv("XDG_CONFIG_HOME", home + "/.config", 1)
  // A program that is started finds its vault and its cache below HOME.
  for name in ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] { unsetenv(name) }
  var arguments = CommandLine.arguments.map { strdup($0) } + [nil]
  execv("/proc/self/exe", &arguments)
  throw SystemFailure(code: errno)
}

func run() throws {
  let arguments = Array(CommandLine.arguments.dropFirst())
  let isChild = arguments.first == Child.flag
  let options = try Options(isChild ? [] : arguments)
  if options.asksForHelp { return print(Options.usage) }
  if let folder = options.pictures, let source = options.source {
    return try Picture(Report.read(from: source)).draw(into: folder)
  }
  guard let home = ProcessInfo.processInfo.environment[homeVariable] else {
    try restart(in: options.folder)
  }
  defer { if !isChild { try? FileManager.default.removeItem(atPath: home) } }
  try StorageSystem.bootstrap(
    app: "benchmarks",
    directories: .init(
      configuration: URL(filePath: home + "/settings"), data: URL(filePath: home + "/data"),
      state: URL(filePath: home + "/state"), cache: URL(filePath: home + "/cache")))
  // A child that is gone is an error of the write to it, not the end of this process.
  signal(SIGPIPE, SIG_IGN)
  if isChild { return try Duty.run(Array(arguments.dropFirst())) }
  let sources = removeWhenInterrupted(home)
  defer { for source in sources { source.cancel() } }
  try Run(options: options, home: home).measure()
}

do {
  try run()
} catch {
  FileHandle.standardError.write(Data("keepsake-benchmarks: \(error)\n".utf8))
  exit(1)
}
