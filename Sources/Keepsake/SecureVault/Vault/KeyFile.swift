#if SecureVault
/// The file with the random keys that open an app's vaults without asking the user.
///
/// Keys are added and never removed: each belongs to a vault that may have been copied.
///
///     0  "KVK1"   4  version   5  zero   6  number of keys (2 bytes)
///     8  for each key its id (16 bytes) and the key (32), then SHA-256 of all before
package struct KeyFile: Sendable {
  let path: String
  let timeout: Duration
  /// The directory of the vault: root also uses the key file of its owner.
  var vault: String?

  static let idSize = 16
  private static let prefixSize = 8
  private static let recordSize = idSize + XAES.keySize
  private static let maxKeyCount = 1_000
  private static let signature: [UInt8] = Array("KVK1".utf8)

  private var directory: StoreDirectory {
    StoreDirectory(path: FileSystem.parent(of: path), isCallerOwned: false)
  }

  // MARK: Keys

  /// The key with the id that a vault's key slot names.
  func secret(forID id: [UInt8]) throws(StorageError) -> SlotSecret {
    let contents = try read()
    if contents.bytes.isEmpty { throw missing }
    for record in Self.records(UnsafeRawBufferPointer(contents.bytes))
    where record.prefix(Self.idSize).elementsEqual(id) {
      return try Self.secret(in: record)
    }
    throw StorageError(
      .locked, operation: "open", path: path, reason: "the key file has no key for this vault",
      remedy: Self.remedy + " To share a vault between users, use a passphrase or a closure.")
  }

  private static let remedy =
    "Restore the right key file from a backup, or unlock with a recovery code, if there is one."

  /// The key that was added last, which survives a power cut. If there is no key file, creates it
  /// with a first key.
  func newestSecret() throws(StorageError) -> SlotSecret {
    let contents = try read()
    if let record = Self.records(UnsafeRawBufferPointer(contents.bytes)).last {
      try synchronize()
      return try Self.secret(in: record)
    }
    return try addSecret(onlyIfEmpty: true)
  }

  /// Adds a key, which survives a power cut.
  ///
  /// - Parameter onlyIfEmpty: Whether to return the last key instead, if there is one.
  func addSecret(onlyIfEmpty: Bool = false) throws(StorageError) -> SlotSecret {
    let lock = try lock()
    defer { lock.unlock() }
    let old = try read()
    let records = Self.records(UnsafeRawBufferPointer(old.bytes))
    if onlyIfEmpty, let record = records.last {
      try synchronize()
      return try Self.secret(in: record)
    }
    let new = try SecretBytes(count: Self.recordSize)
    try SystemRandom.fill(new.bytes)
    let record = UnsafeRawBufferPointer(new.bytes)
    try write(records, adding: [record], replacing: !old.bytes.isEmpty)
    return try Self.secret(in: record)
  }

  /// Adds the keys of another key file that this one does not have.
  func addKeys(of other: KeyFile) throws(StorageError) {
    let others = try other.read()
    if others.bytes.isEmpty { throw other.missing }
    let lock = try lock()
    defer { lock.unlock() }
    let old = try read()
    let records = Self.records(UnsafeRawBufferPointer(old.bytes))
    let known = Set(records.map { Array($0.prefix(Self.idSize)) })
    let new = Self.records(UnsafeRawBufferPointer(others.bytes))
      .filter { !known.contains(Array($0.prefix(Self.idSize))) }
    if new.isEmpty { return try synchronize() }
    try write(records, adding: new, replacing: !old.bytes.isEmpty)
  }

  /// Copies the file to a path that nothing has, durably.
  func copy(to target: String) throws(StorageError) {
    let contents = try read()
    if contents.bytes.isEmpty { throw missing }
    _ = try FileSystem.write(
      UnsafeRawBufferPointer(contents.bytes), to: target, mode: 0o600, durable: true,
      replacing: false)
  }

  /// Makes the file's name survive a power cut: who added the last key may have been killed before
  /// that.
  private func synchronize() throws(StorageError) {
    try FileSystem.synchronizeDirectory(directory.path)
    // The process that made the directory may have been killed before it synchronized its name.
    try FileSystem.synchronizeParent(of: directory.path)
  }

  // MARK: Writing

  /// Keeps all other threads and processes from adding a key.
  private func lock() throws(StorageError) -> HeldLock {
    _ = try directory.createIfNeeded()
    try requireSafeDirectory()
    let lockPath = directory.lockPath(for: FileSystem.name(of: path))
    return try ByteRangeLock(lockPath)
      .lock(ByteRangeLock.allBytes, mode: 0o600, Wait(timeout: timeout))
  }

  /// Replaces the file by one with the same keys and new ones. The caller holds the lock.
  private func write(
    _ records: [UnsafeRawBufferPointer], adding new: [UnsafeRawBufferPointer], replacing: Bool
  ) throws(StorageError) {
    let recordCount = records.count + new.count
    guard recordCount <= Self.maxKeyCount else {
      throw StorageError(
        .misuse, operation: "protect", path: path,
        reason: "the key file already has \(records.count) keys",
        remedy: "Protect the vault with another source, then move this file away.")
    }
    let count = Self.prefixSize + recordCount * Self.recordSize
    let contents = try SecretBytes(count: count + Digest.size)
    let bytes = UnsafeRawBufferPointer(contents.bytes)
    var writer = ByteWriter(contents.bytes)
    writer.append(Self.signature)
    writer.append(VaultFormat.version)
    writer.append(UInt8(0))
    writer.append(UInt16(recordCount))
    for record in records + new { writer.append(record) }
    writer.append(try Digest.sha256(bytes[part: ..<count]))

    // Remove temporary files of any age, because they contain keys.
    try FileSystem.removeStaleTemporaryFiles(for: path, olderThan: nil)
    // Never wider than the file that it replaces.
    let mode = try 0o600 & (FileSystem.status(path)?.mode ?? 0o600)
    let isInPlace = try FileSystem.write(
      bytes, to: path, mode: mode, durable: true, replacing: replacing, validate: requireKeptMode)
    guard isInPlace else {
      throw StorageError(
        .damaged, operation: "protect", path: path, reason: "another program created this file",
        remedy: "Try again.")
    }
    try synchronize()
  }

  // MARK: Reading

  private static func secret(
    in record: UnsafeRawBufferPointer
  ) throws(StorageError) -> SlotSecret {
    SlotSecret(
      .keyFile, locator: Array(record[..<idSize]), try SecretBytes(copying: record[part: idSize...])
    )
  }

  /// The keys with their ids, in bytes that ``validate(_:)`` accepts or that are empty.
  static func records(_ bytes: UnsafeRawBufferPointer) -> [UnsafeRawBufferPointer] {
    stride(from: prefixSize, to: bytes.count - Digest.size, by: recordSize)
      .map { bytes[part: $0..<($0 + recordSize)] }
  }

  /// The whole file; empty when there is none.
  private func read() throws(StorageError) -> SecretBytes {
    let file: File
    do throws(StorageError) {
      file = try File(path, .readNoFollow)
    } catch  where error.code == .notFound {
      return try SecretBytes(count: 0)
    } catch  where error.code == .symbolicLink {
      throw refusal("it is a symbolic link", remedy: "Replace the link with the file itself.")
    }
    let status = try file.status()
    if status.isDirectory { throw refusal("it is a directory", remedy: "Move it away.") }
    guard status.isRegularFile else {
      throw refusal("it is not a regular file", remedy: "Move it away.")
    }
    let user = ProcessEnvironment.userID
    guard try owners().contains(status.owner) else {
      throw refusal(
        "it belongs to user \(status.owner), and this process runs as user \(user)",
        remedy: "Run the program as that user, or run: chown \(user) \(path)")
    }
    guard status.mode & 0o077 == 0 else {
      throw refusal(
        "other users have access to it (mode \(String(status.mode, radix: 8)))",
        remedy: "Run: chmod 600 \(path). If they may have read it, call "
          + "SecureVault.protect(with: .keyFile).")
    }
    try requireSafeDirectory()
    let maxSize = Self.prefixSize + Self.maxKeyCount * Self.recordSize + Digest.size
    guard status.size <= maxSize else { throw damaged }
    let contents = try SecretBytes(count: status.size)
    guard try file.read(from: 0, into: contents.bytes) == status.size else { throw damaged }
    try validate(UnsafeRawBufferPointer(contents.bytes))
    return contents
  }

  /// Throws unless the bytes are a key file of this version.
  func validate(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    var reader = ByteReader(bytes)
    guard reader.take(4)?.elementsEqual(Self.signature) == true else {
      throw StorageError(
        .damaged, operation: "open", path: path, reason: "the file is not a vault key file",
        remedy: Self.remedy)
    }
    guard bytes.count > Digest.size,
      try bytes[part: (bytes.count - Digest.size)...]
        .elementsEqual(Digest.sha256(bytes[part: ..<(bytes.count - Digest.size)]))
    else { throw damaged }
    guard reader.number() == VaultFormat.version else {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path,
        reason: "a newer version of Keepsake wrote this key file",
        remedy: "Update Keepsake; nothing was changed.")
    }
    guard reader.number() == UInt8(0), let count = reader.number(UInt16.self),
      bytes.count == Self.prefixSize + Int(count) * Self.recordSize + Digest.size
    else { throw damaged }
  }

  /// The users whose key file is used: this one and, if this is root, the owner of the vault.
  private func owners() throws(StorageError) -> [UInt32] {
    let user = ProcessEnvironment.userID
    guard user == 0, let vault,
      let status = try FileSystem.status(FileSystem.existingPath(vault))
    else { return [user] }
    return [user, status.owner]
  }

  /// Throws if other users may put another key file in the place of this one.
  private func requireSafeDirectory() throws(StorageError) {
    guard let status = try FileSystem.status(directory.path) else { return }
    let (user, owners) = (ProcessEnvironment.userID, try owners())
    guard status.owner == 0 || owners.contains(status.owner) else {
      throw refusal(
        "its directory belongs to user \(status.owner), and this process runs as user \(user)",
        remedy: "Run the program as that user, or run: chown \(user) \(directory.path)")
    }
    let replaced =
      ". If they may have replaced the key file, call SecureVault.protect(with: .keyFile)."
    guard status.mode & 0o022 == 0 else {
      throw refusal(
        "other users may write to its directory (mode \(String(status.mode, radix: 8)))",
        remedy: "Run: chmod go-w \(directory.path)" + replaced)
    }
    let found = try FileSystem.unsafeDirectory(
      onTheWayTo: directory.path, isOwner: owners.contains)
    if let found { throw refusal(found.reason, remedy: found.remedy + replaced) }
  }

  /// Throws if a new key file could not be used again, before there is a key in it.
  private func requireKeptMode(_ status: FileStatus) throws(StorageError) {
    if status.mode & 0o077 == 0, try owners().contains(status.owner) { return }
    throw StorageError(
      .accessDenied, operation: "open", path: directory.path,
      reason: "\(FileSystem.typeName(at: path)) does not keep permissions, so other users could "
        + "read the key file (mode \(String(status.mode, radix: 8)), owner \(status.owner))",
      remedy: "Choose a directory for state on another file system with XDG_STATE_HOME or "
        + "StorageSystem.bootstrap, or protect the vault with a passphrase.")
  }

  private var missing: StorageError {
    StorageError(
      .locked, operation: "open", path: path, reason: "the vault key file is missing",
      remedy: Self.remedy)
  }

  private var damaged: StorageError {
    StorageError(
      .damaged, operation: "open", path: path, reason: "the vault key file is damaged",
      remedy: Self.remedy)
  }

  private func refusal(_ reason: String, remedy: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "the key file is not safe to use: \(reason)", remedy: remedy)
  }
}
#endif
