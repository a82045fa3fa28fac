@testable import Keepsake

extension InFlightFetches {
  /// The number of calls that wait for a value of this store.
  func waiterCount(of store: DiskCache.Store) -> Int {
    let store = ObjectIdentifier(store)
    return state.withLock { state in
      state.fetches.values.filter { $0.producer.target.store == store }
        .reduce(0) { $0 + $1.waiters.count }
    }
  }

  /// Whether nothing remains of any fetch of this store.
  func isEmpty(for store: DiskCache.Store) -> Bool {
    let store = ObjectIdentifier(store)
    return state.withLock { state in
      let calls =
        state.fetches.values.map(\.producer) + state.dependencies.keys
        + state.fetchIDs.keys
      return calls.allSatisfy { $0.target.store != store }
        && state.current.keys.allSatisfy { $0.store != store }
    }
  }
}
