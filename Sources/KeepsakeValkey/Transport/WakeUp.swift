internal import Keepsake
internal import KeepsakeLibc

/// Ends a call of `poll` in another thread: a pair of sockets, one of which that thread waits for.
final class WakeUp: Sendable {
  let readEnd: Int32
  private let writeEnd: Int32
  private let readIdentity = DescriptorIdentity()
  private let writeIdentity = DescriptorIdentity()

  init() throws(StorageError) {
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Socket.streamType, 0, &ends) == 0 else { throw Self.failure(errno) }
    let read = Descriptor.new { ends[0] }
    let readError = errno
    let write = Descriptor.new { ends[1] }
    let writeError = errno
    guard read >= 0, write >= 0, Descriptor.makeNonBlocking(read),
      Descriptor.makeNonBlocking(write)
    else {
      if read >= 0 { close(read) }
      if write >= 0 { close(write) }
      throw Self.failure(read < 0 ? readError : writeError)
    }
    (readEnd, writeEnd) = (read, write)
    readIdentity.note(read)
    writeIdentity.note(write)
  }

  /// Whether the descriptors still lead to the two sockets.
  var isOpen: Bool { readIdentity.isKept(by: readEnd) && writeIdentity.isKept(by: writeEnd) }

  private static func failure(_ code: Int32) -> StorageError {
    StorageError(
      .system(code), operation: "connect",
      reason: "there are no sockets for the link (socketpair: \(String(cString: strerror(code))))",
      remedy: "Close files, or raise the limit on open descriptors.")
  }

  deinit { closeDescriptors() }

  func signal() {
    guard writeIdentity.isKept(by: writeEnd) else { return }
    var byte: UInt8 = 1
    // A full buffer wakes the thread as well.
    _ = send(writeEnd, &byte, 1, Socket.noSignal)
  }

  /// Forgets the signals so far.
  func reset() {
    withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
      while read(readEnd, buffer.baseAddress, buffer.count) > 0 {}
    }
  }

  /// In a forked child, for a link that the child does not use.
  func closeDescriptors() {
    if readIdentity.isKept(by: readEnd) { close(readEnd) }
    if writeIdentity.isKept(by: writeEnd) { close(writeEnd) }
  }
}
