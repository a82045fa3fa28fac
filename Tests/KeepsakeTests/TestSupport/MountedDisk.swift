import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A small file system, mounted on a directory of its own; needs root and mkfs(8).
///
/// Unmounted with the last reference.
final class MountedDisk {
  static let kinds = ["ext4", "btrfs", "xfs"]

  /// A file system that cannot be made or mounted.
  struct Failure: Error {
    let command: [String]
    let output: String
  }

  let directory: TemporaryDirectory
  private let image: TemporaryDirectory
  private let source: [String]
  private var isMounted = false

  /// - Parameters:
  ///   - kind: tmpfs, or one that mkfs(8) knows. btrfs needs 109 MiB unless it is mixed.
  ///   - options: Further arguments of mkfs(8).
  init(_ kind: String, mebibytes: Int = 120, options: [String] = []) throws {
    // A large image may not fit into memory.
    image = try TemporaryDirectory(isQuick: mebibytes <= 120)
    directory = try TemporaryDirectory(isQuick: true)
    let path = image.file("disk").path
    let isInMemory = kind == "tmpfs"
    source =
      isInMemory ? ["-t", kind, "-o", "size=\(mebibytes)m", "none"] : ["-o", "loop", path]
    if !isInMemory {
      // The image takes only as much space as is written.
      try Self.run(["truncate", "-s", "\(mebibytes)M", path])
      try Self.run(["mkfs.\(kind)", "-q", kind == "ext4" ? "-F" : "-f"] + options + [path])
    }
    try mount()
  }

  deinit { unmount() }

  private func mount() throws {
    try Self.run(["mount"] + source + [directory.path])
    isMounted = true
    try #require(chmod(directory.path, 0o700) == 0)
  }

  /// Runs a program, which may be missing.
  private static func run(_ command: [String]) throws {
    // With these variables mkfs.xfs makes disks of less than 300 MiB, as its own tests need them.
    let variables = ["TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"]
    let child = try Child("/usr/bin/env", command, environment: variables, mergesErrors: true)
    let output = child.finish()
    if child.exitStatus != 0 { throw Failure(command: command, output: output) }
  }

  /// Takes all space, as a program does that writes a log, and returns the log.
  func fill() throws -> File {
    let log = try File(directory.file("log").path, .create)
    for size in [1 << 20, 1 << 16, 1 << 12, 1 << 8] {
      let bytes = [UInt8](repeating: 1, count: size)
      while (try? log.writeAll(bytes)) != nil {}
    }
    return log
  }

  /// Gives the space of the log back.
  func makeRoom(_ log: File) throws {
    try FileSystem.unlink(directory.file("log").path)
    try #require(ftruncate(log.descriptor, 0) == 0)
  }

  private func unmount() {
    guard isMounted else { return }
    umount2(directory.path, 2)  // MNT_DETACH: stores may be open
    isMounted = false
  }

  /// Waits until the stores have released their files, and mounts the disk again.
  func remount() async throws {
    let resources = HeldResources()
    resources.add(directory.path, "before it is mounted again")
    try await resources.expectReleased()
    // A process that another test is starting has all files open until it executes its program.
    try await eventually("\(directory.path) cannot be unmounted") {
      isMounted = umount(directory.path) != 0
      return !isMounted || errno != EBUSY
    }
    try #require(!isMounted)
    try mount()
  }

  /// Found by trying: a tool may be missing, and in some containers even root may not mount.
  static let isPossible = kinds.allSatisfy { (try? MountedDisk($0)) != nil }
}
