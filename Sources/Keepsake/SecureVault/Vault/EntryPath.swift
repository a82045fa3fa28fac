#if SecureVault
/// The path of one entry: of its file, or of its value in a shared vault.
package final class EntryPath: Sendable {
  let path: String
  /// The path in the vault's directory.
  package let subpath: String
  package let directoryName: String
  let fileName: String
  /// Both names, as they are in the associated data: two strings take longer to write.
  private let names: [UInt8]
  /// The byte of the lock file to lock. Two entries that share one merely wait for each other.
  let lockByte: Range<UInt64>

  package init(vault: String, directoryName: String, fileName: String) {
    subpath = Self.join(directoryName, fileName)
    path = Self.join(vault, subpath)
    self.directoryName = directoryName
    self.fileName = fileName
    names = [UInt8](count: directoryName.utf8.count + fileName.utf8.count) { writer in
      writer.append(directoryName)
      writer.append(fileName)
    }
    let byte = fileName.utf8.prefix(15).reduce(0) { $0 << 4 | (Hexadecimal.digit($1) ?? 0) }
    lockByte = byte..<(byte + 1)
  }

  /// Joins two parts of a path without a string between them: each new secret needs two paths.
  private static func join(_ directory: String, _ name: String) -> String {
    let count = directory.utf8.count + 1 + name.utf8.count
    return String(unsafeUninitializedCapacity: count) { text in
      var writer = ByteWriter(UnsafeMutableRawBufferPointer(start: text.baseAddress, count: count))
      writer.append(directory)
      writer.append(UInt8(ascii: "/"))
      writer.append(name)
      return writer.count
    }
  }

  /// The hexadecimal digits of half an HMAC-SHA-256.
  static let nameLength = 32

  /// Whether a directory or a file of this name may belong to the vault.
  package static func isName(_ name: String) -> Bool {
    name.utf8.count == nameLength
      && name.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
  }

  // MARK: Associated data

  /// Says which of an entry's boxes it is.
  enum Box: UInt8 {
    case names = 0
    case value = 1
    /// The box inside the value, under the presence key.
    case presence = 2
  }

  /// How much memory the associated data of an entry's boxes needs.
  ///
  /// - Parameter start: The entry's header and names box.
  func associatedDataSize(_ start: UnsafeRawBufferPointer, vaultID: [UInt8]) -> Int {
    start.count + vaultID.count + names.count + 1
  }

  /// Writes the associated data of the names or the value, which ties the box to this path and to
  /// the entry's header. The value's ends with the names box: so opening the value alone detects a
  /// change of either.
  ///
  /// - Parameter start: The entry's header and names box.
  func writeAssociatedData(
    of box: Box, _ start: UnsafeRawBufferPointer, vaultID: [UInt8],
    to memory: UnsafeMutableRawBufferPointer
  ) -> UnsafeRawBufferPointer {
    var writer = ByteWriter(memory)
    writer.append(start[part: ..<EntryHeader.size])
    writer.append(vaultID)
    writer.append(names)
    writer.append(box.rawValue)
    if box == .value { writer.append(start[part: EntryHeader.size...]) }
    return UnsafeRawBufferPointer(memory)[part: ..<writer.count]
  }

  // MARK: Errors

  func damageError(_ reason: String) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: path, reason: "the secret is damaged: \(reason)",
      remedy: "Restore it from a backup, or remove the secret.")
  }

  var invalidHeaderError: StorageError { damageError("it has no valid header") }

  var unknownKindError: StorageError { damageError("its value has an unknown kind") }

  var alteredError: StorageError {
    damageError("it was altered, or moved here from another key")
  }

  func unknownKeyError(_ id: UInt32) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: path,
      reason:
        "the secret is sealed under key \(String(id, radix: 16)), which the vault does not have",
      remedy: "Restore the vault header from a backup, or remove the secret.")
  }
}

/// The paths of recently used entries, because deriving one takes longer than opening an entry.
///
/// It holds no secret: the paths are visible in the file system, and the caller knows the keys.
struct EntryPathCache {
  private var services = ByteKeyedDictionary<ByteKeyedDictionary<EntryPath>>()
  private var directoryNames = ByteKeyedDictionary<String>()
  private var count = 0
  private static let maxCount = 1_000
  private static let maxNameSize = 256

  subscript(service: String, key: String) -> EntryPath? {
    @inline(__always)
    get { services.withValue(of: service) { $0[key] } }
  }

  /// The name of the service's directory, if any of its paths is known.
  func directoryName(of service: String) -> String? { directoryNames[service] }

  mutating func insert(_ path: EntryPath, _ service: String, _ key: String) {
    guard service.utf8.count + key.utf8.count <= Self.maxNameSize else { return }
    if count >= Self.maxCount { self = EntryPathCache() }
    if directoryName(of: service) == nil {
      directoryNames.set(service, path.directoryName)
      services.set(service, ByteKeyedDictionary())
    }
    services.modify(service) { _ = $0.set(key, path) }
    count += 1
  }
}

extension KeyRing {
  /// The name of a service's directory under a name key.
  func directoryName(_ service: String, nameKey: Int = 0) throws(StorageError) -> String {
    try name(of: Self.message("S", service), nameKey)
  }

  /// The name of an entry's file under a name key.
  func fileName(_ service: String, _ key: String, nameKey: Int = 0) throws(StorageError) -> String {
    try name(of: Self.message("K", service, key), nameKey)
  }

  /// The associated data of the box under the presence key. It does not depend on the entry's path:
  /// an entry is moved without asking the user.
  static func presenceAssociatedData(
    _ service: String, _ key: String, vaultID: [UInt8]
  ) -> [UInt8] {
    vaultID + message("K", service, key) + [EntryPath.Box.presence.rawValue]
  }

  private static func message(_ domain: Unicode.Scalar, _ parts: String...) -> [UInt8] {
    [UInt8](count: parts.reduce(1) { $0 + 4 + $1.utf8.count }) { writer in
      writer.append(UInt8(ascii: domain))
      for part in parts {
        writer.append(UInt32(clamping: part.utf8.count))
        writer.append(part)
      }
    }
  }

  private func name(of message: [UInt8], _ nameKey: Int) throws(StorageError) -> String {
    let code = try withNameKey(nameKey) { key throws(StorageError) in
      try message.withBytes { message throws(StorageError) in
        try Digest.hmac(key: key, message)
      }
    }
    return Hexadecimal.text(code.prefix(EntryPath.nameLength / 2))
  }
}
#endif
