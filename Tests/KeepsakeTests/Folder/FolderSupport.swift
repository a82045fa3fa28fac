import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension TemporaryDirectory {
  /// The directory as a `Folder`.
  var files: Folder { Folder(url) }

  /// Everything in it, including hidden files and links: its kind, mode and contents. Follows no
  /// links.
  func tree() throws -> [String: String] {
    var found: [String: String] = [:]
    func add(_ way: String) throws {
      guard let directory = opendir(path + way) else { return }
      defer { closedir(directory) }
      while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
          String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
        }
        if name == "." || name == ".." { continue }
        let (key, path) = (String((way + "/" + name).dropFirst()), path + way + "/" + name)
        var status = stat()
        guard lstat(path, &status) == 0 else { continue }
        let mode = String(status.st_mode & 0o7777, radix: 8)
        switch status.st_mode & S_IFMT {
        case S_IFDIR:
          found[key] = "directory \(mode)"
          try add(way + "/" + name)
        case S_IFLNK:
          found[key] = "link " + (try FileManager.default.destinationOfSymbolicLink(atPath: path))
        case S_IFREG:
          found[key] = "file \(mode) " + String(decoding: try Bytes.read(path), as: UTF8.self)
        default: found[key] = "other \(mode)"
        }
      }
    }
    try add("")
    return found
  }

  /// The reserved files in it and below.
  func leftoverFiles() throws -> [String] {
    try tree().keys.filter {
      let name = $0.split(separator: "/").last ?? ""
      return name.hasPrefix(".keepsake-") && name != ".keepsake-own"
        && name != ".keepsake-engine.lock"
    }.sorted()
  }

  /// Runs `body` with the stores and directories of an app whose home this directory is.
  func asHome<R>(_ environment: [String: String] = [:], _ body: () throws -> R) throws -> R {
    try inScope(["HOME": path, "TMPDIR": path].merging(environment) { $1 }, body)
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

  /// Sets the times of a file back by so many seconds.
  func age(_ name: String, seconds: Int) throws {
    let then = timespec(tv_sec: time(nil) - seconds, tv_nsec: 0)
    var times = [then, then]
    try #require(utimensat(AT_FDCWD, path + "/" + name, &times, AT_SYMLINK_NOFOLLOW) == 0)
  }
}

/// Runs `body` with the stores and directories of a finder.
func inScope<R>(_ finder: DirectoryFinder, _ body: () throws -> R) throws -> R {
  StorageScope.temporaryScopeWasOpened.store(true, ordering: .relaxed)
  let scope = StorageScope(finder: finder)
  defer { scope.close() }
  return try StorageScope.$temporary.withValue(scope) { try body() }
}

/// Runs `body` with the stores and directories of an app in this environment.
func inScope<R>(
  _ environment: [String: String], home: String? = nil, _ body: () throws -> R
) throws -> R {
  try inScope(
    DirectoryFinder(
      app: "app", environment: { environment[$0] }, registeredHome: { home }), body)
}

/// Two directories on different file systems, if this machine has them.
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
