/// How an entry is stored.
package struct WriteOptions: Sendable {
  package let expiry: StoredExpiry
  /// Whether the entry must survive a power cut once it is stored.
  package let isDurable: Bool
  package let details: EntryDetails?
  package let author: ChangeAuthor
  /// Asked while the key is locked: if false, nothing is stored. nil for true.
  let condition: (@Sendable () -> Bool)?

  package init(
    expiry: StoredExpiry, details: EntryDetails? = nil, isDurable: Bool,
    by author: ChangeAuthor = .caller, if condition: (@Sendable () -> Bool)? = nil
  ) {
    self.expiry = expiry
    self.details = details
    self.isDurable = isDurable
    self.author = author
    self.condition = condition
  }

  var isStillWanted: Bool { condition?() ?? true }

  /// nil if the entry would expire at once and not be kept.
  init?(
    _ expiry: DiskCache.Expiry, _ details: EntryDetails? = nil, isDurable: Bool,
    by author: ChangeAuthor = .caller
  ) {
    let now = WallClock.now
    if let expiry = StoredExpiry(expiry, now: now) {
      self.init(expiry: expiry, details: details, isDurable: isDurable, by: author)
    } else if let details, details.kept > 0 {
      self.init(expiry: .at(now), details: details, isDurable: isDurable, by: author)
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
