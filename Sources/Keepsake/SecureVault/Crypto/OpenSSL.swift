#if SecureVault
internal import COpenSSL
internal import KeepsakeLibc

/// The parts of OpenSSL that this library uses.
///
/// Algorithms are fetched once and shared. Contexts live for one call, and OpenSSL wipes them when
/// they are freed.
enum OpenSSL {
  /// Unchecked because these are pointers. Fetched algorithms are immutable and safe to use from
  /// several threads at once (`crypto(7)`), and the HMAC context is only ever copied.
  struct Algorithms: @unchecked Sendable {
    let ecb: OpaquePointer
    let gcm: OpaquePointer
    let sha256: OpaquePointer
    let hkdf: OpaquePointer
    /// A context for HMAC-SHA-256 that has no key yet.
    let hmac: OpaquePointer
  }

  private static let fetched = Result { () throws(StorageError) in
    #if !os(Linux)
    // As CKeepsake does on Linux when the program starts.
    try OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil).check("initialization")
    #endif
    let mac = try required(EVP_MAC_fetch(nil, "HMAC", nil), "HMAC")
    let template = try required(EVP_MAC_CTX_new(mac), "HMAC")
    try EVP_MAC_CTX_set_params(template, [digestParameter, OSSL_PARAM_construct_end()])
      .check("HMAC-SHA-256")
    return Algorithms(
      ecb: try required(EVP_CIPHER_fetch(nil, "AES-256-ECB", nil), "AES-256-ECB"),
      gcm: try required(EVP_CIPHER_fetch(nil, "AES-256-GCM", nil), "AES-256-GCM"),
      sha256: try required(EVP_MD_fetch(nil, "SHA256", nil), "SHA-256"),
      hkdf: try required(EVP_KDF_fetch(nil, "HKDF", nil), "HKDF"), hmac: template)
  }

  static var algorithms: Algorithms {
    get throws(StorageError) { try fetched.get() }
  }

  /// Throws if OpenSSL returned no pointer.
  static func required(
    _ pointer: OpaquePointer?, _ what: String
  ) throws(StorageError) -> OpaquePointer {
    if let pointer { return pointer }
    throw failure(what)
  }

  /// An error with OpenSSL's own text, which never contains data.
  static func failure(_ what: String) -> StorageError {
    var reason = "OpenSSL failed (\(what))"
    if let text = ERR_reason_error_string(ERR_get_error()) {
      reason += ": \(String(cString: text))"
    }
    ERR_clear_error()
    return StorageError(
      .system(ENOTSUP), operation: "encrypt", reason: reason,
      remedy: "Check the installation of OpenSSL 3, its configuration and the free memory.")
  }

  /// An error for input that was checked here and not by OpenSSL.
  static func inputError(_ reason: String) -> StorageError {
    StorageError(
      .misuse, operation: "encrypt", reason: reason, remedy: "Report this as a bug in Keepsake.")
  }

  /// Overwrites memory in a way that the compiler does not optimize away.
  static func wipe(_ memory: UnsafeMutableRawBufferPointer) {
    if let start = memory.baseAddress { OPENSSL_cleanse(start, memory.count) }
  }

  /// The count as the type that OpenSSL expects.
  static func length(_ count: Int) throws(StorageError) -> Int32 {
    if let length = Int32(exactly: count) { return length }
    throw StorageError(
      .misuse, operation: "encrypt", reason: "\(count) bytes are too many for one call",
      remedy: "Store less under one key.")
  }

  /// Whether two secrets of the same length are equal, in constant time.
  static func areEqual(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
    a.count == b.count && CRYPTO_memcmp(a.baseAddress, b.baseAddress, a.count) == 0
  }

  // MARK: Parameters

  /// Names the hash function of an OpenSSL algorithm that is built on one.
  static var digestParameter: OSSL_PARAM {
    let (name, value) = ("digest" as StaticString, "SHA256" as StaticString)
    return OSSL_PARAM_construct_utf8_string(
      characters(name), UnsafeMutablePointer(mutating: characters(value)), 0)
  }

  /// A parameter of an OpenSSL function. `value` must outlive it.
  static func parameter(_ name: StaticString, _ value: UnsafeRawBufferPointer) -> OSSL_PARAM {
    // The pointer must be mutable, but OpenSSL only reads these parameters.
    OSSL_PARAM_construct_octet_string(
      characters(name), UnsafeMutableRawPointer(mutating: value.baseAddress), value.count)
  }

  /// The characters of a literal, which stay where they are and end with a zero.
  private static func characters(_ text: StaticString) -> UnsafePointer<CChar> {
    UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
  }
}

extension Int32 {
  /// Throws unless this is 1, which means success in all OpenSSL functions that are used here.
  func check(_ what: String) throws(StorageError) {
    if self != 1 { throw OpenSSL.failure(what) }
  }
}
#endif
