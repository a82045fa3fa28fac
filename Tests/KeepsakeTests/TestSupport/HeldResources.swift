import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// The open files, locks and mappings that this process still holds in the directories of a test
/// after the stores that used them were released.
final class HeldResources {
  private var directories: [(path: String, comment: Comment)] = []

  /// Adds a directory that ``expectReleased()`` checks. Work in the background may use it for a
  /// while longer.
  func add(_ path: String, _ comment: Comment) { directories.append((path, comment)) }

  /// What this process holds in each directory.
  private func held() throws -> [(comment: Comment, path: String)] {
    guard FileManager.default.fileExists(atPath: "/proc/self/maps") else { return [] }
    let maps = MemoryScan.text("/proc/self/maps")
    var held: [Substring: String] = [:]
    for line in Self.openFiles().map(\.path) + maps.split(separator: "\n").map(String.init) {
      if let name = Self.directoryName(line) { held[name] = line }
    }
    return directories.compactMap { directory in
      Self.directoryName(directory.path).flatMap { held[$0] }.map { (directory.comment, $0) }
    }
  }

  /// The unique name of a test's directory, taken from a path at or below it.
  private static func directoryName(_ line: String) -> Substring? {
    guard let start = line.range(of: "keepsake-test-") else { return nil }
    return line[start.upperBound...].prefix(36)
  }

  /// Expects everything to be released in time, as ``eventually`` does.
  func expectReleased() async throws {
    var left: [(comment: Comment, path: String)] = []
    try await eventually("everything is released") {
      left = try held()
      return left.isEmpty
    }
    for (comment, path) in left.prefix(3) { Issue.record("\(comment): \(path) is held") }
    directories = []
  }

  /// Expects this process to hold no lock below the path, in time as ``eventually`` does. Throws if
  /// it does, because each of the next calls would wait as long.
  func expectUnlocked(_ path: String, _ comment: Comment) async throws {
    var locked: [String] = []
    try await eventually(comment) {
      locked = Self.lockedFiles(below: path)
      return locked.isEmpty
    }
    try #require(locked.isEmpty, comment)
  }

  /// The files below the path that this process has locked.
  private static func lockedFiles(below path: String) -> [String] {
    openFiles().filter { $0.path.hasPrefix(path) && isLocked($0.number) }.map(\.path)
  }

  private static func isLocked(_ descriptor: Int32) -> Bool {
    let path = "/proc/self/fdinfo/\(descriptor)"
    // A file that was closed in the meantime is not locked.
    guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return false }
    return text.split(separator: "\n").contains { line in
      guard line.hasPrefix("lock:") else { return false }
      // An open cache keeps the byte of its process locked.
      let first = line.split(separator: " ").dropLast().last.flatMap { UInt64($0) }
      return first.map { $0 < CacheLedger.Byte.process(0).lowerBound } ?? true
    }
  }

  /// Each open file of this process that has a path, or had one before it was deleted.
  private static func openFiles() -> [(number: Int32, path: String)] {
    guard let directory = opendir("/proc/self/fd") else { return [] }
    defer { closedir(directory) }
    var files: [(Int32, String)] = []
    var buffer = [CChar](repeating: 0, count: 4_096)
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
      }
      guard let number = Int32(name) else { continue }
      let count = readlink("/proc/self/fd/\(name)", &buffer, buffer.count)
      // Skip files that were closed in the meantime.
      guard count > 0, buffer[0] == 0x2F else { continue }
      let bytes = buffer[..<count].map { UInt8(bitPattern: $0) }
      files.append((number, String(decoding: bytes, as: UTF8.self)))
    }
    return files
  }
}
