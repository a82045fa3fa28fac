internal import COpenSSLTLS
internal import Keepsake
internal import KeepsakeLibc

/// What the connections of a link have in common: the authorities that may have issued the server's
/// certificate.
///
/// Unchecked because it holds a pointer. OpenSSL counts its references atomically, and nothing
/// changes it after it has been made.
final class TLSContext: @unchecked Sendable {
  private let context: OpaquePointer

  init(_ server: ServerAddress) throws(StorageError) {
    ERR_clear_error()
    guard let context = SSL_CTX_new(TLS_client_method()) else { throw Self.failure(server) }
    // Before the first use: otherwise OpenSSL frees what the link's thread uses when the program
    // exits.
    guard OPENSSL_init_ssl(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1 else {
      throw Self.failure(server)
    }
    self.context = context
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nil)
    guard SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(TLS1_2_VERSION), nil) == 1
    else {
      throw Self.failure(server)
    }
    // What a write has not sent stays in a buffer that may move before the next attempt.
    let modes = Int(SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER)
    _ = SSL_CTX_ctrl(context, SSL_CTRL_MODE, modes, nil)
    if let authorities = server.authorities {
      guard SSL_CTX_load_verify_locations(context, authorities, nil) == 1 else {
        ERR_clear_error()
        throw StorageError(
          .misuse, operation: "connect", path: authorities,
          reason: "the certificates of the authorities cannot be read",
          remedy: "Name a readable file of certificates in PEM with ?ca= in the URL.")
      }
    } else if SSL_CTX_set_default_verify_paths(context) != 1 {
      throw Self.failure(server)
    }
  }

  deinit { SSL_CTX_free(context) }

  /// The state of a new connection; nil if there is no memory for it.
  func makeSession() -> OpaquePointer? { SSL_new(context) }

  static func failure(_ server: ServerAddress) -> StorageError {
    var reason = "OpenSSL failed"
    if let text = ERR_reason_error_string(ERR_get_error()) {
      reason += ": \(String(cString: text))"
    }
    ERR_clear_error()
    return StorageError(
      .system(ENOTSUP), operation: "connect", path: server.description, reason: reason,
      remedy: "Check the installation of OpenSSL 3, its configuration and the free memory.")
  }
}
