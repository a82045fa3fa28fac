internal import Keepsake

/// The leases that this process holds.
final class ActiveLeases: Sendable {
  private let leases = Locked<Set<CacheLease>>([], afterFork: { [] })

  func add(_ lease: CacheLease) { leases.withLock { _ = $0.insert(lease) } }

  /// Returns whether the lease was held.
  func remove(_ lease: CacheLease) -> Bool { leases.withLock { $0.remove(lease) != nil } }

  /// Ends all leases, and returns them.
  func removeAll() -> Set<CacheLease> {
    leases.withLock { leases in
      defer { leases = [] }
      return leases
    }
  }

  /// Whether a producer of this process has the lease of the key.
  func contains(_ key: String) -> Bool {
    leases.withLock { $0.contains { $0.key.utf8.elementsEqual(key.utf8) } }
  }
}
