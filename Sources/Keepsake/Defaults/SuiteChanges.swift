extension Defaults {
  /// The keys of a suite whose values this and other processes change.
  ///
  /// Each element is the set of keys whose values differ from those at the previous element, or,
  /// for the first element, at the call that made the sequence: keys that were added, changed or
  /// removed. Several changes may be combined into one element. A value that was changed back, or
  /// stored again unchanged, does not count. No element is empty.
  ///
  /// ```swift
  /// for await keys in Defaults.changes(suite: "team") {
  ///   if keys.contains("theme") { applyTheme() }
  /// }
  /// ```
  ///
  /// The sequence can be used from any thread and by several loops, each of which gets every
  /// change. A loop ends when its task is cancelled. It uses no processor time while it waits, and
  /// compares all values of the suite after each change. A suite that cannot be read counts as
  /// unchanged, and the error is reported to ``StorageSystem/onFailure``. Keys that differ only in
  /// Unicode normalization (NFC and NFD) are one element of the set. For the values of one key, see
  /// ``Changes``.
  public struct SuiteChanges: AsyncSequence, Sendable {
    private let store: Store
    private let initialValues: ByteKeyedDictionary<StoredValue>?

    init(_ store: Store) {
      self.store = store
      initialValues = Self.currentValues(store)
    }

    /// All values; nil if they cannot be read, which is reported.
    private static func currentValues(_ store: Store) -> ByteKeyedDictionary<StoredValue>? {
      var values = ByteKeyedDictionary<StoredValue>()
      do throws(StorageError) {
        let engine = try store.engine.get()
        for key in try engine.keys() {
          if let value = try engine.value(forKey: key) { values.set(key, value) }
        }
      } catch {
        store.report(error.inContext(of: "changes"))
        return nil
      }
      return values
    }

    /// Makes an iterator, which begins with the first change after the sequence was made.
    public func makeAsyncIterator() -> Iterator {
      Iterator(sequence: self, lastValues: initialValues)
    }

    /// Returns one set of keys after another.
    public struct Iterator: AsyncIteratorProtocol {
      private let sequence: SuiteChanges
      /// nil until the suite can be read.
      private var lastValues: ByteKeyedDictionary<StoredValue>?
      private var signals: ChangeSignals

      fileprivate init(
        sequence: SuiteChanges, lastValues: ByteKeyedDictionary<StoredValue>?
      ) {
        self.sequence = sequence
        self.lastValues = lastValues
        signals = ChangeSignals(of: sequence.store)
      }

      /// Waits for the next changed keys; nil if the task is cancelled or the suite cannot be
      /// watched.
      public mutating func next() async -> Set<String>? {
        await next(isolation: nil)
      }

      /// Waits for the next changed keys; nil if the task is cancelled or the suite cannot be
      /// watched.
      public mutating func next(
        isolation actor: isolated (any Actor)?
      ) async throws(Never) -> Set<String>? {
        // `self` is being modified while `signals` waits, so the closure needs a copy.
        var lastValues = lastValues
        defer { self.lastValues = lastValues }
        return await signals.firstResult(isolation: actor) { [sequence] () -> Set<String>? in
          guard let current = SuiteChanges.currentValues(sequence.store) else { return nil }
          let keys = current.keysWithOtherValues(than: lastValues ?? current)
          lastValues = current
          return keys.isEmpty ? nil : keys
        }
      }
    }
  }
}

extension ByteKeyedDictionary<StoredValue> {
  /// The keys that only one of the dictionaries has, or that have different values in them.
  fileprivate func keysWithOtherValues(than other: Self) -> Set<String> {
    var keys: Set<String> = []
    for (key, value) in elements where other[key] != value { keys.insert(key) }
    for key in other.keys where self[key] == nil { keys.insert(key) }
    return keys
  }
}

extension Defaults.Store {
  /// The keys whose values this and other processes change; see ``Defaults/SuiteChanges``.
  ///
  /// ```swift
  /// for await keys in Defaults.suite("team").changes() { print(keys) }
  /// ```
  ///
  /// No change after this call is missed.
  ///
  /// - Returns: A sequence that ends when its task is cancelled.
  public func changes() -> Defaults.SuiteChanges { Defaults.SuiteChanges(self) }
}
