import Foundation
import Testing

@testable import Keepsake

/// What this process holds of directories after all that used them was let go: open files, locks,
/// mappings.
final class Holdings {
  private var directories: [(path: String, comment: Comment)] = []

  /// Expects nothing to be held of a directory in the end; work in the background may hold it a
  /// while longer.
  func add(_ path: String, _ comment: Comment) { directories.append((path, comment)) }

  /// What is held of the directories.
  private func held() throws -> [(comment: Comment, what: String)] {
    guard FileManager.default.fileExists(atPath: "/proc/self/maps") else { return [] }
    let maps = try String(contentsOfFile: "/proc/self/maps", encoding: .utf8)
    var held: [Substring: String] = [:]
    for line in Self.openFiles().map(\.path) + maps.split(separator: "\n").map(String.init) {
      if let name = Self.directoryName(line) { held[name] = line }
    }
    return directories.compactMap { directory in
      Self.directoryName(directory.path).flatMap { held[$0] }.map { (directory.comment, $0) }
    }
  }

  /// The name of a directory that a test made, in a path somewhere below it; it is no other one's.
  private static func directoryName(_ line: String) -> Substring? {
    guard let start = line.range(of: "keepsake-test-") else { return nil }
    return line[start.upperBound...].prefix(36)
  }

  func expectNone() async throws {
    let deadline = ContinuousClock.now + .seconds(30)
    var left = try held()
    while !left.isEmpty, ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(20))
      left = try held()
    }
    for (comment, what) in left.prefix(3) { Issue.record("\(comment): \(what) is held") }
    directories = []
  }

  /// Expects that no lock of a file below is held now, or in a moment.
  func expectNoLock(_ path: String, _ comment: Comment) async throws {
    let deadline = ContinuousClock.now + .seconds(5)
    while true {
      let locked = Self.locked(path)
      if locked.isEmpty { return }
      guard ContinuousClock.now < deadline else {
        Issue.record("\(comment): \(locked) is locked")
        return
      }
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  /// The files below that this process has locked.
  private static func locked(_ path: String) -> [String] {
    openFiles().filter { $0.path.hasPrefix(path) && isLocked($0.number) }.map(\.path)
  }

  private static func isLocked(_ descriptor: Int32) -> Bool {
    let path = "/proc/self/fdinfo/\(descriptor)"
    // One that was closed meanwhile is not.
    guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return false }
    return text.split(separator: "\n").contains { line in
      guard line.hasPrefix("lock:") else { return false }
      // A cache has the byte of its process for as long as it is open.
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
      // One that was closed meanwhile is none.
      guard count > 0, buffer[0] == 0x2F else { continue }
      let bytes = buffer[..<count].map { UInt8(bitPattern: $0) }
      files.append((number, String(decoding: bytes, as: UTF8.self)))
    }
    return files
  }
}
