#if SecureVault
/// Where a vault's files are: a directory of its own in the one that holds all.
struct VaultPaths: Sendable {
  let host: StoreDirectory
  // Made once: to put them together with each call takes longer than to look at a file.
  let directory: String
  let headerPath: String
  let lockPath: String
  /// Stands for all entries in the names of temporary files, which lie beside the header.
  let entryStem: String
  private let temporaryStem: String

  init(host: StoreDirectory) {
    self.host = host
    directory = host.path + "/vault"
    headerPath = directory + "/" + VaultMarker.fileName
    lockPath = directory + "/" + Self.lockName
    entryStem = directory + "/entry"
    temporaryStem = directory + "/.entry."
  }

  static let lockName = ".lock"

  /// Where a new entry is written before it gets its name, as `entryStem` has it.
  func temporaryPath(_ number: UInt64) -> String {
    temporaryStem + String(number, radix: 16) + ".tmp"
  }

  /// Makes the directory where it is missing; returns the mode for directories in it, which for
  /// files is to be taken without its execute bits.
  func prepare() throws(StorageError) -> UInt32 {
    let mode = try host.createIfNeeded()
    try FileSystem.createDirectory(directory, mode: mode)
    return mode
  }

  /// Makes the names that lead to a service's directory survive a power cut.
  func synchronize() throws(StorageError) {
    try FileSystem.synchronizeDirectory(directory)
    try FileSystem.synchronizeParent(of: directory)
    if !host.isCallerOwned { try FileSystem.synchronizeParent(of: host.path) }
  }

  // MARK: Names

  /// As many hexadecimal digits as half of an HMAC-SHA-256 has.
  static let nameLength = 32

  static func isName(_ name: String) -> Bool {
    name.utf8.count == nameLength
      && name.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
  }

  /// The directories that hold entries, by name.
  func entryDirectories() throws(StorageError) -> [String] {
    try FileSystem.list(directory).filter(Self.isName).sorted()
  }

  /// The places in one of these directories.
  func places(in directoryName: String) throws(StorageError) -> [EntryPath] {
    let names: [String]
    do throws(StorageError) {
      names = try FileSystem.list(directory + "/" + directoryName)
    } catch  where error.code == .notDirectory {
      return []  // somebody's file, which is none of ours
    }
    return names.filter(Self.isName).sorted()
      .map { EntryPath(vault: directory, directory: directoryName, file: $0) }
  }
}

/// Where one entry is.
final class EntryPath: Sendable {
  let path: String
  let directoryPath: String
  /// The names of the directory and the file, as they are authenticated.
  let directory: String
  let file: String
  /// The byte to lock; two entries that share one only wait for each other.
  let lockByte: Range<UInt64>

  init(vault: String, directory: String, file: String) {
    directoryPath = vault + "/" + directory
    path = directoryPath + "/" + file
    self.directory = directory
    self.file = file
    let byte = UInt64(file.prefix(15), radix: 16) ?? 0
    lockByte = byte..<(byte + 1)
  }

  /// What a box authenticates, `otherBox` being the one before it.
  func context(
    _ head: [UInt8], vaultID: [UInt8], box: Box, after otherBox: some Collection<UInt8> = []
  ) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(
      head.count + vaultID.count + 2 * VaultPaths.nameLength + 1 + otherBox.count)
    bytes.append(contentsOf: head)
    bytes.append(contentsOf: vaultID)
    bytes.append(contentsOf: directory.utf8)
    bytes.append(contentsOf: file.utf8)
    bytes.append(box.rawValue)
    bytes.append(contentsOf: otherBox)
    return bytes
  }

  enum Box: UInt8 {
    case names = 0
    case value = 1
    /// A box in the value, under the presence key; it has no head of its own.
    case presence = 2
  }
}

/// The places of entries that were asked for before: to make their names takes longer than to open
/// an entry. They stand in the file system for all to see, and which is whose the caller knows.
struct EntryPathCache {
  private var services = ByteKeyedDictionary<ByteKeyedDictionary<EntryPath>>()
  private var count = 0
  private static let mostKept = 1_000
  private static let longest = 256

  subscript(service: String, key: String) -> EntryPath? { services[service]?[key] }

  mutating func remember(_ service: String, _ key: String, _ place: EntryPath) {
    guard service.utf8.count + key.utf8.count <= Self.longest else { return }
    if count >= Self.mostKept { self = EntryPathCache() }
    if services[service] == nil { services.set(service, ByteKeyedDictionary()) }
    services.modify(service) { _ = $0.set(key, place) }
    count += 1
  }
}

extension KeyRing {
  /// Where an entry is in a vault, which is always the same one.
  func place(
    of service: String, _ key: String, in vault: String
  ) throws(StorageError) -> EntryPath {
    if let place = entryPathCache.withLock({ $0[service, key] }) { return place }
    let place = EntryPath(
      vault: vault, directory: try directoryName(service), file: try fileName(service, key))
    entryPathCache.withLock { $0.remember(service, key, place) }
    return place
  }

  /// Whether a place is that of this service and key.
  func isPlace(
    _ place: EntryPath, of service: String, _ key: String
  ) throws(StorageError) -> Bool {
    if let known = entryPathCache.withLock({ $0[service, key] }) {
      return known.directory == place.directory && known.file == place.file
    }
    let (directory, file) = (try directoryName(service), try fileName(service, key))
    return directory == place.directory && file == place.file
  }

  /// The name of a service's directory.
  func directoryName(_ service: String) throws(StorageError) -> String {
    try name(domain: UInt8(ascii: "S"), [service])
  }

  /// The name of an entry's file.
  private func fileName(_ service: String, _ key: String) throws(StorageError) -> String {
    try name(domain: UInt8(ascii: "K"), [service, key])
  }

  private func name(domain: UInt8, _ parts: [String]) throws(StorageError) -> String {
    var message = [domain]
    for part in parts {
      message.append(number: UInt32(clamping: part.utf8.count))
      message.append(contentsOf: part.utf8)
    }
    let code = try withNameKey { key throws(StorageError) in
      try message.withBytes { message throws(StorageError) in
        try Digest.hmac(key: key, message)
      }
    }
    let length = VaultPaths.nameLength
    return String(unsafeUninitializedCapacity: length) { digits in
      for (index, byte) in code.prefix(length / 2).enumerated() {
        Hexadecimal.write(UInt64(byte), to: digits[(2 * index)..<(2 * index + 2)])
      }
      return length
    }
  }
}
#endif
