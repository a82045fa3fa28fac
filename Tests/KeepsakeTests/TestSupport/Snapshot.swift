import Foundation

@testable import Keepsake

/// All that is in a directory, to be put elsewhere as often as it is needed: with times and modes,
/// of which some files say what belongs together.
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

  /// Some of the files, and the directories that they are in.
  func part(where isWanted: (String) -> Bool) -> Snapshot {
    var part = self
    part.files = files.filter { isWanted($0.name) }
    part.directories = directories.filter { directory in
      part.files.contains { $0.name.hasPrefix(directory.name + "/") }
    }
    return part
  }

  func put(in directory: TemporaryDirectory) throws {
    for one in directories {
      // Sorted, so that each comes after the one that it is in.
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
