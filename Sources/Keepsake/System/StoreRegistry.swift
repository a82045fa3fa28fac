/// Creates the store of each place when it is first requested, and keeps it.
final class StoreRegistry<Place: Hashable & Sendable, Store: Sendable>: Sendable {
  private struct Stores {
    /// Takes half as long as a `Dictionary`.
    var named = ByteKeyedDictionary<Store>()
    var unnamed: [Place: Store] = [:]
    /// After closing, a store is created for each request and not kept.
    var isClosed = false
  }

  private let stores = ReadWriteLocked(Stores())

  @inline(__always)
  func store(named name: String) -> Store? {
    stores.withReadLock { $0.named.withValue(of: name) { $0 } }
  }

  /// The store of a place that has one already.
  func store(_ place: Place, named name: String?) -> Store? {
    stores.withReadLock { stores in
      if let name { stores.named[name] } else { stores.unnamed[place] }
    }
  }

  /// - Parameter name: A name that identifies the place; nil if it has none.
  func store(_ place: Place, named name: String?, make: () -> Store) -> Store {
    if let known = store(place, named: name) { return known }
    return stores.withLock { stores in
      let known = if let name { stores.named[name] } else { stores.unnamed[place] }
      if let known { return known }
      let store = make()
      if stores.isClosed { return store }
      if let name { stores.named.set(name, store) } else { stores.unnamed[place] = store }
      return store
    }
  }

  func close() { stores.withLock { $0 = Stores(isClosed: true) } }
}
