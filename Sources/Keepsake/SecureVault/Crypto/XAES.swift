#if SecureVault
internal import COpenSSL

/// XAES-256-GCM (https://c2sp.org/XAES-256-GCM).
///
/// For each message it derives an AES-256-GCM key from the first half of a 24-byte nonce. Nonces
/// can therefore be random, however many messages are sealed under one key.
///
/// OpenSSL's contexts hold the key, and live as long as this value: for the boxes of one call.
struct XAES: ~Copyable {
  static let keySize = AESGCM.keySize
  static let nonceSize = 24
  static let tagSize = AESGCM.tagSize
  /// The bytes that a box has besides its message: the nonce before it and the tag after it.
  static let overhead = nonceSize + tagSize

  /// Seals or opens the message that was begun last.
  let gcm: AESGCM
  /// Encrypts single blocks with AES-256 under the key.
  private let ecb: OpaquePointer

  init(key: UnsafeRawBufferPointer) throws(StorageError) {
    guard key.count == Self.keySize else {
      throw OpenSSL.inputError("the key has the wrong length")
    }
    let algorithm = try OpenSSL.algorithms.ecb
    let gcm = try AESGCM()
    let ecb = try OpenSSL.required(EVP_CIPHER_CTX_new(), "AES-256-ECB")
    guard EVP_EncryptInit_ex2(ecb, algorithm, key.bytePointer, nil, nil) == 1 else {
      EVP_CIPHER_CTX_free(ecb)
      throw OpenSSL.failure("AES-256-ECB")
    }
    self.gcm = gcm
    self.ecb = ecb
  }

  deinit { EVP_CIPHER_CTX_free(ecb) }

  /// Begins a message.
  func begin(
    _ direction: AESGCM.Direction, nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    guard nonce.count == Self.nonceSize else {
      throw OpenSSL.inputError("the nonce has the wrong length")
    }
    try withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { memory throws(StorageError) in
      defer { OpenSSL.wipe(memory) }
      try derive(into: memory, nonce)
      try gcm.begin(
        direction, key: UnsafeRawBufferPointer(memory)[part: ..<Self.keySize],
        nonce: nonce[part: 12...])
    }
  }

  /// Derives the message's own key into the first half of `memory`: two blocks of CMAC with AES-256
  /// (NIST SP 800-108).
  ///
  /// It is built on ECB because OpenSSL 3.0's KBKDF has no 16-bit counter.
  func derive(
    into memory: UnsafeMutableRawBufferPointer, _ nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    let output = memory[part: ..<32]
    let blocks = memory[part: 32...]
    // The subkey K1 is the encryption of zeros, doubled in GF(2^128).
    blocks.initializeMemory(as: UInt8.self, repeating: 0)
    try encrypt(blocks[part: ..<16], into: output)
    func word(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
      UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
    }
    let (high, low) = (word(.init(output)), word(.init(output[part: 8...])))
    let subkey = (high << 1 | low >> 63, low << 1 ^ (high >> 63) * 0x87)
    // The nonce follows a counter of two bytes, an "X" and a zero.
    let start = UInt64(UInt8(ascii: "X")) << 40 | word(nonce) >> 32
    for counter in 1...2 {
      let block = blocks[part: (16 * (counter - 1))...]
      let words = ((start | UInt64(counter) << 48) ^ subkey.0, word(nonce[part: 4...]) ^ subkey.1)
      block.storeBytes(of: words.0.bigEndian, as: UInt64.self)
      block.storeBytes(of: words.1.bigEndian, toByteOffset: 8, as: UInt64.self)
    }
    try encrypt(blocks, into: output)
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

  /// Seals a message under a new random nonce.
  ///
  /// - Returns: A box: nonce, ciphertext and tag.
  static func seal(
    _ message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer,
    authenticating associatedData: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    var box = [UInt8](repeating: 0, count: message.count + overhead)
    var span = box.mutableSpan
    try span.withUnsafeMutableBytes { box throws(StorageError) in
      try SystemRandom.fill(box[part: ..<nonceSize])
      try associatedData.withBytes { associatedData throws(StorageError) in
        try XAES(key: key).seal(message, authenticating: associatedData, into: box)
      }
    }
    return box
  }

  /// Seals a message into `box`, which begins with a nonce that no other box of this key has.
  func seal(
    _ message: UnsafeRawBufferPointer, authenticating associatedData: UnsafeRawBufferPointer,
    into box: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    guard box.count == message.count + Self.overhead else {
      throw OpenSSL.inputError("the box has the wrong length")
    }
    try begin(.sealing, nonce: UnsafeRawBufferPointer(box)[part: ..<Self.nonceSize])
    try gcm.authenticate(associatedData)
    let tag = box.count - Self.tagSize
    try gcm.update(message, into: box[part: Self.nonceSize..<tag])
    try gcm.finish(tag: box[part: tag...])
  }

  /// Opens a box into `message`, which must have the length of the box's message.
  ///
  /// - Returns: False if the box was not sealed under this key with this associated data. `message`
  ///   is wiped then.
  static func open(
    _ box: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer,
    authenticating associatedData: [UInt8], into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    try associatedData.withBytes { associatedData throws(StorageError) in
      try XAES(key: key).open(box, authenticating: associatedData, into: message)
    }
  }

  func open(
    _ box: UnsafeRawBufferPointer, authenticating associatedData: UnsafeRawBufferPointer,
    into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    guard box.count >= Self.overhead, message.count == box.count - Self.overhead else {
      return false
    }
    try begin(.opening, nonce: box[part: ..<Self.nonceSize])
    try gcm.authenticate(associatedData)
    let tag = box.count - Self.tagSize
    try gcm.update(box[part: Self.nonceSize..<tag], into: message)
    if try gcm.verify(tag: box[part: tag...]) { return true }
    OpenSSL.wipe(message)
    return false
  }
}
#endif
