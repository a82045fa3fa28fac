#if SecureVault
/// Writes entry files and reads them, their boxes sealed and opened on the way.
///
/// What is larger than a small buffer passes through one that is used again and again: making the
/// memory for a whole ciphertext costs more than the cipher. Neither buffer ever holds plaintext.
enum SealedFile {
  /// Most secrets fit with their names.
  private static let smallSize = 4_096

  // MARK: Writing

  /// What is to be sealed in one entry.
  struct Contents {
    let names: EntryNames
    let isPresenceRequired: Bool
    /// The second box's plaintext: these pieces one after the other, and zeros.
    var pieces: [UnsafeRawBufferPointer]
    var paddingLength: Int
  }

  static func write(
    _ contents: Contents, at place: EntryPath, _ session: VaultSession, to file: File
  ) throws(StorageError) {
    let length = contents.pieces.reduce(0) { $0 + $1.count } + contents.paddingLength
    guard length <= AESGCM.maxMessageSize else {
      throw StorageError(
        .misuse, operation: "set", reason: "the value is too large for one secret",
        remedy: "Keep it in a file of your own, encrypted under a key that is kept here.")
    }
    let names = contents.names.bytes
    let head = EntryHeader(
      isPresenceRequired: contents.isPresenceRequired, keyID: session.ring.primary,
      namesLength: names.count + XAES.overhead, valueLength: length + XAES.overhead
    ).bytes
    let isDone: Void? = try session.ring.withEntryKey(session.ring.primary) {
      key throws(StorageError) in
      let vaultID = session.header.vaultID
      let cipher = try XAES(key: key)
      // For both boxes at once: each call of the generator takes as long as a box.
      let nonces = try OpenSSL.randomBytes(2 * XAES.nonceSize)
      try nonces.withBytes { nonces throws(StorageError) in
        let namesContext = place.context(head, vaultID: vaultID, box: .names)
        let namesBox = try names.withBytes { names throws(StorageError) in
          try cipher.seal(
            names, nonce: nonces[part: ..<XAES.nonceSize], authenticating: namesContext)
        }
        let nonce = nonces[part: XAES.nonceSize...]
        try cipher.begin(.sealing, nonce: nonce)
        // The value's box authenticates the names': one look at it notices any change.
        let context = place.context(head, vaultID: vaultID, box: .value, after: namesBox)
        try context.withBytes { context throws(StorageError) in
          try cipher.message.authenticate(context)
        }

        let capacity = head.count + namesBox.count + length + XAES.overhead
        try ChunkBuffer.with(capacity) { buffer throws(StorageError) in
          var output = ChunkOutput(file: file, buffer: buffer)
          for part in [head, namesBox] {
            try part.withBytes { part throws(StorageError) in try output.append(part) }
          }
          try output.append(nonce)
          for piece in contents.pieces { try output.append(piece, sealedWith: cipher.message) }
          var rest = contents.paddingLength
          while rest > 0 {
            let count = min(rest, zeros.count)
            try zeros.withBytes { zeros throws(StorageError) in
              try output.append(zeros[part: ..<count], sealedWith: cipher.message)
            }
            rest -= count
          }
          try output.appendTag(of: cipher.message)
          try output.flush()
        }
      }
    }
    if isDone == nil { throw unknownKey(session.ring.primary, place) }
  }

  private static let zeros = [UInt8](repeating: 0, count: smallSize)

  // MARK: Reading

  /// What one look at an entry found.
  enum Found: ~Copyable {
    case missing
    /// Sealed under a key that these keys do not know.
    case unknownKey(UInt32)
    case opened(Opened)
  }

  struct Opened: ~Copyable {
    let head: EntryHeader
    /// nil where they were not asked for.
    let names: EntryNames?
    /// The value's plaintext, prefix and padding included; empty where it was not asked for.
    let plaintext: SecretBytes
  }

  enum Part { case names, value, all }

  /// Reads an entry and opens the parts that are asked for.
  ///
  /// - Throws: An error of code `damaged` for any byte that is not the one that was written, and
  ///   for an entry that was moved here.
  static func read(
    _ place: EntryPath, _ part: Part, _ session: VaultSession
  ) throws(StorageError) -> Found {
    guard let file = try File.openIfPresent(place.path) else { return .missing }
    return try withUnsafeTemporaryAllocation(byteCount: smallSize, alignment: 8) {
      buffer throws(StorageError) in
      // What is there is at least this; one call gets a small entry whole.
      let count = try file.readOnce(into: buffer)
      let start = UnsafeRawBufferPointer(buffer)[part: ..<count]
      let head: EntryHeader
      do throws(EntryHeader.Failure) {
        head = try EntryHeader(start)
      } catch {
        throw failure(error, place)
      }
      guard session.ring.hasKey(head.keyID) else { return .unknownKey(head.keyID) }
      // A file that fills the buffer may go on.
      if head.fileLength == count, count < smallSize {
        return .opened(try open(head, start, nil, part, place, session))
      }
      guard try file.status().size == head.fileLength else {
        throw damage("it has not the length that it says", place)
      }
      let boxStart = EntryHeader.size + head.namesLength
      let names = try file.read(from: 0, count: boxStart)
      guard names.count == boxStart else { throw damage("it is cut off", place) }
      return try names.withBytes { names throws(StorageError) in
        .opened(try open(head, names, file, part, place, session))
      }
    }
  }

  /// The head of an entry, which nothing vouches for; nil when there is none.
  static func head(_ place: EntryPath) throws(StorageError) -> EntryHeader? {
    guard let file = try File.openIfPresent(place.path) else { return nil }
    let bytes = try file.read(from: 0, count: EntryHeader.size)
    do throws(EntryHeader.Failure) {
      return try bytes.withBytes { bytes throws(EntryHeader.Failure) in try EntryHeader(bytes) }
    } catch {
      throw failure(error, place)
    }
  }

  /// - Parameters:
  ///   - bytes: The entry from its start: all of it, or up to the value's box.
  ///   - file: Where to read the value's box from, if it is not among the bytes.
  private static func open(
    _ head: EntryHeader, _ bytes: UnsafeRawBufferPointer, _ file: File?, _ part: Part,
    _ place: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> Opened {
    let headBytes = Array(bytes[..<EntryHeader.size])
    let namesBox = bytes[part: EntryHeader.size..<(EntryHeader.size + head.namesLength)]
    let opened = try session.ring.withEntryKey(head.keyID) { key throws(StorageError) -> Opened in
      let cipher = try XAES(key: key)
      var names: EntryNames?
      // The names vouch for the lengths in the head, before memory is taken for what it claims.
      if part != .value || file != nil {
        let context = place.context(headBytes, vaultID: session.header.vaultID, box: .names)
        let plaintext = try SecretBytes(count: head.namesLength - XAES.overhead)
        guard
          try cipher.open(namesBox, authenticating: context, into: plaintext.bytes),
          let found = EntryNames(UnsafeRawBufferPointer(plaintext.bytes)),
          try session.ring.isPlace(place, of: found.service, found.key)
        else { throw tampered(place) }
        names = found
      }
      guard part != .names else {
        return Opened(head: head, names: names, plaintext: try SecretBytes(count: 0))
      }
      let plaintext = try SecretBytes(count: head.valueLength - XAES.overhead)
      let context = place.context(
        headBytes, vaultID: session.header.vaultID, box: .value, after: namesBox)
      let isTrue: Bool
      if let file {
        isTrue = try openValue(
          in: file, from: EntryHeader.size + head.namesLength, cipher, context,
          into: plaintext.bytes)
      } else {
        let box = bytes[part: (EntryHeader.size + head.namesLength)...]
        isTrue = try cipher.open(box, authenticating: context, into: plaintext.bytes)
      }
      guard isTrue else { throw tampered(place) }
      return Opened(head: head, names: names, plaintext: plaintext)
    }
    if let opened { return opened }
    throw unknownKey(head.keyID, place)
  }

  /// A box that is read a piece at a time.
  private static func openValue(
    in file: File, from start: Int, _ cipher: borrowing XAES, _ context: [UInt8],
    into plaintext: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    let end = start + XAES.nonceSize + plaintext.count
    let nonce = try file.read(from: start, count: XAES.nonceSize)
    guard nonce.count == XAES.nonceSize else { return false }
    try nonce.withBytes { nonce throws(StorageError) in try cipher.begin(.opening, nonce: nonce) }
    try context.withBytes { context throws(StorageError) in
      try cipher.message.authenticate(context)
    }
    try ChunkBuffer.with(plaintext.count) { buffer throws(StorageError) in
      var position = start + XAES.nonceSize
      while position < end {
        let chunk = buffer[part: ..<min(buffer.count, end - position)]
        guard try file.read(from: position, into: chunk) == chunk.count else { return }
        let place = position - start - XAES.nonceSize
        try cipher.message.update(
          UnsafeRawBufferPointer(chunk), into: plaintext[part: place..<(place + chunk.count)])
        position += chunk.count
      }
    }
    let tag = try file.read(from: end, count: XAES.tagSize)
    return try tag.withBytes { tag throws(StorageError) in try cipher.message.verify(tag: tag) }
  }

  // MARK: Failures

  private static func failure(_ failure: EntryHeader.Failure, _ place: EntryPath) -> StorageError {
    switch failure {
    case .damaged: damage("it does not begin as a secret does", place)
    case .newerVersion:
      StorageError(
        .unsupportedVersion, operation: "open", path: place.path,
        reason: "a newer version of the library wrote this secret",
        remedy: "Update the library; nothing was changed.")
    }
  }

  private static func tampered(_ place: EntryPath) -> StorageError {
    damage("its bytes are not those that were sealed for this key", place)
  }

  static func damage(_ reason: String, _ place: EntryPath) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: place.path, reason: "the secret is damaged: \(reason)",
      remedy: "Put a copy of this file back, from a backup, or remove the secret.")
  }

  static func unknownKey(_ id: UInt32, _ place: EntryPath) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: place.path,
      reason:
        "the secret is sealed under key \(String(id, radix: 16)), which the vault does not have",
      remedy: "Put the vault's header back, from a backup; the secret is untouched. Or remove it.")
  }
}
#endif
