internal import Keepsake
internal import KeepsakeLibc

/// Ends a call of `poll` in another thread: a pair of sockets, one of which that thread waits for.
struct WakeUp: Sendable {
  let readEnd: Socket
  private let writeEnd: Socket

  init() throws(StorageError) {
    do throws(Socket.ConnectFailure) {
      (readEnd, writeEnd) = try Socket.pair()
    } catch {
      throw StorageError(
        .system(error.errno), operation: "connect",
        reason: "there are no sockets for the link "
          + "(\(error.call): \(String(cString: strerror(error.errno))))",
        remedy: "Close files, or raise the limit on open descriptors.")
    }
  }

  /// Whether the descriptors still lead to the two sockets.
  var isOpen: Bool { readEnd.isOpen && writeEnd.isOpen }

  func signal() {
    // A full buffer wakes the thread as well.
    _ = withUnsafeBytes(of: 1 as UInt8) { writeEnd.send($0) }
  }

  /// Forgets the signals so far.
  func reset() {
    withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
      while case .count = readEnd.receive(buffer) {}
    }
  }

  /// In a forked child, for a link that the child does not use.
  func closeInherited() {
    readEnd.closeInherited()
    writeEnd.closeInherited()
  }
}
