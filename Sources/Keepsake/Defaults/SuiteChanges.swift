extension Defaults {
  /// The names of a suite's keys as their values change, in this process and in others.
  ///
  /// Each element holds the names whose values differ from those at the last element, or, for the
  /// first one, at the call that made the sequence: set, changed and removed ones. Several changes
  /// may come as one element; a value that came and went in between, and one that is stored again
  /// with the same bytes, is none. An element is never empty.
  ///
  /// ```swift
  /// for await names in Defaults.changes(suite: "team") {
  ///   if names.contains("theme") { applyTheme() }
  /// }
  /// ```
  ///
  /// The sequence may be used from any thread, and by several loops: each gets all changes. A loop
  /// ends when its task is cancelled, and costs nothing while it waits; with each change it looks
  /// at the whole suite. One that cannot be read counts as unchanged until the next change, and
  /// that is reported to ``StorageSystem/onFailure``. Names that differ only in their encoding (NFC
  /// and NFD) are one in a set. For the values of one key see ``Changes``.
  public struct SuiteChanges: AsyncSequence, Sendable {
    private let store: Store
    private let start: ByteKeyedDictionary<StoredValue>?

    init(_ store: Store) {
      self.store = store
      start = Self.current(store)
    }

    /// All values; nil, and that reported, when they cannot be read.
    private static func current(_ store: Store) -> ByteKeyedDictionary<StoredValue>? {
      var values = ByteKeyedDictionary<StoredValue>()
      do throws(StorageError) {
        for key in try store.engine.get().keys() {
          if let value = try store.engine.get().value(forKey: key) { values.set(key, value) }
        }
      } catch {
        store.report(error.inContext(of: "changes"))
        return nil
      }
      return values
    }

    /// Starts to wait for changes since this sequence was made.
    public func makeAsyncIterator() -> Iterator {
      Iterator(sequence: self, last: start)
    }

    /// Hands out one set of names after another.
    public struct Iterator: AsyncIteratorProtocol {
      private let sequence: SuiteChanges
      /// nil as long as the suite could not be read.
      private var last: ByteKeyedDictionary<StoredValue>?
      private var news: NewsIterator

      fileprivate init(sequence: SuiteChanges, last: ByteKeyedDictionary<StoredValue>?) {
        self.sequence = sequence
        self.last = last
        news = NewsIterator(of: sequence.store)
      }

      /// The names of what has changed; nil when the task is cancelled or there is no store to
      /// watch.
      public mutating func next() async -> Set<String>? {
        await next(isolation: nil)
      }

      /// The names of what has changed; nil when the task is cancelled or there is no store to
      /// watch.
      public mutating func next(
        isolation actor: isolated (any Actor)?
      ) async throws(Never) -> Set<String>? {
        // The closure must not reach into `self`, which is being changed as long as it waits.
        var last = last
        defer { self.last = last }
        return await news.next(isolation: actor) { [sequence] () -> Set<String>? in
          guard let current = SuiteChanges.current(sequence.store) else { return nil }
          let names = current.keysWithOtherValues(than: last ?? current)
          last = current
          return names.isEmpty ? nil : names
        }
      }
    }
  }
}

extension ByteKeyedDictionary<StoredValue> {
  /// The keys that only one of the tables has, or under which each has another value.
  fileprivate func keysWithOtherValues(than other: Self) -> Set<String> {
    var keys: Set<String> = []
    for (key, value) in elements where other[key] != value { keys.insert(key) }
    for key in other.keys where self[key] == nil { keys.insert(key) }
    return keys
  }
}

extension Defaults.Store {
  /// The names of the keys as their values change, in this process and in others.
  ///
  /// ```swift
  /// for await names in Defaults.suite("team").changes() { print(names) }
  /// ```
  ///
  /// What changes from this call on is not missed, on whatever thread it is made.
  ///
  /// - Returns: A sequence that goes on until its task is cancelled; see ``Defaults/SuiteChanges``.
  public func changes() -> Defaults.SuiteChanges { Defaults.SuiteChanges(self) }
}
