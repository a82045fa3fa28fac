internal import Keepsake

/// The names of a cache on the server: its keys and its channel.
///
/// They share the part in braces, so that a cluster keeps them on one node. No suite of settings
/// has the same: the names of suites contain no colon.
struct CacheKeys: Hashable, Sendable {
  private let tag: String
  private let database: Int

  init(app: String, cache: String, database: Int = 0) {
    tag = TableName.tag(app, "cache:\(PercentEncoding.encode(cache))")
    self.database = database
  }

  /// The random name of the cache's present generation, and the number of the last change.
  var state: String { "\(tag):g" }
  /// The value of an entry.
  func entry(_ key: String) -> String { "\(tag):e:\(key)" }
  /// The generation, and the token of the process that produces the value of an entry.
  func lease(_ key: String) -> String { "\(tag):p:\(key)" }
  /// The generation, and the number that all leases have until the entry is changed.
  func production(_ key: String) -> String { "\(tag):w:\(key)" }
  /// The channel on which changes are published.
  var channel: [UInt8] { Array(TableName.channel(tag, database: database).utf8) }
}
