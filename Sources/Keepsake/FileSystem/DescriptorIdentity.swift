internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// Which file a descriptor led to when it was opened.
///
/// A number is only a way to a file: a program that calls `closefrom`, as daemons do, closes the
/// descriptors of its libraries too, and the files that it opens next get their numbers. So a
/// descriptor that stays open between calls is compared with this before it is used or closed.
///
/// The library may open the same file again under its old number. Only the identity that was noted
/// last for a number keeps it, so that an older one does not close the new descriptor.
package struct DescriptorIdentity: ~Copyable, Sendable {
  private let device = Atomic<UInt64>(0)
  private let inode = Atomic<UInt64>(0)
  /// Tells apart the identities of files; 0 for a socket, which cannot be opened again.
  private let token = Atomic<UInt64>(0)

  package init() {}

  func note(_ status: FileStatus, of descriptor: Int32) {
    note(status)
    let token = Self.lastToken.add(1, ordering: .relaxed).newValue
    self.token.store(token, ordering: .relaxed)
    Self.latestToken(of: descriptor)?.pointee.store(token, ordering: .relaxed)
  }

  /// Notes a socket. Several identities may note the same one.
  package func note(_ descriptor: Int32) {
    var raw = keepsake_status()
    if keepsake_stat(descriptor, nil, true, false, &raw) == 0 { note(FileStatus(raw)) }
  }

  func isSame(as status: FileStatus) -> Bool {
    status.inode == inode.load(ordering: .relaxed)
      && status.device == device.load(ordering: .relaxed)
  }

  private func note(_ status: FileStatus) {
    device.store(status.device, ordering: .relaxed)
    inode.store(status.inode, ordering: .relaxed)
  }

  /// Whether the descriptor still leads to the file; true if none was noted.
  ///
  /// - Parameter answer: The answer if the file system has lost its server. Such a descriptor is of
  ///   no use, but must be closed.
  @inline(never)
  package func isKept(by descriptor: Int32, ifUnreachable answer: Bool = false) -> Bool {
    if inode.load(ordering: .relaxed) == 0 { return true }
    let token = token.load(ordering: .relaxed)
    if token != 0, let latest = Self.latestToken(of: descriptor),
      latest.pointee.load(ordering: .relaxed) != token
    {
      return false
    }
    var raw = keepsake_status()
    guard keepsake_stat(descriptor, nil, true, false, &raw) == 0 else {
      return answer && errno != EBADF
    }
    return isSame(as: FileStatus(raw))
  }

  private static let lastToken = Atomic<UInt64>(0)

  /// For each descriptor, the token of the identity that was noted last.
  ///
  /// Unchecked because it holds a pointer: its memory is only accessed atomically and is never
  /// released.
  private struct LatestTokens: @unchecked Sendable {
    static let count = 4_096
    let start = UnsafeMutablePointer<Atomic<UInt64>>.allocate(capacity: count)

    init() { for number in 0..<Self.count { (start + number).initialize(to: Atomic(0)) } }
  }

  private static let latestTokens = LatestTokens()

  /// nil for a large number, of which only the file is compared.
  private static func latestToken(of descriptor: Int32) -> UnsafeMutablePointer<Atomic<UInt64>>? {
    (0..<LatestTokens.count).contains(Int(descriptor))
      ? latestTokens.start + Int(descriptor) : nil
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
