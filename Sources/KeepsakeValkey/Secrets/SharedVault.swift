#if SecureVault
internal import FoundationEssentials
internal import Keepsake

/// A vault in the values of an engine, which several machines share.
///
/// The key `header` has the header, and `<directory>/<file>` has an entry: the bytes that a vault
/// on one machine has in files of these names. They are read from a mirror. A value of another
/// program that is no sequence of bytes counts as an empty one.
///
/// There are no locks. Each write is one step of the engine, under the condition that the header is
/// still the one that the writer's keys came from. The condition is on the header's bytes, and the
/// same bytes open to the same keys, whenever they are stored. So an entry is only ever stored
/// under the primary key of the header at that moment, and a key that is not the primary one has
/// all its entries already.
final class SharedVault: VaultStorage {
  let path: String
  /// The app: the same passphrase may protect the vault of another app on the same server.
  let context: String
  private let mirror: StorageEngines.Mirror
  /// The bytes of the header; nil if this belongs to none.
  private let header: Data?

  private static let headerName = "header"

  init(
    _ engine: any StorageEngines.MirroredEngine, app: String,
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    path = "vault of \(app)"
    context = app
    mirror = StorageEngines.Mirror(engine, report: report)
    header = nil
  }

  private init(_ vault: SharedVault, with header: Data) {
    (path, context, mirror) = (vault.path, vault.context, vault.mirror)
    self.header = header
  }

  var headerPath: String { path + "/" + Self.headerName }

  /// nil: a key file is one machine's.
  func keyFile() -> KeyFile? { nil }

  // MARK: Values

  private static func entry(_ name: String, _ bytes: Data?) -> StorageEngines.Entry {
    StorageEngines.Entry(key: name, data: bytes.map(StorageEngines.Mirror.storedData(for:)))
  }

  private static func bytes(_ stored: Data?) -> Data? {
    stored.map(StorageEngines.Mirror.bytes(storedAs:))
  }

  /// Makes changes in one step if all conditions are met.
  ///
  /// - Parameter conditions: Values that the engine must have, or others that count as the same
  ///   bytes.
  /// - Returns: False if they are not; the mirror has the newer values.
  private func apply(
    _ changes: [StorageEngines.Entry], if conditions: [StorageEngines.Entry]
  ) throws(StorageError) -> Bool {
    var expected = conditions
    for attempt in 0..<3 {
      if try mirror.apply(changes, ifCurrent: expected) { return true }
      for condition in conditions {
        if try mirror.bytes(forKey: condition.key) != Self.bytes(condition.data) { return false }
      }
      // Another program has written the same value differently, or changes do not arrive.
      expected = []
      for condition in conditions {
        let stored = try mirror.storedData(forKey: condition.key)
        let isSame = Self.bytes(stored) == Self.bytes(condition.data)
        expected.append(isSame ? .init(key: condition.key, data: stored) : condition)
      }
      // May wait for as long as the engine does for a connection.
      if attempt == 0 { try mirror.refill() }
    }
    throw StorageError(
      .unreachable, operation: "request", path: path,
      reason: "the changes of other machines have not arrived in time",
      remedy: "Try again in a moment.")
  }

  // MARK: The header

  func readHeader() throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    guard let bytes = try mirror.bytes(forKey: Self.headerName) else { return nil }
    guard bytes.count <= VaultHeader.maxSize else { throw VaultHeader.damageError(headerPath) }
    return (
      try VaultHeader(Array(bytes), path: headerPath, context: context),
      SharedVault(self, with: bytes)
    )
  }

  /// Stores a header if the present one is this one.
  private func replaceHeader(
    by header: VaultHeader, adding entries: [StorageEngines.Entry] = [],
    if conditions: [StorageEngines.Entry] = []
  ) throws(StorageError) -> SharedVault? {
    let bytes = Data(try header.bytesToStore(path: headerPath))
    let isDone = try apply(
      [Self.entry(Self.headerName, bytes)] + entries, if: [isUnchanged] + conditions)
    return isDone ? SharedVault(self, with: bytes) : nil
  }

  private var isUnchanged: StorageEngines.Entry { Self.entry(Self.headerName, header) }

  func isCurrent() throws(StorageError) -> Bool {
    try mirror.bytes(forKey: Self.headerName) == header
  }

  /// If it was replaced, the mirror has the new one when this returns.
  func isStillStored() throws(StorageError) -> Bool {
    // The check below is a change if its condition is met.
    if header == nil, try mirror.storedData(forKey: Self.headerName) == nil { return true }
    return try apply([], if: [isUnchanged])
  }

  func replaceHeader(
    _ makeHeader: () throws(StorageError) -> VaultHeader?
  ) throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    guard try isCurrent() else { return nil }
    if header == nil {
      // All names at one moment: another process may just be creating the vault and storing
      // secrets.
      let names = try mirror.keys()
      if names.contains(Self.headerName) { return nil }
      if let path = entries(of: names).first { throw missingHeaderError(besides: path) }
    }
    guard let header = try makeHeader() else { return nil }
    return try replaceHeader(by: header).map { (header, $0) }
  }

  // MARK: Entries

  func entryDirectories() throws(StorageError) -> [String] {
    Set(entries(of: try mirror.keys()).map(\.directoryName)).sorted()
  }

  func entries(in directoryName: String) throws(StorageError) -> [EntryPath] {
    entries(of: try mirror.keys()).filter { $0.directoryName == directoryName }
  }

  func allEntries() throws(StorageError) -> [EntryPath] { entries(of: try mirror.storedKeys()) }

  /// Nothing: what the engine has accepted is as durable as it will be.
  func synchronizeEntries() {}

  /// Nothing: an engine has no directories.
  func removeEmptyDirectories() -> [StorageError] { [] }

  private func entries(of names: [String]) -> [EntryPath] {
    names.sorted().compactMap { name in
      let parts = name.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
      guard parts.count == 2, parts.allSatisfy(EntryPath.isName) else { return nil }
      return EntryPath(vault: path, directoryName: parts[0], fileName: parts[1])
    }
  }

  /// In one step, so that no process finds entries without a header.
  func erase(reporting report: (StorageError) -> Void) throws(StorageError) -> Bool {
    if try mirror.keys().isEmpty, try mirror.storedKeys().isEmpty { return false }
    try mirror.removeAllStored()
    return true
  }

  // MARK: Reading

  func contains(_ path: EntryPath) throws(StorageError) -> Bool {
    try mirror.bytes(forKey: path.subpath) != nil
  }

  /// The keys are changed by what the engine has. A mirror that has lost the engine shows the
  /// changes of this process, such as a new header, but may lack an entry that another one has
  /// stored before under the old key.
  func openEntry(
    _ path: EntryPath, for purpose: EntryPurpose
  ) throws(StorageError) -> StoredEntry? {
    switch purpose {
    case .reading: try mirror.bytes(forKey: path.subpath).map(StoredEntry.bytes)
    case .changingKeys:
      try Self.bytes(mirror.storedData(forKey: path.subpath)).map(StoredEntry.bytes)
    }
  }

  // MARK: Writing

  func lockEntry(_ path: EntryPath) -> HeldLock? { nil }

  func store(
    _ entry: UnsafeRawBufferPointer, at path: EntryPath, if condition: EntryCondition,
    isLockHeld: Bool, renewing header: VaultHeader?
  ) throws(StorageError) -> WriteOutcome {
    guard try isCurrent() else { return .overtaken }
    let conditions: [StorageEngines.Entry] =
      switch condition {
      case .none: []
      case .isAbsent: [Self.entry(path.subpath, nil)]
      case .hasAccess(let old, _): [isUnchanged(old, at: path)]
      }
    let change = Self.entry(path.subpath, Data(entry))
    let isStored: Bool
    if let header {
      isStored =
        try replaceHeader(by: header, adding: [change], if: conditions) != nil
    } else {
      isStored = try apply([change], if: [isUnchanged] + conditions)
    }
    if isStored { return .stored }
    if case .isAbsent = condition, try contains(path) { return .exists }
    return .overtaken
  }

  /// In one step.
  func replace(
    _ old: StoredEntry, at path: EntryPath, by entry: UnsafeRawBufferPointer,
    movingTo newPath: EntryPath
  ) throws(StorageError) -> Void? {
    var changes = [Self.entry(newPath.subpath, Data(entry))]
    var conditions = [isUnchanged, isUnchanged(old, at: path)]
    if newPath.subpath != path.subpath {
      changes.append(Self.entry(path.subpath, nil))
      conditions.append(Self.entry(newPath.subpath, nil))
    }
    return try apply(changes, if: conditions) ? () : nil
  }

  private func isUnchanged(_ entry: StoredEntry?, at path: EntryPath) -> StorageEngines.Entry {
    guard case .bytes(let bytes) = entry else { return Self.entry(path.subpath, nil) }
    return Self.entry(path.subpath, bytes)
  }

  // MARK: Removing

  /// In one step.
  func removeEntry(at paths: [EntryPath]) throws(StorageError) -> Void? { try remove(paths) }

  /// In one step.
  func removeEntries(in directoryNames: [String]) throws(StorageError) -> Void? {
    let paths = try allEntries().filter { directoryNames.contains($0.directoryName) }
    if directoryNames.count == 1 { return try remove(paths) }
    // Another machine may just be moving one of them from one directory to another.
    var conditions: [StorageEngines.Entry] = []
    for path in paths {
      conditions.append(isUnchanged(try openEntry(path, for: .changingKeys), at: path))
    }
    return try remove(paths, if: conditions)
  }

  private func remove(
    _ paths: [EntryPath], if conditions: [StorageEngines.Entry] = []
  ) throws(StorageError) -> Void? {
    let changes = paths.map { Self.entry($0.subpath, nil) }
    return try apply(changes, if: [isUnchanged] + conditions) ? () : nil
  }
}
#endif
