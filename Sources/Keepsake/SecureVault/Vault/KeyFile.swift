#if SecureVault
/// The file with the random keys that open an app's vaults without asking anybody.
///
/// Keys are added and never taken away: each was some vault's, of which there may be a copy.
///
///     0  "SVK1"   4  version   5  zero   6  number of keys (2 bytes)
///     8  for each its id (16 bytes) and the key (32), then SHA-256 of all before
struct KeyFile: Sendable {
  let path: String
  let timeout: Duration

  static let idSize = 16
  private static let headSize = 8
  private static let recordSize = idSize + XAES.keySize
  private static let maxKeyCount = 1_000
  private static let signature: [UInt8] = Array("SVK1".utf8)

  private var directory: StoreDirectory {
    StoreDirectory(path: FileSystem.parent(of: path), isCallerOwned: false)
  }

  /// The key that a vault's slot names.
  func secret(_ id: [UInt8]) throws(StorageError) -> SlotSecret {
    guard let contents = try read() else {
      throw StorageError(
        .locked, operation: "open", path: path,
        reason: "the vault's key file is missing", remedy: Self.remedy)
    }
    let keys = UnsafeRawBufferPointer(contents.bytes)
    for record in Self.records(keys) where keys[part: record].prefix(Self.idSize).elementsEqual(id)
    {
      return try Self.secret(keys[part: record])
    }
    throw StorageError(
      .locked, operation: "open", path: path,
      reason: "the key file has no key for this vault",
      remedy: Self.remedy + " Who shares a vault with others needs a passphrase or a closure.")
  }

  private static let remedy =
    "Put the right key file back, from a backup; the secrets are untouched."

  /// The key that was added last, which is the first one where the file is missing.
  func newestSecret() throws(StorageError) -> SlotSecret {
    if let contents = try read() {
      let keys = UnsafeRawBufferPointer(contents.bytes)
      if let record = Self.records(keys).last { return try Self.secret(keys[part: record]) }
    }
    return try add(onlyIfEmpty: true)
  }

  /// A new key, which survives a power cut.
  func addSecret() throws(StorageError) -> SlotSecret { try add(onlyIfEmpty: false) }

  /// Makes the file's name survive a power cut.
  func synchronize() throws(StorageError) {
    try FileSystem.synchronizeDirectory(directory.path)
    // Whoever made the directory may have been killed before the sync.
    try FileSystem.synchronizeParent(of: directory.path)
  }

  private func add(onlyIfEmpty: Bool) throws(StorageError) -> SlotSecret {
    _ = try directory.createIfNeeded()
    let lockPath = directory.lockPath(for: FileSystem.name(of: path))
    return try ByteRangeLock.withLock(
      ByteRangeLock.allBytes, of: lockPath, mode: 0o600, timeout: timeout
    ) {
      () throws(StorageError) in
      let found = try read()
      let isThere = found != nil
      let old: SecretBytes
      if let found { old = found } else { old = try SecretBytes(count: 0) }
      let oldKeys = UnsafeRawBufferPointer(old.bytes)
      let records = Self.records(oldKeys)
      if onlyIfEmpty, let record = records.last { return try Self.secret(oldKeys[part: record]) }
      guard records.count < Self.maxKeyCount else {
        throw StorageError(
          .misuse, operation: "protect", path: path, reason: "it has \(records.count) keys already",
          remedy: "Protect the vault with another source, then move this file away.")
      }
      return try write(oldKeys, records, replacing: isThere)
    }
  }

  /// Replaces the file by one with the same keys and a new one.
  private func write(
    _ oldKeys: UnsafeRawBufferPointer, _ records: [Range<Int>], replacing: Bool
  ) throws(StorageError) -> SlotSecret {
    let count = Self.headSize + (records.count + 1) * Self.recordSize
    let new = try SecretBytes(count: count + Digest.size)
    var head = Self.signature + [VaultFormat.version, 0]
    head.append(number: UInt16(records.count + 1))
    new.bytes.copyBytes(from: head)
    if let last = records.last {
      new.bytes[part: Self.headSize...].copyMemory(
        from: oldKeys[part: Self.headSize..<last.upperBound])
    }
    let added = new.bytes[part: (count - Self.recordSize)..<count]
    try OpenSSL.randomize(added, forKey: true)
    let sum = try Digest.sha256(UnsafeRawBufferPointer(new.bytes)[part: ..<count])
    new.bytes[part: count...].copyBytes(from: sum)

    // Any that a killed program left holds keys.
    try FileSystem.removeStaleTemporaryFiles(for: path, olderThan: -1)
    let isThere = try FileSystem.write(
      UnsafeRawBufferPointer(new.bytes), to: path, mode: 0o600, durable: true,
      replacing: replacing)
    guard isThere else {
      throw StorageError(
        .damaged, operation: "protect", path: path, reason: "something else made this file",
        remedy: "Try again.")
    }
    try synchronize()
    return try Self.secret(UnsafeRawBufferPointer(added))
  }

  private static func secret(_ record: UnsafeRawBufferPointer) throws(StorageError) -> SlotSecret {
    SlotSecret(
      .keyFile, locator: Array(record[..<idSize]), try SecretBytes(copying: record[part: idSize...])
    )
  }

  /// Where the keys are in contents that ``check(_:)`` took, each after its id.
  static func records(_ contents: UnsafeRawBufferPointer) -> [Range<Int>] {
    stride(from: headSize, to: contents.count - Digest.size, by: recordSize)
      .map { $0..<($0 + recordSize) }
  }

  /// The whole file; nil when there is none.
  private func read() throws(StorageError) -> SecretBytes? {
    let file: File
    do throws(StorageError) {
      file = try File(path, .readNoFollow)
    } catch  where error.code == .notFound {
      return nil
    } catch  where error.code == .symbolicLink {
      throw refusal("it is a symbolic link", "Put the file itself there.")
    }
    let status = try file.status()
    if status.isDirectory { throw refusal("it is a directory", "Move it away.") }
    guard status.isRegularFile else { throw refusal("it is no regular file", "Move it away.") }
    guard status.owner == ProcessEnvironment.userID else {
      throw refusal(
        "user \(status.owner) owns it, and this is user \(ProcessEnvironment.userID)",
        "Run the program as that user, or: chown \(ProcessEnvironment.userID) \(path)")
    }
    guard status.mode & 0o077 == 0 else {
      throw refusal(
        "others may open it (mode \(String(status.mode, radix: 8)))",
        "chmod 600 \(path), and if others may have read it: SecureVault.protect(with: .keyFile)")
    }
    let longest = Self.headSize + Self.maxKeyCount * Self.recordSize + Digest.size
    guard status.size <= longest else { throw damage }
    let contents = try SecretBytes(count: status.size)
    guard try file.read(from: 0, into: contents.bytes) == status.size else { throw damage }
    try check(UnsafeRawBufferPointer(contents.bytes))
    return contents
  }

  /// Throws unless the bytes are those of a key file of this version.
  func check(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    var reader = ByteReader(bytes)
    guard bytes.count > Digest.size, reader.take(4)?.elementsEqual(Self.signature) == true,
      try bytes[part: (bytes.count - Digest.size)...]
        .elementsEqual(Digest.sha256(bytes[part: ..<(bytes.count - Digest.size)]))
    else { throw damage }
    guard reader.number() == VaultFormat.version else {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path,
        reason: "a newer version of the library made this key file",
        remedy: "Update the library; nothing was changed.")
    }
    guard reader.number() == UInt8(0), let count = reader.number(UInt16.self),
      bytes.count == Self.headSize + Int(count) * Self.recordSize + Digest.size
    else { throw damage }
  }

  private var damage: StorageError {
    StorageError(
      .damaged, operation: "open", path: path, reason: "the vault's key file is damaged",
      remedy: Self.remedy)
  }

  private func refusal(_ reason: String, _ remedy: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "the vault's key file is refused: \(reason)", remedy: remedy)
  }
}
#endif
