#if SecureVault
internal import COpenSSL

/// HMAC-SHA-256 (RFC 2104) and SHA-256 (FIPS 180-4).
enum Digest {
  static let size = 32

  static func hmac(
    key: UnsafeRawBufferPointer, _ message: UnsafeRawBufferPointer
  ) throws(StorageError) -> [UInt8] {
    // Copies a context without a key: making a new one would look up the digest by its name.
    let context = try OpenSSL.required(
      EVP_MAC_CTX_dup(OpenSSL.algorithms.hmac), "HMAC-SHA-256")
    defer { EVP_MAC_CTX_free(context) }
    try EVP_MAC_init(context, key.bytePointer, key.count, nil).check("HMAC-SHA-256")
    try EVP_MAC_update(context, message.bytePointer, message.count).check("HMAC-SHA-256")
    var code = [UInt8](repeating: 0, count: size)
    var count = 0
    try EVP_MAC_final(context, &code, &count, size).check("HMAC-SHA-256")
    guard count == size else { throw OpenSSL.failure("HMAC-SHA-256") }
    return code
  }

  static func sha256(_ message: UnsafeRawBufferPointer) throws(StorageError) -> [UInt8] {
    var sum = [UInt8](repeating: 0, count: size)
    var count: UInt32 = 0
    try EVP_Digest(
      message.baseAddress, message.count, &sum, &count, OpenSSL.algorithms.sha256, nil
    ).check("SHA-256")
    guard count == UInt32(size) else { throw OpenSSL.failure("SHA-256") }
    return sum
  }
}

/// Derives keys from secrets and from passphrases.
enum KeyDerivation {
  /// HKDF-SHA-256 (RFC 5869), for secrets that cannot be guessed.
  static func hkdf(
    _ secret: UnsafeRawBufferPointer, salt: [UInt8], info: [UInt8],
    into output: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    let context = try OpenSSL.required(EVP_KDF_CTX_new(OpenSSL.algorithms.hkdf), "HKDF")
    defer { EVP_KDF_CTX_free(context) }
    let result = salt.withUnsafeBytes { salt in
      info.withUnsafeBytes { info in
        EVP_KDF_derive(
          context, output.bytePointer, output.count,
          [
            OpenSSL.digestParameter, OpenSSL.parameter("key", secret),
            OpenSSL.parameter("salt", salt), OpenSSL.parameter("info", info),
            OSSL_PARAM_construct_end(),
          ])
      }
    }
    try result.check("HKDF-SHA-256")
  }

  private static let scryptLock = Locked(())

  /// scrypt (RFC 7914), for passphrases. One thread at a time: it usually takes 128 MiB.
  ///
  /// - Parameters:
  ///   - logN: The binary logarithm of N, which determines memory and time.
  ///   - r: The block size. It takes 128 x N x r bytes of memory.
  static func scrypt(
    _ passphrase: UnsafeRawBufferPointer, salt: UnsafeRawBufferPointer, logN: UInt8, r: UInt64 = 8,
    p: UInt64 = 1, into output: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    // As much as it needs: OpenSSL's default limit is below the usual cost.
    let memory = 128 * r * ((1 << UInt64(logN)) + p + 2) + (2 << 20)
    try scryptLock.withLock { _ throws(StorageError) in
      try EVP_PBE_scrypt(
        passphrase.baseAddress?.assumingMemoryBound(to: CChar.self), passphrase.count,
        salt.bytePointer, salt.count, 1 << UInt64(logN), r, p, memory, output.bytePointer,
        output.count
      ).check("scrypt")
    }
  }
}
#endif
