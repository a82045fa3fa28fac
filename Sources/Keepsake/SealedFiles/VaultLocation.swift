#if SecureVault
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Where a vault's files are: a folder of its own in the one that holds all.
struct VaultLocation: Sendable {
  let host: HostFolder
  // Made once: to put them together with each call takes longer than to look at a file.
  let folder: String
  let headerPath: String
  let lockPath: String
  /// Stands for all entries in the names of temporary files, which lie beside the header.
  let entryStem: String
  private let temporaryStem: String

  init(host: HostFolder) {
    self.host = host
    folder = host.path + "/vault"
    headerPath = folder + "/" + HostFolder.vaultHeaderName
    lockPath = folder + "/" + Self.lockName
    entryStem = folder + "/entry"
    temporaryStem = folder + "/.entry."
  }

  static let lockName = ".lock"

  /// Where a new entry is written before it gets its name, as `entryStem` has it.
  func temporaryPath(_ number: UInt64) -> String {
    temporaryStem + String(number, radix: 16) + ".tmp"
  }

  /// Makes the folder where it is missing; returns the mode for folders in it, which for files is to be
  /// taken without its execute bits.
  func prepare() throws(StorageError) -> UInt32 {
    let mode = try host.prepare()
    try FileSystem.createFolder(folder, mode: mode)
    return mode
  }

  /// Makes the names that lead to a service's folder survive a power cut.
  func synchronize() throws(StorageError) {
    try FileSystem.synchronizeFolder(folder)
    try FileSystem.synchronizeName(of: folder)
    if !host.isCallers { try FileSystem.synchronizeName(of: host.path) }
  }

  // MARK: Names

  /// As many hexadecimal digits as half of an HMAC-SHA-256 has.
  static let nameLength = 32

  static func isName(_ name: String) -> Bool {
    name.utf8.count == nameLength
      && name.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
  }

  /// The folders that hold entries, by name.
  func entryFolders() throws(StorageError) -> [String] {
    try FileSystem.list(folder).filter(Self.isName).sorted()
  }

  /// The places in one of these folders.
  func places(in folderName: String) throws(StorageError) -> [EntryPlace] {
    let names: [String]
    do throws(StorageError) {
      names = try FileSystem.list(folder + "/" + folderName)
    } catch  where error.code.systemError == ENOTDIR {
      return []  // somebody's file, which is none of ours
    }
    return names.filter(Self.isName).sorted()
      .map { EntryPlace(vault: folder, folder: folderName, file: $0) }
  }
}

/// Where one entry is.
final class EntryPlace: Sendable {
  let path: String
  let folderPath: String
  /// The names of the folder and the file, as they are authenticated.
  let folder: String
  let file: String
  /// The byte to lock; two entries that share one only wait for each other.
  let lockByte: Range<UInt64>

  init(vault: String, folder: String, file: String) {
    folderPath = vault + "/" + folder
    path = folderPath + "/" + file
    self.folder = folder
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
      head.count + vaultID.count + 2 * VaultLocation.nameLength + 1 + otherBox.count)
    bytes.append(contentsOf: head)
    bytes.append(contentsOf: vaultID)
    bytes.append(contentsOf: folder.utf8)
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

/// The places of entries that were asked for before: to make their names takes longer than to open an
/// entry. They stand in the file system for all to see, and which is whose the caller knows.
struct RememberedPlaces {
  private var services = KeyTable<KeyTable<EntryPlace>>()
  private var count = 0
  private static let mostKept = 1_000
  private static let longest = 256

  subscript(service: String, key: String) -> EntryPlace? { services[service]?[key] }

  mutating func remember(_ service: String, _ key: String, _ place: EntryPlace) {
    guard service.utf8.count + key.utf8.count <= Self.longest else { return }
    if count >= Self.mostKept { self = RememberedPlaces() }
    if services[service] == nil { services.set(service, KeyTable()) }
    services.modify(service) { _ = $0.set(key, place) }
    count += 1
  }
}

extension KeyRing {
  /// Where an entry is in a vault, which is always the same one.
  func place(
    of service: String, _ key: String, in vault: String
  ) throws(StorageError) -> EntryPlace {
    if let place = rememberedPlaces.withLock({ $0[service, key] }) { return place }
    let place = EntryPlace(
      vault: vault, folder: try folderName(service), file: try fileName(service, key))
    rememberedPlaces.withLock { $0.remember(service, key, place) }
    return place
  }

  /// Whether a place is that of this service and key.
  func isPlace(
    _ place: EntryPlace, of service: String, _ key: String
  ) throws(StorageError) -> Bool {
    if let known = rememberedPlaces.withLock({ $0[service, key] }) {
      return known.folder == place.folder && known.file == place.file
    }
    let (folder, file) = (try folderName(service), try fileName(service, key))
    return folder == place.folder && file == place.file
  }

  /// The name of a service's folder.
  func folderName(_ service: String) throws(StorageError) -> String {
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
    let length = VaultLocation.nameLength
    return String(unsafeUninitializedCapacity: length) { digits in
      for (index, byte) in code.prefix(length / 2).enumerated() {
        FileName.writeHexadecimal(UInt64(byte), to: digits[(2 * index)..<(2 * index + 2)])
      }
      return length
    }
  }
}
#endif
