import Foundation
import Testing

@testable import KeepsakeTestSupport

/// Files that are not the library's, beside its own.
extension TemporaryDirectory {
  /// Puts files into a directory: some have names like those of a cache's files.
  ///
  /// - Returns: Their paths in this directory.
  func makeForeignFiles(in path: String) throws -> [String] {
    let names = [
      "README", "photo.jpg", "notes/one.txt", "notes/ab/YQ", "ab/deep/YQ.meta", ".hidden/x.trash/y",
      // Names that are only similar to those of emptied subdirectories and temporary files.
      "cafe.trash/1", ".cafe.trash/2", ".AB.1f.trash/3", ".ab.1f.2.trash/4", ".cafe-1f.tmp",
      ".550e8400-e29b-41d4-a716-446655440000.tmp", "photos.trash", ".trash/5",
    ]
    for name in names {
      let file = file(path + "/" + name)
      try FileManager.default.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data("mine".utf8).write(to: file)
    }
    return names.map { path + "/" + $0 }
  }

  func expectPresent(_ files: [String], _ comment: Comment) throws {
    for name in files {
      #expect(FileManager.default.fileExists(atPath: file(name).path), "\(comment): \(name)")
    }
  }
}
