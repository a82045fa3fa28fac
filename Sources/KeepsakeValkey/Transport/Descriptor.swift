internal import KeepsakeLibc

/// Descriptors that the programs which this process starts do not inherit.
enum Descriptor {
  /// The smallest number that a descriptor may have. If the program has closed a standard stream,
  /// the system gives its number to the next descriptor, and what the program prints would be sent
  /// to the server.
  private static let first: Int32 = 3

  /// The descriptor that `body` opens; -1 with `errno` if it opens none.
  static func new(_ body: () -> Int32) -> Int32 {
    let descriptor = body()
    guard descriptor >= 0 else { return -1 }
    if descriptor >= first {
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      return descriptor
    }
    let replacement = fcntl(descriptor, F_DUPFD_CLOEXEC, first)
    let code = errno
    close(descriptor)
    // The first number is beyond the limit on descriptors.
    errno = replacement == -1 && code == EINVAL ? EMFILE : code
    return replacement
  }

  static func makeNonBlocking(_ descriptor: Int32) -> Bool {
    let flags = fcntl(descriptor, F_GETFL)
    return flags != -1 && fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != -1
  }
}
