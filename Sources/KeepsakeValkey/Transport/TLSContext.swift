internal import COpenSSLTLS
internal import Keepsake
internal import KeepsakeLibc

/// What the connections of a link have in common: the authorities that may have issued the server's
/// certificate, the client's own certificate, and the ciphers.
///
/// The client's configuration of OpenSSL does not weaken them: it applies before what is set here.
///
/// Unchecked because it holds a pointer. OpenSSL counts its references atomically, and nothing
/// changes it after it has been made.
final class TLSContext: @unchecked Sendable {
  private let context: OpaquePointer

  init(_ server: ServerAddress) throws(StorageError) {
    // Before the first use: otherwise OpenSSL frees what the link's thread uses when the program
    // exits.
    guard OPENSSL_init_ssl(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1 else {
      throw Self.failure(server)
    }
    ERR_clear_error()
    guard let context = SSL_CTX_new(TLS_client_method()) else { throw Self.failure(server) }
    self.context = context
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nil)
    SSL_CTX_set_security_level(context, max(2, SSL_CTX_get_security_level(context)))
    guard SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, Int(TLS1_2_VERSION), nil) == 1,
      SSL_CTX_set_cipher_list(context, Self.ciphers) == 1,
      SSL_CTX_set_ciphersuites(context, Self.ciphersOfTLS13) == 1
    else {
      throw Self.failure(server)
    }
    SSL_CTX_clear_options(context, Self.unsafeOptions)
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
    if let certificate = server.certificate {
      try use(certificate, key: server.key ?? certificate)
    }
  }

  /// Those of TLS 1.2 with forward secrecy, a certificate and authenticated encryption.
  private static let ciphers =
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:"
    + "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"
  private static let ciphersOfTLS13 =
    "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"

  /// For servers that lack a protection which all others have.
  private static let unsafeOptions =
    UInt64(1) << 2  // SSL_OP_LEGACY_SERVER_CONNECT
    | 1 << 18  // SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION
    | 1 << 10  // SSL_OP_ALLOW_NO_DHE_KEX
    | 1 << 0  // SSL_OP_NO_EXTENDED_MASTER_SECRET

  /// Reads the client's certificate, with the intermediate certificates, and its key.
  private func use(_ certificate: String, key: String) throws(StorageError) {
    // Otherwise OpenSSL asks for the password of an encrypted key at the terminal.
    SSL_CTX_set_default_passwd_cb(context) { _, _, _, _ in 0 }
    let problem: (path: String, reason: String)? =
      if SSL_CTX_use_certificate_chain_file(context, certificate) != 1 {
        (certificate, "the client's certificate cannot be read")
      } else if SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1
        || SSL_CTX_check_private_key(context) != 1
      {
        (key, "the key of the client's certificate cannot be read, or does not belong to it")
      } else {
        nil
      }
    guard let problem else { return }
    ERR_clear_error()
    throw StorageError(
      .misuse, operation: "connect", path: problem.path, reason: problem.reason,
      remedy: "Name readable files in PEM with ?cert= and &key= in the URL, the key without a "
        + "password.")
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
