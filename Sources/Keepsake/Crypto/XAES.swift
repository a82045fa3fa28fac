internal import COpenSSL

/// XAES-256-GCM (https://c2sp.org/XAES-256-GCM): AES-256-GCM under a key that is derived anew for each
/// message from the first half of a 24-byte nonce, so that nonces can be random however many messages
/// a key seals.
enum XAES {
  static let keySize = AESGCM.keySize
  static let nonceSize = 24
  static let tagSize = AESGCM.tagSize
  /// What a box is longer than its message: the nonce before and the tag after it.
  static let overhead = nonceSize + tagSize

  /// Begins one message.
  static func begin(
    _ direction: AESGCM.Direction, key: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer
  ) throws(StorageError) -> AESGCM {
    guard key.count == keySize, nonce.count == nonceSize else {
      throw OpenSSL.failure("XAES-256-GCM with a key or nonce of that length")
    }
    return try withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) {
      memory throws(StorageError) in
      defer { OpenSSL.wipe(memory) }
      try derive(into: memory, key, nonce)
      return try AESGCM(
        direction, key: UnsafeRawBufferPointer(memory)[part: ..<keySize], nonce: nonce[part: 12...])
    }
  }

  /// The message's own key, in the first half of `memory`: two blocks of CMAC by AES-256
  /// (NIST SP 800-108), made with ECB because OpenSSL 3.0's KBKDF cannot count in 16 bits.
  private static func derive(
    into memory: UnsafeMutableRawBufferPointer, _ key: UnsafeRawBufferPointer,
    _ nonce: UnsafeRawBufferPointer
  ) throws(StorageError) {
    let output = memory[part: ..<32]
    let blocks = memory[part: 32...]
    let algorithm = try OpenSSL.algorithms.ecb
    let context = try OpenSSL.required(EVP_CIPHER_CTX_new(), "AES-256-ECB")
    defer { EVP_CIPHER_CTX_free(context) }
    try EVP_EncryptInit_ex2(context, algorithm, key.bytePointer, nil, nil).check("AES-256-ECB")
    try EVP_CIPHER_CTX_set_padding(context, 0).check("AES-256-ECB")
    // K1 is the encryption of zeros, doubled in GF(2^128).
    var count: Int32 = 0
    blocks.initializeMemory(as: UInt8.self, repeating: 0)
    try EVP_EncryptUpdate(context, output.bytePointer, &count, blocks.bytePointer, 16)
      .check("AES-256-ECB")
    guard count == 16 else { throw OpenSSL.failure("AES-256-ECB of a block") }
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
    try EVP_EncryptUpdate(context, output.bytePointer, &count, blocks.bytePointer, 32)
      .check("AES-256-ECB")
    guard count == 32 else { throw OpenSSL.failure("AES-256-ECB of two blocks") }
  }

  /// A box, that is nonce, sealed message and tag, under a new nonce.
  static func seal(
    _ message: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating context: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    var box = try OpenSSL.randomBytes(nonceSize)
    box.append(contentsOf: repeatElement(0, count: message.count + tagSize))
    var span = box.mutableSpan
    try span.withUnsafeMutableBytes { box throws(StorageError) in
      let cipher = try begin(
        .sealing, key: key, nonce: UnsafeRawBufferPointer(box)[part: ..<nonceSize])
      try context.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
        try cipher.authenticate(bytes)
      }
      try cipher.update(message, into: box[part: nonceSize..<(box.count - tagSize)])
      try cipher.finish(tag: box[part: (box.count - tagSize)...])
    }
    return box
  }

  /// Opens a box into `message`, which must be of its contents' length; false, and nothing is in it,
  /// when the box is not what was sealed under that key and context.
  static func open(
    _ box: UnsafeRawBufferPointer, key: UnsafeRawBufferPointer, authenticating context: [UInt8],
    into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    guard box.count >= overhead, message.count == box.count - overhead else { return false }
    let cipher = try begin(.opening, key: key, nonce: box[part: ..<nonceSize])
    try context.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
      try cipher.authenticate(bytes)
    }
    try cipher.update(box[part: nonceSize..<(box.count - tagSize)], into: message)
    if try cipher.verify(tag: box[part: (box.count - tagSize)...]) { return true }
    OpenSSL.wipe(message)
    return false
  }
}
