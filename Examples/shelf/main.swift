// Files with progress: a shelf for files of any size, which are never in memory as a whole.
//
//   swift run keepsake-shelf put film.mp4             takes in a copy
//   swift run keepsake-shelf list                     what is there
//   swift run keepsake-shelf get film.mp4 ~/Videos    gives a copy back; without the folder, into
//   this one swift run keepsake-shelf remove film.mp4
//
// For something to look at: `head -c 2G /dev/urandom > large`, `swift run keepsake-shelf put
// large`. While it shows how far it is, press Control-C: nothing of it is left, and what the shelf
// had under that name still is there.

import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// What ends the program: a line on standard error, and an exit code of sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-shelf put FILE...         take files in
         keepsake-shelf list                show what is there
         keepsake-shelf get NAME [FILE]     give one back, to a file or into a folder
         keepsake-shelf remove NAME
  """

enum Shelf {
  static let folder = Folder.applicationSupport.subfolder("shelf")

  static func put(_ path: String) async throws {
    try await copy(path, to: folder, as: URL(filePath: path).lastPathComponent)
  }

  static func get(_ name: String, to path: String) async throws {
    try require(name)
    var target = URL(filePath: path, directoryHint: .checkFileSystem)
    if target.hasDirectoryPath { target.append(path: name) }
    let parent = target.deletingLastPathComponent()
    // To save a file makes its folders, which here would hide a slip of the pen.
    guard FileManager.default.fileExists(atPath: parent.path) else {
      throw Exit(message: "there is no folder \"\(parent.path)\"", status: 66)
    }
    let folder = Folder(parent)  // any folder can be one that files are saved in
    try await copy(try Shelf.folder.url(name).path, to: folder, as: target.lastPathComponent)
  }

  static func remove(_ name: String) throws {
    try require(name)
    try folder.delete(name)
  }

  static func list() throws {
    let names = try folder.list(includingHidden: true)
    for name in names { print("\(name): \(ByteCount(try folder.size(name)))") }
    let free = ByteCount(try folder.freeSpace)
    print("files: \(names.count), \(ByteCount(try folder.totalSize())); \(free) are free")
    print("in \(try folder.url().path)")
  }

  private static func require(_ name: String) throws {
    if try !folder.exists(name) {
      throw Exit(
        message: "there is no \"\(name)\" on the shelf: see keepsake-shelf list", status: 66)
    }
  }

  /// Until the copy is whole nobody sees any of it; if it fails or is cancelled, nothing of it is
  /// left.
  private static func copy(_ path: String, to folder: Folder, as name: String) async throws {
    let source = try Source(path)
    var line = ProgressLine(name, total: source.size)
    let pieces = Pieces(source: source)
    do {
      defer { line.clear() }
      try await folder.save(chunks: pieces, as: name, total: source.size) { bytes, _ in
        line.show(bytes)
      }
    }
    print("\(name): \(ByteCount(source.size))")
  }
}

/// A file that is read piece by piece.
final class Source {
  let size: Int
  private let path: String
  private let descriptor: Int32
  private var count = 0

  init(_ path: String) throws {
    self.path = path
    // Without waiting, as a pipe that nobody writes to would make us.
    descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    var status = stat()
    guard descriptor >= 0, fstat(descriptor, &status) == 0 else {
      throw Self.unreadable(path, String(cString: strerror(errno)))
    }
    size = Int(status.st_size)
    guard status.st_mode & S_IFMT == S_IFREG else {
      throw Self.unreadable(path, "it is no file")
    }
  }

  private static func unreadable(_ path: String, _ reason: String) -> Exit {
    Exit(message: "cannot read \"\(path)\": \(reason)", status: 66)
  }

  deinit { close(descriptor) }

  /// The next megabyte; nil at the end. Half a file is not to be kept: that the size is another one
  /// than at first is an error.
  func readPiece() throws -> [UInt8]? {
    let piece = try [UInt8](unsafeUninitializedCapacity: 1 << 20) { buffer, count in
      let result = read(descriptor, buffer.baseAddress, buffer.count)
      if result < 0 { throw Self.unreadable(path, String(cString: strerror(errno))) }
      count = result
    }
    count += piece.count
    guard piece.isEmpty ? count == size : count <= size else {
      throw Exit(message: "\"\(path)\" changed while it was read", status: 75)
    }
    return piece.isEmpty ? nil : piece
  }
}

/// Its pieces as the library takes them: whatever yields bytes, such as a download, will do.
struct Pieces: AsyncSequence, AsyncIteratorProtocol {
  let source: Source

  func makeAsyncIterator() -> Pieces { self }
  mutating func next() async throws -> [UInt8]? { try source.readPiece() }
}

/// How far it is, in one line that is drawn anew; for people alone, so that pipes and files get
/// nothing.
struct ProgressLine {
  private let name: String
  private let total: Int
  private var last: ContinuousClock.Instant?
  private static let isShown = isatty(STDERR_FILENO) == 1

  init(_ name: String, total: Int) {
    self.name = String(name.prefix(40))  // a line that is too wide cannot be drawn anew
    self.total = total
  }

  mutating func show(_ bytes: Int) {
    let isDue = last.map { .now - $0 > .milliseconds(100) } ?? true
    guard Self.isShown, isDue || bytes == total else { return }
    last = .now
    let percent = Int(100 * Double(bytes) / Double(total))
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

/// Control-C cancels the task instead of ending the program where it stands. That is what a second
/// one does.
func cancelWhenInterrupted(_ task: Task<Void, any Error>) -> any DispatchSourceSignal {
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
  let interrupts = cancelWhenInterrupted(work)
  try await work.value
  interrupts.cancel()
} catch is CancellationError {
  fail("Stopped: nothing of it is left.", status: 130)
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch let error as StorageError where error.code == .misuse {
  fail("\(error)", status: 64)  // such as ../film.mp4
} catch {
  fail("\(error)", status: 73)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
