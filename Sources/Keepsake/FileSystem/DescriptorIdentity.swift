internal import CKeepsake
internal import Synchronization

/// Which file a descriptor led to when it was opened.
///
/// A number is only a way to a file: a program that calls `closefrom`, as daemons do, closes the
/// descriptors of its libraries too, and the files that it opens next get their numbers. So a
/// descriptor that stays open between calls is compared with this before it is used or closed.
package struct DescriptorIdentity: ~Copyable, Sendable {
  private let device = Atomic<UInt64>(0)
  private let inode = Atomic<UInt64>(0)

  package init() {}

  func note(_ status: FileStatus) {
    device.store(status.device, ordering: .relaxed)
    inode.store(status.inode, ordering: .relaxed)
  }

  package func note(_ descriptor: Int32) {
    if let status = Self.status(of: descriptor) { note(status) }
  }

  func isOfFile(_ status: FileStatus) -> Bool {
    status.inode == inode.load(ordering: .relaxed)
      && status.device == device.load(ordering: .relaxed)
  }

  /// Whether the descriptor still leads to the file; true if none was noted.
  @inline(never)
  package func isKept(by descriptor: Int32) -> Bool {
    if inode.load(ordering: .relaxed) == 0 { return true }
    return Self.status(of: descriptor).map { isOfFile($0) } ?? false
  }

  /// nil if nothing is open under this number; there is no other error.
  private static func status(of descriptor: Int32) -> FileStatus? {
    var raw = keepsake_status()
    return keepsake_stat(descriptor, nil, true, false, &raw) == 0 ? FileStatus(raw) : nil
  }
}

extension StorageError {
  /// Counts as a missing file: a store that keeps the file open opens it again.
  static func closed(_ operation: String, _ path: String) -> StorageError {
    StorageError(
      .notFound, operation: operation, path: path,
      reason: "the program has closed the descriptor of the file", remedy: "Try again.")
  }
}
