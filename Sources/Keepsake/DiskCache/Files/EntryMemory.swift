/// What this process knows of entries that it has read: these need no look at their sidecar, and
/// those it has summed no second sum.
final class EntryMemory: Sendable {
  struct Known: Sendable {
    /// The payload file, as it was then; the random part of its time makes that sure.
    let inode: UInt64
    let size: Int
    let modified: Int64
    let changed: Int64
    let keyID: Int
    let created: Int64
    /// When it was last read here…
    var used: Int64
    /// …and when that was last noted on the disk.
    var noted: Int64
    // What takes less than a word comes last, as nothing then is between two of them.
    let lifespan: Lifespan
    let kind: Payload.Kind
    /// Whether the payload's checksum was compared.
    var isSummed: Bool

    func isOver(at now: Int64) -> Bool { lifespan.isOver(created: created, used: used, now: now) }

    func describes(_ payload: FileStatus, keyID: Int) -> Bool {
      modified == payload.modified && inode == payload.inode && size == payload.size
        && changed == payload.changed && self.keyID == keyID
    }

    /// Whether its use should be noted on the disk.
    func isNoteDue(at now: Int64) -> Bool {
      var pause = 600 * WallClock.second
      if case .idle(let length) = lifespan { pause = min(pause, length / 16) }
      return now.subtractingSaturated(noted) >= pause
    }
  }

  private final class Shard: Sendable {
    let entries = Locked<[Int: Known]>([:])
  }

  private let shards = (0..<16).map { _ in Shard() }
  /// In each shard: as many as 8,192 places of a dictionary take, of 88 bytes; 12 MB in all.
  private static let capacity = 6_144

  @inline(__always)
  private func shard(_ id: Int) -> Shard { shards[id & 15] }

  /// What is known of an entry that is not over, which holds if its payload still is that one.
  ///
  /// - Parameter isUse: Whether it is read, and not only asked for.
  func known(_ name: EntryName, isUse: Bool) -> Known? {
    shard(name.id).entries.withLock { entries in
      guard let index = entries.index(forKey: name.id) else { return nil }
      let now = WallClock.now
      var known = entries.values[index]
      if known.isOver(at: now) { return nil }
      if isUse {
        known.used = now
        entries.values[index].used = now
      }
      return known
    }
  }

  func remember(_ known: Known, of name: EntryName) {
    shard(name.id).entries.withLock { entries in
      if entries.count >= Self.capacity { entries = [:] }
      entries[name.id] = known
    }
  }

  /// Remembers that a use was noted on the disk.
  func noted(_ name: EntryName, at time: Int64) {
    shard(name.id).entries.withLock { entries in
      guard let index = entries.index(forKey: name.id) else { return }
      entries.values[index].used = time
      entries.values[index].noted = time
    }
  }

  func lastUse(of name: EntryName) -> Int64? {
    shard(name.id).entries.withLock { $0[name.id]?.used }
  }

  func forget(_ name: EntryName) {
    shard(name.id).entries.withLock { _ = $0.removeValue(forKey: name.id) }
  }
}
