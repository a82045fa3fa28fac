/// What a fetch finds.
package enum FoundEntry: Sendable {
  case missing
  /// A record that there is no value.
  case noValue
  case fresh(CachedEntry)
  /// It has expired and is kept.
  case stale(CachedEntry)
}

/// An entry as a fetch finds it.
package struct CachedEntry: Sendable {
  package let payload: Payload
  /// In nanoseconds since 1970.
  let created: Int64
  /// In nanoseconds since 1970, if the entry has expired.
  let expires: Int64
  /// Empty if they were not asked for.
  package let tags: [String: String]
  /// See ``EntryDetails/version``; only known for an entry that has expired.
  var version: EntryVersion?

  package init(
    payload: Payload, created: Int64, expires: Int64 = .max, tags: [String: String],
    version: EntryVersion? = nil
  ) {
    self.payload = payload
    self.created = created
    self.expires = expires
    self.tags = tags
    self.version = version
  }
}

/// What was found in a cache.
package struct CacheLookup: Sendable {
  package let found: FoundEntry
  /// Whether the server of a cache that machines share was asked for the value.
  package let isFromServer: Bool

  package init(_ found: FoundEntry, isFromServer: Bool = false) {
    self.found = found
    self.isFromServer = isFromServer
  }
}
