#if SecureVault
internal import COpenSSL

/// XAES-256-GCM (https://c2sp.org/XAES-256-GCM): AES-256-GCM under a key that is derived anew for
/// each message from the first half of a 24-byte nonce, so that nonces can be random however many
/// messages a key seals.
///
/// The contexts, which hold the key, live as long as this value: for the boxes of one call.
struct XAES: ~Copyable {
  static let keySize = AESGCM.keySize
  static let nonceSize = 24
  static let tagSize = AESGCM.tagSize
  /// What a box is longer than its message: the nonce before and the tag after it.
  static let overhead = nonceSize + tagSize

  /// What seals or opens the message that was begun last.
  let message: AESGCM
  /// AES-256 under the key, of single blocks.
  private let blocks: OpaquePointer

  init(key: UnsafeRawBufferPointer) throws(StorageError) {
    guard key.count == Self.keySize else {
      throw OpenSSL.failure("XAES-256-GCM with a key of that length")
    }
    let algorithm = try OpenSSL.algorithms.ecb
    let message = try AESGCM()
    let blocks = try OpenSSL.required(EVP_CIPHER_CTX_new(), "AES-256-ECB")
    guard EVP_EncryptInit_ex2(blocks, algorithm, key.bytePointer, nil, nil) == 1 else {
      EVP_CIPHER_CTX_free(blocks)
      throw OpenSSL.failure("AES-256-ECB")
    }
    self.message = message
    self.blocks = blocks
  }

  deinit { EVP_CIPHER_CTX_free(blocks) }

  /// Begins a message.
  func begin(
    _ direction: AESGCM.Direction, nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    guard nonce.count == Self.nonceSize else {
      throw OpenSSL.failure("XAES-256-GCM with a nonce of that length")
    }
    try withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { memory throws(StorageError) in
      defer { OpenSSL.wipe(memory) }
      try derive(into: memory, nonce)
      try message.begin(
        direction, key: UnsafeRawBufferPointer(memory)[part: ..<Self.keySize],
        nonce: nonce[part: 12...])
    }
  }

  /// The message's own key, in the first half of `memory`: two blocks of CMAC by AES-256
  /// (NIST SP 800-108), made with ECB because OpenSSL 3.0's KBKDF cannot count in 16 bits.
  private func derive(
    into memory: UnsafeMutableRawBufferPointer, _ nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    let output = memory[part: ..<32]
    let blocks = memory[part: 32...]
    // K1 is the encryption of zeros, doubled in GF(2^128).
    blocks.initializeMemory(as: UInt8.self, repeating: 0)
    try encrypt(blocks[part: ..<16], into: output)
    let carry = output[0] >> 7
    for index in 0..<16 {
      output[index] = output[index] << 1 | (index < 15 ? output[index + 1] >> 7 : 0)
    }
    output[15] ^= carry &* 0x87
    for (block, counter) in [(0, 1), (16, 2)] as [(Int, UInt8)] {
      blocks[block + 1] = counter
      blocks[block + 2] = UInt8(ascii: "X")
      for index in 0..<12 { blocks[block + 4 + index] = nonce[index] }
      for index in 0..<16 { blocks[block + index] ^= output[index] }
    }
    try encrypt(blocks, into: output)
  }

  /// Whole blocks, which come out at once: padding would be added at an end, and there is none.
  private func encrypt(
    _ input: UnsafeMutableRawBufferPointer, into output: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    var count: Int32 = 0
    let length = try OpenSSL.length(input.count)
    try EVP_EncryptUpdate(blocks, output.bytePointer, &count, input.bytePointer, length)
      .check("AES-256-ECB")
    guard count == length else { throw OpenSSL.failure("AES-256-ECB of whole blocks") }
  }

  /// A box, that is nonce, sealed message and tag, under a new nonce.
  static func seal(
    _ message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating context: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    let nonce = try OpenSSL.randomBytes(nonceSize)
    return try nonce.withBytes { nonce throws(StorageError) in
      try XAES(key: key).seal(message, nonce: nonce, authenticating: context)
    }
  }

  /// A box under a nonce that no other one of this key has.
  func seal(
    _ message: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
    authenticating context: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    try begin(.sealing, nonce: nonce)
    try context.withBytes { bytes throws(StorageError) in
      try self.message.authenticate(bytes)
    }
    var box = [UInt8](repeating: 0, count: message.count + Self.overhead)
    var span = box.mutableSpan
    try span.withUnsafeMutableBytes { box throws(StorageError) in
      box.copyMemory(from: nonce)
      let tag = box.count - Self.tagSize
      try self.message.update(message, into: box[part: Self.nonceSize..<tag])
      try self.message.finish(tag: box[part: tag...])
    }
    return box
  }

  /// Opens a box into `message`, which must be of its contents' length; false, and nothing is in
  /// it, when the box is not what was sealed under that key and context.
  static func open(
    _ box: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating context: [UInt8],
    into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    try XAES(key: key).open(box, authenticating: context, into: message)
  }

  func open(
    _ box: UnsafeRawBufferPointer, authenticating context: [UInt8],
    into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    guard box.count >= Self.overhead, message.count == box.count - Self.overhead else {
      return false
    }
    try begin(.opening, nonce: box[part: ..<Self.nonceSize])
    try context.withBytes { bytes throws(StorageError) in
      try self.message.authenticate(bytes)
    }
    let tag = box.count - Self.tagSize
    try self.message.update(box[part: Self.nonceSize..<tag], into: message)
    if try self.message.verify(tag: box[part: tag...]) { return true }
    OpenSSL.wipe(message)
    return false
  }
}
#endif
