// Compares Keepsake with the minimum that each operation needs, and with what programs use instead.
// See --help. No figure makes it fail.
import CFloor
import Foundation
import Glibc
import Keepsake

let homeVariable = "KEEPSAKE_BENCHMARKS_HOME"

/// Runs this program again with a new home directory below `base`, because Foundation has already
/// read HOME. Removes the directory when the child has ended in any way.
func runBelow(_ base: String) throws -> Never {
  let home = try makeDirectory("\(base)/keepsake-benchmarks-\(getpid())").path
  _ = try makeDirectory("\(home)/.config")
  setenv(homeVariable, home, 1)
  setenv("HOME", home, 1)
  setenv("XDG_CONFIG_HOME", home + "/.config", 1)
  // The programs that are started find their vault and cache below HOME.
  for name in ["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] { unsetenv(name) }
  let child = try Child.startSelf(Array(CommandLine.arguments.dropFirst()))
  let sources = [SIGINT, SIGTERM].map { number in
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler { kill(child, SIGKILL) }
    source.resume()
    return source
  }
  var status: Int32 = 0
  waitpid(child, &status, 0)
  // From here on another process may have the child's id.
  for source in sources { source.cancel() }
  try? FileManager.default.removeItem(atPath: home)
  // Report a signal as shells do.
  exit(status & 0x7f == 0 ? status >> 8 : 128 + status & 0x7f)
}

func run() throws {
  let arguments = Array(CommandLine.arguments.dropFirst())
  let isChild = arguments.first == Child.flag
  let options = try Options(isChild ? [] : arguments)
  if options.asksForHelp { return print(Options.usage) }
  if let source = options.source, let directory = options.pictures {
    return try Picture(Report.read(from: source)).draw(into: directory)
  }
  guard let home = ProcessInfo.processInfo.environment[homeVariable] else {
    if isChild { throw Failure("\(Child.flag) is for internal use") }
    try runBelow(options.directory)
  }
  floor_end_with_parent()
  // A child that is gone is an error of the write to it, not the end of this process.
  signal(SIGPIPE, SIG_IGN)
  if isChild, arguments.dropFirst().first == ChildTask.caching.rawValue {
    // It bootstraps another storage.
    return try ChildTask.run(Array(arguments.dropFirst()))
  }
  try StorageSystem.bootstrap(
    app: "benchmarks", on: ValkeySettings.Backing(socket: ValkeyServer.socket(below: home)),
    directories: .init(
      configuration: URL(filePath: home + "/settings"), data: URL(filePath: home + "/data"),
      state: URL(filePath: home + "/state"), cache: URL(filePath: home + "/cache")),
    engines: [MirroredTable.suite: MirroredTable()])
  if isChild { return try ChildTask.run(Array(arguments.dropFirst())) }
  try Run(options: options, home: home).measure()
}

do {
  try run()
} catch {
  FileHandle.standardError.write(Data("keepsake-benchmarks: \(error)\n".utf8))
  exit(1)
}
