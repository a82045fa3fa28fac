#if SecureVault
internal import COpenSSL

/// XAES-256-GCM (https://c2sp.org/XAES-256-GCM).
///
/// For each message it derives an AES-256-GCM key from the first half of a 24-byte nonce. Nonces
/// can therefore be random, however many messages are sealed under one key.
///
/// OpenSSL's contexts hold the key, and live as long as this value: for the boxes of one call.
struct XAES: ~Copyable {
  static let keySize = 32
  static let nonceSize = 24
  static let tagSize = 16
  /// The bytes that a box has besides its message: the nonce before it and the tag after it.
  static let overhead = nonceSize + tagSize

  /// The message of a box.
  static func message(in box: UnsafeMutableRawBufferPointer) -> UnsafeMutableRawBufferPointer {
    box[part: nonceSize..<(box.count - tagSize)]
  }

  /// Encrypts and decrypts the messages with AES-256-GCM, one at a time.
  private let gcm: OpaquePointer
  /// Encrypts single blocks with AES-256 under the key.
  private let ecb: OpaquePointer

  init(key: UnsafeRawBufferPointer) throws(StorageError) {
    guard key.count == Self.keySize else {
      throw OpenSSL.inputError("the key has the wrong length")
    }
    let algorithm = try OpenSSL.algorithms.ecb
    let (gcm, ecb) = (EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_new())
    guard let gcm, let ecb,
      EVP_EncryptInit_ex2(ecb, algorithm, key.bytePointer, nil, nil) == 1
    else {
      EVP_CIPHER_CTX_free(gcm)
      EVP_CIPHER_CTX_free(ecb)
      throw OpenSSL.failure("AES-256-ECB")
    }
    self.gcm = gcm
    self.ecb = ecb
  }

  deinit {
    EVP_CIPHER_CTX_free(gcm)
    EVP_CIPHER_CTX_free(ecb)
  }

  // MARK: Boxes

  /// Seals a message under a new random nonce.
  ///
  /// - Returns: A box: nonce, ciphertext and tag.
  static func seal(
    _ message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer,
    authenticating associatedData: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    let cipher = try XAES(key: key)
    var box = [UInt8](repeating: 0, count: message.count + overhead)
    var span = box.mutableSpan
    try span.withUnsafeMutableBytes { box throws(StorageError) in
      try SystemRandom.fill(box[part: ..<nonceSize])
      Self.message(in: box).copyMemory(from: message)
      do throws(StorageError) {
        try associatedData.withBytes { data throws(StorageError) in
          try cipher.seal(box, authenticating: data)
        }
      } catch {
        OpenSSL.wipe(box)
        throw error
      }
    }
    return box
  }

  /// Seals a message in its place in a box, which begins with a nonce that no other box of this key
  /// has.
  ///
  /// - Parameters:
  ///   - part: A part of the message that is not in its place yet.
  ///   - position: The place of that part in the message.
  func seal(
    _ box: UnsafeMutableRawBufferPointer, authenticating associatedData: UnsafeRawBufferPointer,
    inserting part: UnsafeRawBufferPointer = .init(start: nil, count: 0), at position: Int = 0
  ) throws(StorageError) {
    guard box.count >= Self.overhead else {
      throw OpenSSL.inputError("the box has the wrong length")
    }
    let message = Self.message(in: box)
    let (start, rest) = (message[part: ..<position], message[part: position...])
    let end = rest[part: part.count...]
    try begin(
      .sealing, nonce: UnsafeRawBufferPointer(box)[part: ..<Self.nonceSize],
      authenticating: associatedData)
    try update(UnsafeRawBufferPointer(start), into: start)
    try update(part, into: rest)
    try update(UnsafeRawBufferPointer(end), into: end)
    try finish(tag: box[part: (box.count - Self.tagSize)...])
  }

  /// Opens a box into `message`, which must have the length of the box's message.
  ///
  /// - Returns: False if the box was not sealed under this key with this associated data. `message`
  ///   is wiped then.
  static func open(
    _ box: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer,
    authenticating associatedData: [UInt8], into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    try associatedData.withBytes { data throws(StorageError) in
      try XAES(key: key).open(box, authenticating: data, into: message)
    }
  }

  /// Does the same. `message` may be in the box.
  func open(
    _ box: UnsafeRawBufferPointer, authenticating associatedData: UnsafeRawBufferPointer,
    into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    guard box.count >= Self.overhead, message.count == box.count - Self.overhead else {
      return false
    }
    let tag = box.count - Self.tagSize
    try begin(
      .opening, nonce: box[part: ..<Self.nonceSize], authenticating: associatedData)
    try update(box[part: Self.nonceSize..<tag], into: message)
    if try verify(tag: box[part: tag...]) { return true }
    OpenSSL.wipe(message)
    return false
  }

  // MARK: The message's key

  /// Begins a message: derives its key, and includes the associated data in its tag.
  ///
  /// The key is two blocks of CMAC with AES-256 (NIST SP 800-108). It is built on ECB because
  /// OpenSSL 3.0's KBKDF has no 16-bit counter.
  func begin(
    _ direction: Direction, nonce: UnsafeRawBufferPointer,
    authenticating associatedData: UnsafeRawBufferPointer
  ) throws(StorageError) {
    guard nonce.count == Self.nonceSize else {
      throw OpenSSL.inputError("the nonce has the wrong length")
    }
    try withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) {
      memory throws(StorageError) in
      defer { OpenSSL.wipe(memory) }
      let (key, blocks) = (memory[part: ..<Self.keySize], memory[part: Self.keySize...])
      // The subkey K1 is the encryption of zeros, doubled in GF(2^128).
      blocks.initializeMemory(as: UInt8.self, repeating: 0)
      try encrypt(blocks[part: ..<16], into: key)
      func word(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
      }
      let (high, low) = (word(.init(key)), word(.init(key[part: 8...])))
      let subkey = (high << 1 | low >> 63, low << 1 ^ (high >> 63) * 0x87)
      // The nonce follows a counter of two bytes, an "X" and a zero.
      let start = UInt64(UInt8(ascii: "X")) << 40 | word(nonce) >> 32
      for counter in 1...2 {
        let block = blocks[part: (16 * (counter - 1))...]
        let words = ((start | UInt64(counter) << 48) ^ subkey.0, word(nonce[part: 4...]) ^ subkey.1)
        block.storeBytes(of: words.0.bigEndian, as: UInt64.self)
        block.storeBytes(of: words.1.bigEndian, toByteOffset: 8, as: UInt64.self)
      }
      try encrypt(blocks, into: key)
      try begin(
        direction, key: UnsafeRawBufferPointer(key), nonce: nonce[part: 12...],
        authenticating: associatedData)
    }
  }

  /// Encrypts whole blocks. They come out at once, because only the final call would add padding,
  /// and there is none.
  private func encrypt(
    _ input: UnsafeMutableRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    var count: Int32 = 0
    let length = try OpenSSL.length(input.count)
    try EVP_EncryptUpdate(ecb, output.bytePointer, &count, input.bytePointer, length)
      .check("AES-256-ECB")
    guard count == length else { throw OpenSSL.failure("AES-256-ECB") }
  }

  // MARK: AES-256-GCM (NIST SP 800-38D)

  enum Direction: Int32 {
    case opening = 0
    case sealing = 1
  }

  /// Begins a message under its own key and a nonce of 12 bytes.
  func begin(
    _ direction: Direction, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
    authenticating associatedData: UnsafeRawBufferPointer
  ) throws(StorageError) {
    guard key.count == Self.keySize, nonce.count == 12 else {
      throw OpenSSL.inputError("the key or the nonce has the wrong length")
    }
    // The algorithm is passed only once: passing it again would set up the context again.
    let isFirst = EVP_CIPHER_CTX_get0_cipher(gcm) == nil
    try EVP_CipherInit_ex2(
      gcm, isFirst ? try OpenSSL.algorithms.gcm : nil, key.bytePointer, nonce.bytePointer,
      direction.rawValue, nil
    ).check("AES-256-GCM")
    if associatedData.isEmpty { return }
    var count: Int32 = 0
    try EVP_CipherUpdate(
      gcm, nil, &count, associatedData.bytePointer, try OpenSSL.length(associatedData.count)
    ).check("AES-256-GCM")
  }

  /// Encrypts or decrypts the message, or a piece of it. Both buffers may be the same memory.
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
    try EVP_CipherUpdate(gcm, output.bytePointer, &count, input.bytePointer, length)
      .check("AES-256-GCM")
    guard count == length else { throw OpenSSL.failure("AES-256-GCM") }
  }

  /// Ends sealing, and writes the message's tag.
  func finish(tag: UnsafeMutableRawBufferPointer) throws(StorageError) {
    guard tag.count == Self.tagSize else {
      throw OpenSSL.inputError("the tag has the wrong length")
    }
    var count: Int32 = 0
    try EVP_CipherFinal_ex(gcm, nil, &count).check("AES-256-GCM")
    try EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagSize), tag.baseAddress)
      .check("AES-256-GCM")
  }

  /// Ends opening, and returns whether the message and the associated data are authentic.
  func verify(tag: UnsafeRawBufferPointer) throws(StorageError) -> Bool {
    // OpenSSL also accepts shorter tags, which can be guessed.
    guard tag.count == Self.tagSize else { return false }
    try EVP_CIPHER_CTX_ctrl(
      gcm, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagSize),
      UnsafeMutableRawPointer(mutating: tag.baseAddress)
    ).check("AES-256-GCM")
    var count: Int32 = 0
    if EVP_CipherFinal_ex(gcm, nil, &count) == 1 { return true }
    ERR_clear_error()
    return false
  }
}
#endif
