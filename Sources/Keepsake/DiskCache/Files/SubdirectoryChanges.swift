/// Tells whether other processes have changed a subdirectory: stored or removed entries, or emptied
/// the cache. An entry that replaces one of the same size is no change.
///
/// A process that asks a server for a value, and then stores it, compares the changes before and
/// after: another process may have stored a later value meanwhile, and removed that, so that there
/// is no entry to compare with.
package struct SubdirectoryChanges: Equatable, Sendable {
  /// nil if the ledger could not be opened, or was locked. Any later changes differ then.
  fileprivate let epoch: UInt64?
  fileprivate let count: UInt64
}

extension FileCache {
  /// The changes that other processes have made near a key; nil if there never was a cache.
  package func changes(near key: String) throws(StorageError) -> SubdirectoryChanges? {
    let directory = EntryName.directory(of: key)
    if let cache = try openCache() {
      return SubdirectoryChanges(
        epoch: cache.epoch, count: cache.ledger?.foreignChanges(in: directory) ?? 0)
    }
    // If the cache's directory was deleted, its ledger may be left.
    guard let ledger = try CacheLedger.openExisting(paths, timeout: timeout) else { return nil }
    return SubdirectoryChanges(
      epoch: ledger.epoch, count: ledger.foreignChanges(in: directory))
  }

  /// Whether other processes have changed nothing near a key since then.
  ///
  /// - Parameter changes: nil if there was no cache.
  package func isUnchanged(
    near key: String, since changes: SubdirectoryChanges?
  ) throws(StorageError) -> Bool {
    let now = try self.changes(near: key)
    return now == changes || changes == nil && now?.count == 0
  }
}
