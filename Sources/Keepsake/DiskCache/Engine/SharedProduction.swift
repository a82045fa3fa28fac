/// A producer that runs for a cache that machines share, and makes a change of an entry.
///
/// A change without one is that of a call which sets or removes the entry: from then on no machine
/// may use the old one.
package struct SharedProduction: Sendable {
  /// nil to store the value on this machine alone.
  package let lease: CacheLease?
  /// When the producer began, by the cache's count of events.
  package let began: UInt64

  package init(lease: CacheLease?, began: UInt64) {
    self.lease = lease
    self.began = began
  }
}

/// The right to produce the value of a key for all machines.
package struct CacheLease: Hashable, Sendable {
  package let key: String
  /// Distinguishes the lease from all others.
  package let token: UInt64
  /// Common to all leases of the key until it is changed.
  package let production: UInt64

  package init(key: String, token: UInt64, production: UInt64) {
    self.key = key
    self.token = token
    self.production = production
  }
}
