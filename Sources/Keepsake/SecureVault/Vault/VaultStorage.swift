#if SecureVault
/// Where a vault is kept: its header, and its sealed entries by paths derived from their keys.
///
/// A value belongs to the header that was read or written with it, or to none. Its writes do
/// nothing once the header has been replaced, so nothing is sealed under a key that is being
/// retired.
package protocol VaultStorage: Sendable {
  /// Names the vault in errors.
  var path: String { get }
  /// Names the header in errors.
  var headerPath: String { get }
  /// Names the vault in the associated data of its key set, so that it does not open in the place
  /// of another one.
  var context: String { get }

  /// The key file that may open the vault; nil if several machines share the vault, because a key
  /// file belongs to one of them.
  func keyFile() throws(StorageError) -> KeyFile?

  /// The header as it is now, and the storage with it; nil if there is none.
  func readHeader() throws(StorageError) -> (VaultHeader, any VaultStorage)?

  /// Whether the header, which may be damaged, is still this one; if this belongs to none, whether
  /// there still is none.
  func isCurrent() throws(StorageError) -> Bool

  /// The same for a caller that would fail or do nothing if it is. On another machine, the header
  /// may have been replaced already; it has arrived on this one when this returns false.
  func isStillStored() throws(StorageError) -> Bool

  /// Replaces the header if it is still this one. If this belongs to none, stores the first one of
  /// a new vault.
  ///
  /// - Parameter makeHeader: Returns nil to leave everything as it is. Entries that another process
  ///   stores in the meantime are sealed under the primary key of this header.
  /// - Returns: nil if nothing was done.
  /// - Throws: An error of code `damaged` if there is no header, but there are entries.
  func replaceHeader(
    _ makeHeader: () throws(StorageError) -> VaultHeader?
  ) throws(StorageError) -> (VaultHeader, any VaultStorage)?

  // MARK: All entries

  /// The names of the directories that hold entries, sorted.
  func entryDirectories() throws(StorageError) -> [String]

  /// The paths of the entries in one of these directories, sorted.
  func entries(in directoryName: String) throws(StorageError) -> [EntryPath]

  /// The paths of all entries, sorted: also of those that another machine has stored, and that have
  /// not arrived on this one.
  func allEntries() throws(StorageError) -> [EntryPath]

  /// Makes the removal and the replacement of entries survive a power cut.
  func synchronizeEntries() throws(StorageError)

  /// Removes the directories that hold no entries: their names may come from an old name key. The
  /// caller replaces or removes the header.
  ///
  /// - Returns: Why directories stay.
  func removeEmptyDirectories() throws(StorageError) -> [StorageError]

  /// Removes all entries and the header, whether they can be read or not.
  ///
  /// - Parameter report: Gets failures that keep no secret from being removed, under a lock.
  /// - Returns: False if there was nothing to remove.
  func erase(reporting report: (StorageError) -> Void) throws(StorageError) -> Bool

  // MARK: Single entries

  /// Whether there is an entry.
  func contains(_ path: EntryPath) throws(StorageError) -> Bool

  /// An entry with unchecked bytes; nil if there is none.
  func openEntry(_ path: EntryPath, for purpose: EntryPurpose) throws(StorageError) -> StoredEntry?

  /// Keeps all other threads and processes from writing that entry or the header.
  ///
  /// - Returns: nil if the storage has no locks; then a write fails if it is based on something
  ///   else than what is stored.
  func lockEntry(_ path: EntryPath) throws(StorageError) -> HeldLock?

  /// Stores an entry such that it survives a power cut.
  ///
  /// - Parameters:
  ///   - isLockHeld: Whether the caller has locked the entry.
  ///   - header: A header of other bytes with the same content; nil unless the entry requires the
  ///     user's presence. A storage without locks stores it with the entry. So it fails one of two
  ///     processes that, at the same time, store the first such entry and replace the key for such
  ///     entries because there are none.
  func store(
    _ entry: UnsafeRawBufferPointer, at path: EntryPath, if condition: EntryCondition,
    isLockHeld: Bool, renewing header: VaultHeader?
  ) throws(StorageError) -> WriteOutcome

  /// Replaces an entry that the caller has read. The new one need not survive a power cut yet,
  /// unless it is at another path.
  ///
  /// - Parameters:
  ///   - path: Where the old entry is.
  ///   - newPath: The path that the caller has locked. If it is another one, there is no entry, and
  ///     the old one is removed.
  /// - Returns: nil if the header or the entry is another one.
  func replace(
    _ old: StoredEntry, at path: EntryPath, by entry: UnsafeRawBufferPointer,
    movingTo newPath: EntryPath
  ) throws(StorageError) -> Void?

  /// Removes an entry such that it stays removed after a power cut. It is removed once: no other
  /// process stores it at one of its paths between two removals.
  ///
  /// - Parameter paths: The entry's paths, the primary one last: what is at another one is older.
  /// - Returns: nil if the header is another one.
  func removeEntry(at paths: [EntryPath]) throws(StorageError) -> Void?

  /// Does the same with all entries in the directories of a service.
  ///
  /// - Returns: nil if nothing was removed.
  func removeEntries(in directoryNames: [String]) throws(StorageError) -> Void?
}

extension VaultStorage {
  /// The key that an entry is sealed under, according to its header, which nothing authenticates
  /// yet; nil if there is no entry.
  func keyID(of path: EntryPath) throws(StorageError) -> UInt32? {
    try openEntry(path, for: .changingKeys)?.header(at: path).keyID
  }

  /// Throws if there are entries. A new header must not hide that the keys to them are missing.
  func requireNoEntries() throws(StorageError) {
    for directoryName in try entryDirectories() {
      if let path = try entries(in: directoryName).first {
        throw missingHeaderError(besides: path)
      }
    }
  }

  /// - Parameter path: An entry of the vault without a header.
  package func missingHeaderError(besides path: EntryPath) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: headerPath,
      reason: "the vault header is missing, but secrets exist, such as \(path.path)",
      remedy: "Restore the header from a backup; the secrets are untouched.")
  }
}
#endif
