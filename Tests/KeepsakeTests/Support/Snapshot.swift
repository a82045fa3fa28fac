import Foundation

@testable import Keepsake

/// All that is in a folder, to be put elsewhere as often as it is needed: with times and modes, of which
/// some files say what belongs together.
struct Snapshot: Sendable {
  struct File: Sendable {
    let name: String
    let status: FileStatus
    let bytes: [UInt8]
  }

  private(set) var folders: [File] = []
  private(set) var files: [File] = []

  init(of folder: TemporaryFolder) throws {
    for name in try FileManager.default.subpathsOfDirectory(atPath: folder.path).sorted() {
      let status = try FileSystem.status(folder.file(name).path, withTimes: true)
      guard let status else { continue }
      if status.isFolder {
        folders.append(File(name: name, status: status, bytes: []))
      } else {
        files.append(File(name: name, status: status, bytes: try folder.bytes(of: name)))
      }
    }
  }

  /// Some of the files, and the folders that they are in.
  func part(where isWanted: (String) -> Bool) -> Snapshot {
    var part = self
    part.files = files.filter { isWanted($0.name) }
    part.folders = folders.filter { folder in
      part.files.contains { $0.name.hasPrefix(folder.name + "/") }
    }
    return part
  }

  func put(in folder: TemporaryFolder) throws {
    for one in folders {
      // Sorted, so that each comes after the one that it is in.
      try FileSystem.makeFolder(folder.path + "/" + one.name, mode: one.status.mode)
    }
    for one in files {
      let file = try Keepsake.File(
        folder.path + "/" + one.name, .create, mode: one.status.mode)
      try file.writeAll(one.bytes)
      try file.setTimes(accessed: one.status.accessed, modified: one.status.modified)
    }
  }
}
