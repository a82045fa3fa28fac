internal import COpenSSLTLS
internal import Keepsake
internal import KeepsakeLibc

/// The encryption of one connection (TLS 1.2 or newer).
///
/// It verifies that an authority issued the server's certificate, and that the certificate is for
/// the host of the URL. OpenSSL's state is for one thread at a time: the link's lock sees to that.
final class TLSSession {
  private let session: OpaquePointer
  private let server: ServerAddress
  /// Whether the last call of ``receive(_:)`` or ``handshake()`` can only go on after something has
  /// been sent, and the last one of ``send(_:)`` after something has arrived: when both sides agree
  /// on keys.
  private(set) var receiveWantsOutput = false
  private(set) var sendWantsInput = false
  /// Whether the server has asked for the client's certificate.
  private var isCertificateWanted = false
  /// Why the connection has ended, as OpenSSL says it. With TLS 1.3, the server refuses a
  /// certificate after the handshake.
  private var endReason: String?

  init(
    _ context: TLSContext, _ socket: Socket, _ server: ServerAddress
  ) throws(StorageError) {
    ERR_clear_error()
    guard let session = context.makeSession() else { throw TLSContext.failure(server) }
    guard let bio = SocketBIO.make(socket) else {
      SSL_free(session)
      throw TLSContext.failure(server)
    }
    SSL_set_bio(session, bio, bio)  // it owns them now
    self.session = session
    self.server = server
    guard case .tcp(let host, _) = server.endpoint, setExpectedName(host) else {
      throw TLSContext.failure(server)
    }
    SSL_set_connect_state(session)
    // Called when the server asks for a certificate. The state of OpenSSL ends before this does.
    SSL_set_cert_cb(
      session,
      { _, session in
        if let session {
          let session = Unmanaged<TLSSession>.fromOpaque(session).takeUnretainedValue()
          session.isCertificateWanted = true
        }
        return 1
      }, Unmanaged.passUnretained(self).toOpaque())
  }

  /// The error if the server has ended the connection after it had asked for a certificate.
  var certificateRefusal: StorageError? {
    isCertificateWanted ? .certificateRefused(server, endReason) : nil
  }

  deinit { SSL_free(session) }

  /// A name is also sent to the server, which may have a certificate for each of its names.
  private func setExpectedName(_ host: String) -> Bool {
    // The zone of a link-local address is no part of a certificate.
    let address = String(host.prefix { $0 != "%" })
    // The subject of a certificate is no list of hosts.
    SSL_set_hostflags(session, UInt32(X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
    if X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), address) == 1 { return true }
    ERR_clear_error()
    guard SSL_set1_host(session, host) == 1 else { return false }
    return host.withCString { name in
      SSL_ctrl(
        session, SSL_CTRL_SET_TLSEXT_HOSTNAME, Int(TLSEXT_NAMETYPE_host_name),
        UnsafeMutableRawPointer(mutating: name)) == 1
    }
  }

  /// Goes on with the handshake as far as possible without waiting.
  ///
  /// - Returns: Whether it is done.
  func handshake() throws(StorageError) -> Bool {
    ERR_clear_error()
    receiveWantsOutput = false
    let result = SSL_do_handshake(session)
    if result == 1 {
      // Some ciphers need none.
      guard let certificate = SSL_get1_peer_certificate(session) else { throw handshakeFailure() }
      X509_free(certificate)
      guard SSL_get_verify_result(session) == Int(X509_V_OK) else { throw handshakeFailure() }
      return true
    }
    let code = SSL_get_error(session, result)
    receiveWantsOutput = code == SSL_ERROR_WANT_WRITE
    guard code == SSL_ERROR_WANT_READ || receiveWantsOutput else { throw handshakeFailure() }
    return false
  }

  private func handshakeFailure() -> StorageError {
    let verification = SSL_get_verify_result(session)
    if verification != Int(X509_V_OK) {
      ERR_clear_error()
      let text = String(cString: X509_verify_cert_error_string(verification))
      return StorageError(
        .accessDenied, operation: "connect", path: server.description,
        reason: "the server's certificate is not valid for this host (\(text))",
        remedy: "Use the host's name that the certificate has, and name its authority with ?ca=.")
    }
    takeEndReason()
    if let certificateRefusal { return certificateRefusal }
    return StorageError(
      .unreachable, operation: "connect", path: server.description,
      reason: "the server ended the TLS handshake" + (endReason.map { " (\($0))" } ?? ""),
      remedy: "Check that this port of the server is its port for TLS.")
  }

  private func takeEndReason() {
    endReason = ERR_reason_error_string(ERR_peek_last_error()).map { String(cString: $0) }
    ERR_clear_error()
  }

  /// Whether something that was received has not been read.
  var hasBufferedInput: Bool { SSL_has_pending(session) == 1 }

  func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Socket.Result {
    ERR_clear_error()
    var count = 0
    let result = SSL_read_ex(session, buffer.baseAddress, buffer.count, &count)
    receiveWantsOutput = result != 1 && SSL_get_error(session, result) == SSL_ERROR_WANT_WRITE
    return result == 1 ? .count(count) : failure(result)
  }

  func send(_ bytes: UnsafeRawBufferPointer) -> Socket.Result {
    ERR_clear_error()
    var count = 0
    let result = SSL_write_ex(session, bytes.baseAddress, bytes.count, &count)
    sendWantsInput = result != 1 && SSL_get_error(session, result) == SSL_ERROR_WANT_READ
    return result == 1 ? .count(count) : failure(result)
  }

  private func failure(_ result: Int32) -> Socket.Result {
    switch SSL_get_error(session, result) {
    case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: return .wouldBlock
    // The server ended the connection, with or without a word.
    default:
      takeEndReason()
      return .end
    }
  }
}

/// Lets OpenSSL read from and write to a ``Socket``. After the server has closed the connection,
/// OpenSSL's own way to write raises SIGPIPE, which ends a process.
private enum SocketBIO {
  /// Unsafe because it is a pointer, to what is never changed or freed.
  private nonisolated(unsafe) static let method: OpaquePointer? = {
    let type = BIO_get_new_index() | BIO_TYPE_SOURCE_SINK
    guard let method = BIO_meth_new(type, "keepsake socket") else { return nil }
    let isComplete =
      BIO_meth_set_write_ex(method) { bio, bytes, count, written in
        guard let socket = SocketBIO.socket(bio) else { return 0 }
        BIO_clear_flags(bio, flags)
        let result = socket.send(UnsafeRawBufferPointer(start: bytes, count: count))
        return SocketBIO.finish(bio, result, BIO_FLAGS_WRITE, written)
      } == 1
      && BIO_meth_set_read_ex(method) { bio, bytes, count, read in
        guard let socket = SocketBIO.socket(bio) else { return 0 }
        BIO_clear_flags(bio, flags)
        let result = socket.receive(UnsafeMutableRawBufferPointer(start: bytes, count: count))
        return SocketBIO.finish(bio, result, BIO_FLAGS_READ, read)
      } == 1
      && BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 } == 1
      && BIO_meth_set_destroy(method) { bio in
        if let data = BIO_get_data(bio) { Unmanaged<Socket>.fromOpaque(data).release() }
        BIO_set_data(bio, nil)
        return 1
      } == 1
    return isComplete ? method : nil
  }()

  /// A BIO that keeps the socket open.
  static func make(_ socket: Socket) -> OpaquePointer? {
    guard let method, let bio = BIO_new(method) else { return nil }
    BIO_set_data(bio, Unmanaged.passRetained(socket).toOpaque())
    BIO_set_init(bio, 1)
    return bio
  }

  /// The flags that say that an operation must be repeated.
  private static let flags =
    BIO_FLAGS_READ | BIO_FLAGS_WRITE | BIO_FLAGS_IO_SPECIAL | BIO_FLAGS_SHOULD_RETRY

  private static func socket(_ bio: OpaquePointer?) -> Socket? {
    BIO_get_data(bio).map { Unmanaged<Socket>.fromOpaque($0).takeUnretainedValue() }
  }

  private static func finish(
    _ bio: OpaquePointer?, _ result: Socket.Result, _ direction: Int32,
    _ moved: UnsafeMutablePointer<Int>?
  ) -> Int32 {
    switch result {
    case .count(let count):
      moved?.pointee = count
      return 1
    case .wouldBlock:
      BIO_set_flags(bio, direction | BIO_FLAGS_SHOULD_RETRY)
      return 0
    case .end, .failed: return 0
    }
  }
}
