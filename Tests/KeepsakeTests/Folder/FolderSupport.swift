import Foundation
import Synchronization
import Testing

@testable import Keepsake

extension TemporaryDirectory {
  /// The directory as one of the app's own.
  var files: Folder { Folder(url) }

  /// All that is in it, hidden files and links themselves too.
  func tree() throws -> [String: String] { try FolderTree.snapshot(path) }

  /// What the library left behind anywhere in it.
  func leftOvers() throws -> [String] {
    try tree().keys.filter {
      let name = $0.split(separator: "/").last ?? ""
      return name.hasPrefix(".keepsake-") && name != ".keepsake-own"
        && name != ".keepsake-engine.lock"
    }.sorted()
  }

  /// Makes a symbolic link.
  func link(_ name: String, to target: String) throws {
    try #require(symlink(target, path + "/" + name) == 0, "\(name)")
  }

  func makeDirectory(_ name: String) throws {
    try FileManager.default.createDirectory(
      at: file(name), withIntermediateDirectories: true)
  }

  func text(_ name: String) throws -> String {
    String(decoding: try bytes(of: name), as: UTF8.self)
  }

  func setMode(_ mode: mode_t, _ name: String = "") throws {
    try #require(chmod(path + "/" + name, mode) == 0)
  }

  func status(_ name: String) throws -> FileStatus? {
    try FileSystem.status(path + "/" + name, followsLinks: false, withTimes: true)
  }

  /// Makes a file look as if it had been left alone for so long.
  func age(_ name: String, seconds: Int) throws {
    let then = timespec(tv_sec: time(nil) - seconds, tv_nsec: 0)
    var times = [then, then]
    try #require(utimensat(AT_FDCWD, path + "/" + name, &times, AT_SYMLINK_NOFOLLOW) == 0)
  }
}

/// Folders as they are, without following a link.
enum FolderTree {
  /// Each name below with what it is: its kind, its mode and its contents.
  static func snapshot(_ root: String) throws -> [String: String] {
    var found: [String: String] = [:]
    try add(root, "", to: &found)
    return found
  }

  private static func add(
    _ root: String, _ way: String, to found: inout [String: String]
  ) throws {
    guard let directory = opendir(root + way) else { return }
    defer { closedir(directory) }
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
      }
      if name == "." || name == ".." { continue }
      let (key, path) = (String((way + "/" + name).dropFirst()), root + way + "/" + name)
      var status = stat()
      guard lstat(path, &status) == 0 else { continue }
      let mode = String(status.st_mode & 0o7777, radix: 8)
      switch status.st_mode & S_IFMT {
      case S_IFDIR:
        found[key] = "directory \(mode)"
        try add(root, way + "/" + name, to: &found)
      case S_IFLNK:
        found[key] = "link " + (try FileManager.default.destinationOfSymbolicLink(atPath: path))
      case S_IFREG:
        let bytes = try Data(contentsOf: URL(filePath: path))
        found[key] = "file \(mode) " + String(decoding: bytes, as: UTF8.self)
      default: found[key] = "other \(mode)"
      }
    }
  }
}

/// Runs `body` with stores and places of its own, as a finder has them.
func inScope<R>(_ finder: DirectoryFinder, _ body: () throws -> R) throws -> R {
  StorageScope.hadTemporaryScope.store(true, ordering: .relaxed)
  let scope = StorageScope(finder: finder)
  defer { scope.close() }
  return try StorageScope.$temporary.withValue(scope) { try body() }
}

/// Two directories on different file systems, where this machine has such.
struct TwoFileSystems {
  let disk: TemporaryDirectory
  let memory: TemporaryDirectory

  init() throws {
    disk = try TemporaryDirectory()
    memory = try TemporaryDirectory(isQuick: true)
  }

  static let areHere: Bool = {
    var (disk, memory) = (stat(), stat())
    return stat(NSTemporaryDirectory(), &disk) == 0 && stat("/dev/shm", &memory) == 0
      && disk.st_dev != memory.st_dev && access("/dev/shm", W_OK) == 0
  }()
}
