import Foundation

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A copy of a directory in memory, which can be written to any number of new directories.
///
/// It includes times and modes: a cache uses them to tell which files belong together.
struct Snapshot: Sendable {
  struct File: Sendable {
    let name: String
    let status: FileStatus
    let bytes: [UInt8]
  }

  private(set) var directories: [File] = []
  private(set) var files: [File] = []

  init(of directory: TemporaryDirectory) throws {
    for name in try FileManager.default.subpathsOfDirectory(atPath: directory.path).sorted() {
      let status = try FileSystem.status(directory.file(name).path, withTimes: true)
      guard let status else { continue }
      if status.isDirectory {
        directories.append(File(name: name, status: status, bytes: []))
      } else {
        files.append(File(name: name, status: status, bytes: try directory.bytes(of: name)))
      }
    }
  }

  func write(to directory: TemporaryDirectory) throws {
    for one in directories {
      // They are sorted, so that each parent is made before its children.
      try FileSystem.makeDirectory(directory.path + "/" + one.name, mode: one.status.mode)
    }
    for one in files {
      let file = try Keepsake.File(
        directory.path + "/" + one.name, .create, mode: one.status.mode)
      try file.writeAll(one.bytes)
      try file.setTimes(accessed: one.status.accessed, modified: one.status.modified)
    }
  }
}

extension TemporaryDirectory {
  /// A quick directory with the contents of the snapshot.
  convenience init(copying snapshot: Snapshot) throws {
    try self.init(isQuick: true)
    try snapshot.write(to: self)
  }
}
