public import FoundationEssentials

extension DiskCache {
  /// The size, creation date and expiry of an entry.
  public struct Entry: Hashable, Sendable {
    /// The value's size in bytes. On disk it takes whole blocks; see ``DiskCache/totalSize``.
    public let size: Int
    /// When the entry was stored.
    public let created: Date
    /// When the entry expires; nil for never.
    ///
    /// With ``DiskCache/Expiry/idle(_:)`` this is the date on which it expires unless it is read
    /// before.
    public let expires: Date?
    /// Until when a fetch can use the entry after its expiry; nil if it is not kept.
    public let keptUntil: Date?
    /// The texts that were stored with the value, such as its type; empty if there are none.
    public let tags: [String: String]

    /// - Parameters:
    ///   - created: In nanoseconds since 1970.
    ///   - expires: Likewise; `Int64.max` for never.
    package init(size: Int, created: Int64, expires: Int64, _ details: EntryDetails? = nil) {
      self.size = size
      self.created = Date(nanoseconds: created)
      self.expires = expires == .max ? nil : Date(nanoseconds: expires)
      tags = details?.tags ?? [:]
      let end = expires.addingSaturated(details?.kept ?? 0)
      keptUntil = end == expires || end == .max ? nil : Date(nanoseconds: end)
    }
  }

  /// Counts of what a cache has done in this process.
  public struct Statistics: Hashable, Sendable {
    /// Reads that returned a value, or nil as it was remembered.
    public internal(set) var hits = 0
    /// Reads that found no entry, or only an expired or damaged one.
    public internal(set) var misses = 0
    /// Fetches that got the value that another task was producing at that time. They count neither
    /// as hits nor as misses.
    public internal(set) var coalesced = 0
    /// Entries that were removed because of the size limit.
    public internal(set) var evictions = 0
    /// Entries with damaged files, which were removed, and entries with damaged bytes on the
    /// server. Each read of one also counts as a miss.
    public internal(set) var damaged = 0
    /// Hits whose value came from the server on which machines share the cache; 0 for a cache of
    /// this machine alone.
    ///
    /// See ``StorageBacking``.
    public internal(set) var sharedHits = 0
    /// Misses for which that server was asked too, and had no value or only an expired one.
    public internal(set) var sharedMisses = 0
  }
}

extension Date {
  init(nanoseconds: Int64) {
    self.init(timeIntervalSince1970: Double(nanoseconds) / 1e9)
  }
}
