/// The version of a value that machines share, which tells it from any other value of its key.
package struct EntryVersion: Equatable, Sendable {
  /// The number of the change that made it, which the server counts for all keys of the cache; 0 if
  /// the change did not reach the server.
  package let number: UInt64
  /// Random: after a failover, a server may give a number for the second time.
  package let name: UInt64

  package init(number: UInt64, name: UInt64) {
    self.number = number
    self.name = name
  }
}
