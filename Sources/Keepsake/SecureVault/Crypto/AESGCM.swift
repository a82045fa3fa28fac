#if SecureVault
internal import COpenSSL

/// Seals and opens messages with AES-256-GCM (NIST SP 800-38D), one at a time and in pieces.
///
/// OpenSSL's context holds the key, and lives as long as this value.
struct AESGCM: ~Copyable {
  static let keySize = 32
  static let nonceSize = 12
  static let tagSize = 16

  enum Direction: Int32 {
    case opening = 0
    case sealing = 1
  }

  private let context: OpaquePointer

  init() throws(StorageError) {
    context = try OpenSSL.required(EVP_CIPHER_CTX_new(), "AES-256-GCM")
  }

  deinit { EVP_CIPHER_CTX_free(context) }

  /// Begins a message.
  func begin(
    _ direction: Direction, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    guard key.count == Self.keySize, nonce.count == Self.nonceSize else {
      throw OpenSSL.inputError("the key or the nonce has the wrong length")
    }
    // The algorithm is passed only once: passing it again would set up the context again.
    let isFirst = EVP_CIPHER_CTX_get0_cipher(context) == nil
    try EVP_CipherInit_ex2(
      context, isFirst ? try OpenSSL.algorithms.gcm : nil, key.bytePointer, nonce.bytePointer,
      direction.rawValue, nil
    ).check("AES-256-GCM")
  }

  /// Includes associated data in the tag. Call this before the first ``update(_:into:)``.
  func authenticate(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    guard !bytes.isEmpty else { return }
    var count: Int32 = 0
    try EVP_CipherUpdate(
      context, nil, &count, bytes.bytePointer, try OpenSSL.length(bytes.count)
    ).check("AES-256-GCM")
  }

  /// Encrypts or decrypts one piece of the message. Both buffers may be the same memory.
  ///
  /// When opening, the output must not be used before ``verify(tag:)`` has returned true.
  func update(
    _ input: UnsafeRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    guard !input.isEmpty else { return }
    guard output.count >= input.count else {
      throw OpenSSL.inputError("the output buffer is shorter than the input")
    }
    var count: Int32 = 0
    let length = try OpenSSL.length(input.count)
    try EVP_CipherUpdate(context, output.bytePointer, &count, input.bytePointer, length)
      .check("AES-256-GCM")
    guard count == length else { throw OpenSSL.failure("AES-256-GCM") }
  }

  /// Ends sealing, and writes the message's tag.
  func finish(tag: UnsafeMutableRawBufferPointer) throws(StorageError) {
    guard tag.count == Self.tagSize else {
      throw OpenSSL.inputError("the tag has the wrong length")
    }
    var count: Int32 = 0
    try EVP_CipherFinal_ex(context, nil, &count).check("AES-256-GCM")
    try EVP_CIPHER_CTX_ctrl(
      context, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagSize), tag.baseAddress
    ).check("AES-256-GCM")
  }

  /// Ends opening, and returns whether the message and the associated data are authentic.
  func verify(tag: UnsafeRawBufferPointer) throws(StorageError) -> Bool {
    // OpenSSL also accepts shorter tags, which can be guessed.
    guard tag.count == Self.tagSize else { return false }
    try EVP_CIPHER_CTX_ctrl(
      context, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagSize),
      UnsafeMutableRawPointer(mutating: tag.baseAddress)
    ).check("AES-256-GCM")
    var count: Int32 = 0
    if EVP_CipherFinal_ex(context, nil, &count) == 1 { return true }
    ERR_clear_error()
    return false
  }
}
#endif
