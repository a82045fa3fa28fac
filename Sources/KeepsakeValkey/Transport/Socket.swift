internal import Keepsake
internal import KeepsakeLibc

/// A stream socket that never blocks. It is closed with its last reference.
final class Socket: Sendable {
  let descriptor: Int32

  private let identity = DescriptorIdentity()

  /// A socket of the descriptor that the system returned for a call.
  private init(_ number: Int32, from call: String) throws(ConnectFailure) {
    let descriptor = number >= 0 ? Self.usable(number) : -1
    guard descriptor >= 0 else { throw ConnectFailure(call: call, errno: errno) }
    self.descriptor = descriptor
    identity.note(descriptor)
    let flags = fcntl(descriptor, F_GETFL)
    guard flags != -1, fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != -1 else {
      throw ConnectFailure(call: "fcntl", errno: errno)
    }
  }

  /// The smallest number that a descriptor may have. If the program has closed a standard stream,
  /// the system gives its number to the next descriptor, and what the program prints would be sent
  /// to the server.
  private static let firstNumber: Int32 = 3

  /// The number to use for a descriptor, which the programs that this process starts do not
  /// inherit; -1 with `errno` if there is none.
  private static func usable(_ descriptor: Int32) -> Int32 {
    if descriptor >= firstNumber {
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      return descriptor
    }
    let replacement = fcntl(descriptor, F_DUPFD_CLOEXEC, firstNumber)
    let code = errno
    close(descriptor)
    // The first number is beyond the limit on descriptors.
    errno = replacement == -1 && code == EINVAL ? EMFILE : code
    return replacement
  }

  deinit { closeInherited() }

  /// In a forked child, for a socket that is never released there.
  func closeInherited() { if isOpen { close(descriptor) } }

  /// Whether the descriptor still leads to the socket.
  var isOpen: Bool { identity.isKept(by: descriptor) }

  enum Result: Sendable {
    /// So many bytes were moved.
    case count(Int)
    /// Nothing can be moved now.
    case wouldBlock
    /// The other side has ended the connection.
    case end
    case failed(errno: Int32)
  }

  // MARK: Connecting

  struct ConnectFailure: Error {
    let call: String
    let errno: Int32
  }

  /// Descriptors are not inherited from the moment on at which they exist, if the system can.
  static var streamType: Int32 {
    #if canImport(Glibc)
    Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    #elseif canImport(Darwin)
    SOCK_STREAM
    #else
    SOCK_STREAM | SOCK_CLOEXEC
    #endif
  }

  /// Begins to connect. The socket becomes writable when it is connected, or has failed.
  static func connect(to address: SocketAddress) throws(ConnectFailure) -> Socket {
    let socket = try Socket(KeepsakeLibc.socket(address.family, streamType, 0), from: "socket")
    #if canImport(Darwin)
    // In place of MSG_NOSIGNAL.
    socket.set(SOL_SOCKET, SO_NOSIGPIPE, 1)
    #endif
    if address.family != AF_UNIX { socket.setOptions() }
    let result = address.bytes.withUnsafeBytes { bytes in
      guard let start = bytes.baseAddress else {
        errno = EINVAL
        return Int32(-1)
      }
      return KeepsakeLibc.connect(
        socket.descriptor, start.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
    }
    // A call that a signal interrupted goes on in the background, too.
    guard result == 0 || errno == EINPROGRESS || errno == EINTR else {
      throw ConnectFailure(call: "connect", errno: errno)
    }
    return socket
  }

  /// Two sockets that are connected to each other.
  static func pair() throws(ConnectFailure) -> (Socket, Socket) {
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, streamType, 0, &ends) == 0 else {
      throw ConnectFailure(call: "socketpair", errno: errno)
    }
    // Each is closed if the other cannot be used.
    let sockets = ends.map { end in
      Swift.Result { () throws(ConnectFailure) in try Socket(end, from: "socketpair") }
    }
    return (try sockets[0].get(), try sockets[1].get())
  }

  /// Sends small requests at once, and lets the system notice that the other side is gone. A
  /// failure only costs time, so it is not reported.
  private func setOptions() {
    set(Int32(IPPROTO_TCP), TCP_NODELAY, 1)
    set(SOL_SOCKET, SO_KEEPALIVE, 1)
    #if os(Linux)
    set(Int32(IPPROTO_TCP), TCP_KEEPIDLE, 15)
    set(Int32(IPPROTO_TCP), TCP_KEEPINTVL, 5)
    set(Int32(IPPROTO_TCP), TCP_KEEPCNT, 3)
    #endif
  }

  private func set(_ level: Int32, _ option: Int32, _ value: Int32) {
    var value = value
    _ = setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
  }

  /// Why the connection failed, once the socket has become writable; nil if it did not.
  var connectFailure: ConnectFailure? {
    var code: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    if getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) != 0 { code = errno }
    return code == 0 ? nil : ConnectFailure(call: "connect", errno: code)
  }

  // MARK: Reading and writing

  func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Result {
    guard isOpen else { return .end }
    while true {
      let count = recv(descriptor, buffer.baseAddress, buffer.count, 0)
      if count > 0 { return .count(count) }
      if count == 0 { return .end }
      if let result = Self.failure() { return result }
    }
  }

  func send(_ bytes: UnsafeRawBufferPointer) -> Result {
    guard isOpen else { return .end }
    while true {
      let count = KeepsakeLibc.send(descriptor, bytes.baseAddress, bytes.count, Self.noSignal)
      if count >= 0 { return .count(count) }
      if let result = Self.failure() { return result }
    }
  }

  /// What the last call's error means; nil if the call must be repeated.
  private static func failure() -> Result? {
    switch errno {
    case EINTR: nil
    case EAGAIN, EWOULDBLOCK: .wouldBlock
    case ECONNRESET, EPIPE: .end
    case let code: .failed(errno: code)
    }
  }

  /// A connection that the other side has closed must not end the process by SIGPIPE.
  static var noSignal: Int32 {
    #if canImport(Glibc)
    Int32(MSG_NOSIGNAL)
    #elseif canImport(Darwin)
    0
    #else
    MSG_NOSIGNAL
    #endif
  }

  /// Ends the connection for both sides, and the calls of `poll` that wait for it. The descriptor
  /// stays open, because another thread may be waiting for it.
  func shutDown() { if isOpen { _ = shutdown(descriptor, Int32(SHUT_RDWR)) } }

  /// Waits for one of these events of `poll`, or the end of the connection.
  func wait(for events: Int16, timeout: Duration) {
    var entry = pollfd(fd: descriptor, events: events, revents: 0)
    _ = poll(&entry, 1, timeout.pollTimeout)
  }
}

extension Duration {
  /// The time for `poll`, in whole milliseconds, rounded up.
  var pollTimeout: Int32 {
    if self <= .zero { return 0 }
    let limit = Duration.seconds(600)
    let (seconds, attoseconds) = (self < limit ? self : limit).components
    return Int32(
      truncatingIfNeeded: seconds * 1_000 + (attoseconds + 999_999_999_999_999)
        / 1_000_000_000_000_000)
  }
}
