/// How an entry is stored.
package struct WriteOptions: Sendable {
  package let expiry: StoredExpiry
  /// Whether the entry must survive a power cut once it is stored.
  package let isDurable: Bool
  package let details: EntryDetails?
  /// nil for a change that no fetch of a shared cache makes.
  package let production: SharedProduction?
  /// Asked while the key is locked: if false, nothing is stored. nil for true.
  let condition: (@Sendable () -> Bool)?

  package init(
    expiry: StoredExpiry, details: EntryDetails? = nil, isDurable: Bool,
    by production: SharedProduction? = nil, if condition: (@Sendable () -> Bool)? = nil
  ) {
    self.expiry = expiry
    self.details = details
    self.isDurable = isDurable
    self.production = production
    self.condition = condition
  }

  var isStillWanted: Bool { condition?() ?? true }

  /// nil if the entry would expire at once and not be kept.
  init?(
    _ expiry: DiskCache.Expiry, _ details: EntryDetails? = nil, isDurable: Bool,
    by production: SharedProduction? = nil
  ) {
    let now = WallClock.now
    if let expiry = StoredExpiry(expiry, now: now) {
      self.init(expiry: expiry, details: details, isDurable: isDurable, by: production)
    } else if let details, details.kept > 0 {
      self.init(expiry: .at(now), details: details, isDurable: isDurable, by: production)
    } else {
      return nil
    }
  }
}

/// Surrounds the step that makes a write or a removal visible, while the key is locked.
///
/// It decides whether to call `commit`, and does what else must happen before another writer of the
/// key continues.
package typealias CommitHook =
  (_ commit: () throws(StorageError) -> Void) throws(StorageError) -> Void
