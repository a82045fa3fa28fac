public import FoundationEssentials

extension DiskCache {
  /// What is known of an entry besides its value.
  public struct Entry: Hashable, Sendable {
    /// The value's size in bytes; on the disk it takes whole blocks, see ``DiskCache/totalSize``.
    public let size: Int
    /// When it was stored.
    public let created: Date
    /// When it will be gone by itself; nil for never.
    ///
    /// For ``DiskCache/Expiry/idle(_:)``: if nobody reads it until then.
    public let expires: Date?

    init(size: Int, created: Int64, end: Int64) {
      self.size = size
      self.created = Date(nanoseconds: created)
      expires = end == .max ? nil : Date(nanoseconds: end)
    }
  }

  /// How often a cache was of use in this process.
  public struct Statistics: Hashable, Sendable {
    /// Values read.
    public internal(set) var hits = 0
    /// Reads that found nothing, or nothing any more.
    public internal(set) var misses = 0
    /// Entries removed to keep to the size limit.
    public internal(set) var evictions = 0
    /// Entries removed because their files were damaged; each was a miss.
    public internal(set) var damaged = 0
  }
}

extension Date {
  init(nanoseconds: Int64) {
    self.init(timeIntervalSince1970: Double(nanoseconds) / 1e9)
  }
}
