// Large files with progress: a shelf for files of any size, which are never held in memory whole.
//
//   swift run keepsake-shelf put film.mp4             stores a copy
//   swift run keepsake-shelf list                     lists the stored files
//   swift run keepsake-shelf get film.mp4 ~/Videos    copies one back, by default to this directory
//   swift run keepsake-shelf remove film.mp4          deletes one
//
// To see progress: `head -c 2G /dev/urandom > large`, then `swift run keepsake-shelf put large`.
// Press Control-C in the middle: no partial copy is left, and an older file of that name is intact.

import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-shelf put FILE...         store copies of files
         keepsake-shelf list                list the stored files
         keepsake-shelf get NAME [FILE]     copy one back, to a file or into a directory
         keepsake-shelf remove NAME         delete one
  """

enum Shelf {
  static let folder = Folder.applicationSupport.subfolder("shelf")

  static func put(_ path: String) async throws {
    let file = URL(filePath: path)
    let source = file.resolvingSymlinksInPath()
    let directory = Folder(source.deletingLastPathComponent())  // any directory can be a Folder
    try await copy(
      source.lastPathComponent, in: directory, to: folder, as: file.lastPathComponent)
  }

  static func get(_ name: String, to path: String) async throws {
    try require(name)
    var target = URL(filePath: path, directoryHint: .checkFileSystem)
    if target.hasDirectoryPath { target.append(path: name) }
    let parent = target.deletingLastPathComponent()
    // Copying would create missing directories and so hide a typing error.
    guard FileManager.default.fileExists(atPath: parent.path) else {
      throw Exit(message: "There is no directory \"\(parent.path)\".", status: 66)
    }
    try await copy(name, in: folder, to: Folder(parent), as: target.lastPathComponent)
  }

  static func remove(_ name: String) throws {
    try require(name)
    try folder.delete(name)
  }

  static func list() throws {
    let names = try folder.list(includingHidden: true)
    for name in names { print("\(name): \(ByteCount(try folder.size(name)))") }
    let free = ByteCount(try folder.freeSpace)
    print("files: \(names.count), \(ByteCount(try folder.totalSize())); \(free) free")
    print("in \(try folder.url().path)")
  }

  private static func require(_ name: String) throws {
    if try !folder.exists(name) {
      throw Exit(
        message: "There is no \"\(name)\" on the shelf. Run keepsake-shelf list.", status: 66)
    }
  }

  /// Copies a file. The copy appears when it is complete; a failed or cancelled one leaves nothing.
  private static func copy(
    _ name: String, in source: Folder, to target: Folder, as newName: String
  ) async throws {
    let size: Int
    do {
      size = try source.size(name)
    } catch {
      throw Exit(message: "\(error)", status: 66)
    }
    let line = ProgressLine(name: newName)
    do {
      defer { line.clear() }
      try await source.copy(name, to: newName, in: target) { line.show($0, of: $1) }
    }
    print("\(newName): \(ByteCount(size))")
  }
}

/// One line on standard error that shows the progress, if that is a terminal.
struct ProgressLine {
  let name: String
  private static let isShown = isatty(STDERR_FILENO) == 1

  func show(_ bytes: Int, of total: Int) {
    guard Self.isShown else { return }
    let percent = total == 0 ? 100 : Int(100 * Double(bytes) / Double(total))
    let name = name.prefix(40)  // a line that wraps could not be redrawn
    fputs("\r\u{1B}[K\(name)  \(percent) %  \(ByteCount(bytes)) of \(ByteCount(total))", stderr)
  }

  func clear() {
    if Self.isShown { fputs("\r\u{1B}[K", stderr) }
  }
}

func run(_ arguments: [String]) async throws {
  switch (arguments.first, arguments.count) {
  case ("put", 2...) where !arguments[1].hasPrefix("-"):
    for path in arguments.dropFirst() { try await Shelf.put(path) }
  case ("list", 1): try Shelf.list()
  case ("get", 2): try await Shelf.get(arguments[1], to: ".")
  case ("get", 3): try await Shelf.get(arguments[1], to: arguments[2])
  case ("remove", 2): try Shelf.remove(arguments[1])
  case ("--help", _), ("-h", _): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

/// Makes the first Control-C cancel a task. The second one ends the program.
func cancelOnInterrupt(_ task: Task<Void, any Error>) -> any DispatchSourceSignal {
  signal(SIGINT, SIG_IGN)
  let source = DispatchSource.makeSignalSource(signal: SIGINT, queue: .global())
  source.setEventHandler {
    task.cancel()
    signal(SIGINT, SIG_DFL)
  }
  source.resume()
  return source
}

func fail(_ message: String, status: Int32) -> Never {
  fputs(message + "\n", stderr)
  exit(status)
}

do {
  try StorageSystem.bootstrap(app: "keepsake-shelf")
  let work = Task { try await run(Array(CommandLine.arguments.dropFirst())) }
  let interruptSource = cancelOnInterrupt(work)
  try await work.value
  interruptSource.cancel()
} catch is CancellationError {
  fail("Stopped. No partial copy is left.", status: 130)
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch let error as StorageError where error.code == .misuse {
  fail("\(error)", status: 64)  // such as ../film.mp4
} catch {
  fail("\(error)", status: 73)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
