/// An entry whose sidecar this process has verified.
struct VerifiedEntry: Sendable {
  /// The payload file as it was then. Its modification time has random nanoseconds, which tell it
  /// from any other file.
  let inode: UInt64
  let size: Int
  let modified: Int64
  let changed: Int64
  let keyID: Int
  let created: Int64
  /// When this process last read it…
  var lastUsed: Int64
  /// …and when that was last recorded on disk.
  var lastRecordedUse: Int64
  // The smaller fields come last, so that no padding is needed between others.
  let expiry: StoredExpiry
  let kind: Payload.Kind
  /// Whether its sidecar has details.
  let hasDetails: Bool
  /// Whether the payload's checksum was compared.
  var isPayloadVerified: Bool

  /// When it expires, or has expired, unless it is used again.
  var expires: Int64 { expiry.time(created: created, lastUsed: lastUsed) }

  func hasExpired(at now: Int64) -> Bool {
    expiry.hasPassed(created: created, lastUsed: lastUsed, now: now)
  }

  /// Whether an entry that has expired is kept.
  ///
  /// False if it is dated in the future: the clock was set back, and its age is unknown.
  ///
  /// - Parameter length: How long after the expiry.
  func isKept(for length: Int64, at now: Int64) -> Bool {
    now >= expires && now < expires.addingSaturated(length)
  }

  /// Whether this is the entry that has this payload file.
  func matches(_ payload: FileStatus, keyID: Int) -> Bool {
    modified == payload.modified && inode == payload.inode && size == payload.size
      && changed == payload.changed && self.keyID == keyID
  }

  /// Whether a use at this time should be recorded on disk.
  func shouldRecordUse(at now: Int64) -> Bool {
    var interval = 600 * WallClock.second
    if case .idle(let length) = expiry { interval = min(interval, length / 16) }
    // Also if that was recorded while the clock was ahead.
    return !(0..<interval).contains(now.subtractingSaturated(lastRecordedUse))
  }
}

/// What tells an entry on disk from all others of its key.
package struct EntryStamp: Equatable, Sendable {
  private let inode: UInt64
  private let modified: Int64
  private let created: Int64

  init(_ entry: VerifiedEntry) {
    inode = entry.inode
    modified = entry.modified
    created = entry.created
  }
}

/// An entry on disk, without its value.
package struct PresentEntry: Equatable, Sendable {
  /// nil for a record that there is no value.
  package let stamp: EntryStamp?
  /// nil also if it was not read.
  package let version: EntryVersion?
}

extension PresentEntry {
  init(_ entry: VerifiedEntry, version: EntryVersion? = nil) {
    self.init(stamp: EntryStamp(entry), version: version)
  }
}

/// The entries that this process has verified: reading one again does not read its sidecar, nor
/// compare its checksum.
final class VerifiedEntries: Sendable {
  private final class Shard: Sendable {
    let entries = Locked<[Int: VerifiedEntry]>([:])
  }

  private let shards = (0..<16).map { _ in Shard() }
  /// For each shard: the most that a dictionary of 8,192 buckets holds. At 88 bytes each, all
  /// shards take 12 MB.
  private static let capacity = 6_144

  @inline(__always)
  private func shard(_ id: Int) -> Shard { shards[id & 15] }

  /// The verified entry of this name; nil if there is none, or if it has expired.
  ///
  /// The caller has to compare it with the payload file that is there now.
  ///
  /// - Parameter isUse: Whether the entry is used now.
  func entry(_ name: EntryName, isUse: Bool) -> VerifiedEntry? {
    shard(name.id).entries.withLock { entries in
      guard let index = entries.index(forKey: name.id) else { return nil }
      let now = WallClock.now
      var entry = entries.values[index]
      if entry.hasExpired(at: now) { return nil }
      if isUse {
        entry.lastUsed = now
        entries.values[index].lastUsed = now
      }
      return entry
    }
  }

  func insert(_ entry: VerifiedEntry, for name: EntryName) {
    shard(name.id).entries.withLock { entries in
      if entries.count >= Self.capacity { entries = [:] }
      entries[name.id] = entry
    }
  }

  /// Notes that a use was recorded on disk.
  func setLastRecordedUse(_ time: Int64, of name: EntryName) {
    shard(name.id).entries.withLock { entries in
      guard let index = entries.index(forKey: name.id) else { return }
      entries.values[index].lastUsed = time
      entries.values[index].lastRecordedUse = time
    }
  }

  /// Notes that the payload of an entry has the right checksum.
  func notePayloadVerified(_ entry: VerifiedEntry, of name: EntryName) {
    shard(name.id).entries.withLock { entries in
      guard let index = entries.index(forKey: name.id),
        entries.values[index].inode == entry.inode, entries.values[index].keyID == entry.keyID,
        entries.values[index].modified == entry.modified,
        entries.values[index].changed == entry.changed
      else { return }
      entries.values[index].isPayloadVerified = true
    }
  }

  func lastUse(of name: EntryName) -> Int64? {
    shard(name.id).entries.withLock { $0[name.id]?.lastUsed }
  }

  func remove(_ name: EntryName) {
    shard(name.id).entries.withLock { _ = $0.removeValue(forKey: name.id) }
  }
}
