import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A small disk with a file system, mounted on a directory of its own; needs root and mkfs(8).
///
/// Unmounted with the last reference.
final class MountedDisk {
  static let kinds = ["ext4", "btrfs", "xfs"]

  let directory: TemporaryDirectory
  private let image: TemporaryDirectory
  private let kind: String
  private var isMounted = false

  init(_ kind: String) throws {
    self.kind = kind
    image = try TemporaryDirectory(isQuick: true)
    directory = try TemporaryDirectory(isQuick: true)
    let path = image.file("disk").path
    // btrfs needs 109 MiB. The image takes only as much space as is written.
    try #require(FileManager.default.createFile(atPath: path, contents: nil))
    try #require(truncate(path, 120 << 20) == 0)
    let force = kind == "ext4" ? "-F" : "-f"
    // With these variables mkfs.xfs makes disks of less than 300 MiB, as its own tests need them.
    let variables = ["TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"]
    let mkfs = try Child(
      "mkfs.\(kind)", ["-q", force, path], environment: variables, mergesErrors: true)
    let said = mkfs.finish()
    try #require(mkfs.exitStatus == 0, "mkfs.\(kind): \(said)")
    try mount()
  }

  deinit { unmount() }

  func mount() throws {
    let child = try Child(
      "mount", ["-o", "loop", image.file("disk").path, directory.path], mergesErrors: true)
    let said = child.finish()
    try #require(child.exitStatus == 0, "\(said)")
    isMounted = true
    try #require(chmod(directory.path, 0o700) == 0)
  }

  func unmount() {
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
