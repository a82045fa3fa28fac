#if SecureVault
internal import COpenSSL
internal import KeepsakeLibc

/// What this library uses of OpenSSL: algorithms are fetched once and shared, contexts live for one
/// call and are wiped when they are freed.
enum OpenSSL {
  /// Unchecked because these are pointers: fetched algorithms are never changed and safe to use
  /// from several threads at once (`crypto(7)`), and the template of an HMAC is only ever copied.
  struct Algorithms: @unchecked Sendable {
    let ecb: OpaquePointer
    let gcm: OpaquePointer
    let sha256: OpaquePointer
    let hkdf: OpaquePointer
    /// HMAC-SHA-256 without a key.
    let hmac: OpaquePointer
  }

  private static let fetched: Result<Algorithms, StorageError> = {
    do throws(StorageError) {
      let mac = try required(EVP_MAC_fetch(nil, "HMAC", nil), "HMAC")
      let template = try required(EVP_MAC_CTX_new(mac), "HMAC")
      try withParameters([(OSSL_MAC_PARAM_DIGEST, .text("SHA256"))]) {
        EVP_MAC_CTX_set_params(template, $0)
      }.check("HMAC-SHA-256")
      return .success(
        Algorithms(
          ecb: try required(EVP_CIPHER_fetch(nil, "AES-256-ECB", nil), "AES-256-ECB"),
          gcm: try required(EVP_CIPHER_fetch(nil, "AES-256-GCM", nil), "AES-256-GCM"),
          sha256: try required(EVP_MD_fetch(nil, "SHA256", nil), "SHA-256"),
          hkdf: try required(EVP_KDF_fetch(nil, "HKDF", nil), "HKDF"),
          hmac: template))
    } catch {
      return .failure(error)
    }
  }()

  static var algorithms: Algorithms {
    get throws(StorageError) { try fetched.get() }
  }

  /// A pointer that OpenSSL must not have refused to make.
  static func required(
    _ pointer: OpaquePointer?, _ what: String
  ) throws(StorageError) -> OpaquePointer {
    if let pointer { return pointer }
    throw failure(what)
  }

  /// What went wrong in OpenSSL's words, which name no data.
  static func failure(_ what: String) -> StorageError {
    var reason = "OpenSSL cannot do \(what)"
    if let text = ERR_reason_error_string(ERR_get_error()) {
      reason += ": \(String(cString: text))"
    }
    ERR_clear_error()
    return StorageError(
      .system(ENOTSUP), operation: "encrypt", reason: reason,
      remedy: "Check the installation and configuration of OpenSSL 3 and the free memory.")
  }

  /// Makes memory forget what it held; the compiler does not take that away.
  static func wipe(_ memory: UnsafeMutableRawBufferPointer) {
    if let start = memory.baseAddress { OPENSSL_cleanse(start, memory.count) }
  }

  /// Fills memory with random bytes; those of keys come from a generator of their own.
  static func randomize(
    _ memory: UnsafeMutableRawBufferPointer, forKey isKey: Bool = false
  ) throws(StorageError) {
    let (start, count) = (memory.bytePointer, try length(memory.count))
    try (isKey ? RAND_priv_bytes(start, count) : RAND_bytes(start, count)).check("random bytes")
  }

  static func randomBytes(_ count: Int) throws(StorageError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    try span.withUnsafeMutableBytes { bytes throws(StorageError) in try randomize(bytes) }
    return bytes
  }

  /// A length as OpenSSL takes it.
  static func length(_ count: Int) throws(StorageError) -> Int32 {
    if let length = Int32(exactly: count) { return length }
    throw StorageError(
      .misuse, operation: "encrypt", reason: "\(count) bytes at once are too many",
      remedy: "Store less under one key.")
  }

  /// Whether two secrets of one length are equal, in a time that does not depend on where they
  /// differ.
  static func areEqual(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
    a.count == b.count && CRYPTO_memcmp(a.baseAddress, b.baseAddress, a.count) == 0
  }

  // MARK: Parameters

  enum Parameter {
    case text(String)
    case bytes(UnsafeRawBufferPointer)
  }

  /// Calls an OpenSSL function with a list of named parameters; its result, or 0 without memory for
  /// it.
  static func withParameters(
    _ list: [(name: String, value: Parameter)], _ function: ([OSSL_PARAM]) -> Int32
  ) -> Int32 {
    var texts: [UnsafeMutablePointer<CChar>?] = []
    defer { for text in texts { free(text) } }
    func kept(_ text: String) -> UnsafeMutablePointer<CChar>? {
      texts.append(strdup(text))
      return texts.last ?? nil
    }
    var parameters: [OSSL_PARAM] = []
    for (name, value) in list {
      switch value {
      case .text(let text):
        parameters.append(OSSL_PARAM_construct_utf8_string(kept(name), kept(text), 0))
      case .bytes(let bytes):
        // OpenSSL only reads what is set, though the pointer's type does not say so.
        let start = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
        parameters.append(OSSL_PARAM_construct_octet_string(kept(name), start, bytes.count))
      }
    }
    parameters.append(OSSL_PARAM_construct_end())
    // One without a name would be taken for the end of the list.
    return texts.contains { $0 == nil } ? 0 : function(parameters)
  }
}

extension Int32 {
  /// Throws unless an OpenSSL function returned 1, which stands for success in all that are used
  /// here.
  func check(_ what: String) throws(StorageError) {
    if self != 1 { throw OpenSSL.failure(what) }
  }
}
#endif
