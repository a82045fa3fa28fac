/// The keys of a suite whose values change, as ``Defaults/changes(suite:)`` describes.
struct SuiteChanges: AsyncSequence, Sendable {
  private let store: Defaults.Store
  private let initial: Known?

  init(_ store: Defaults.Store) {
    self.store = store
    var known: Known?
    _ = Self.update(&known, from: store)
    initial = known
  }

  /// The values of the suite at one moment.
  fileprivate struct Known: Sendable {
    var values = ByteKeyedDictionary<StoredValue>()
    /// Stands for the moment; see ``ValueEngine/changedValues(since:)``.
    var version: UInt64?

    init(_ all: ChangedValues) {
      for (key, value) in all.values { values.set(key, value) }
      version = all.version
    }

    /// Applies changes, and returns the keys whose values differ from those before.
    mutating func apply(_ changes: ChangedValues) -> Set<String> {
      var keys: Set<String> = []
      for (key, value) in changes.values {
        if !values.set(key, value).isEquivalent(to: value) { keys.insert(key) }
      }
      if changes.isComplete {
        let current = Known(changes)
        for key in values.keys where current.values[key] == nil { keys.insert(key) }
        self = current
      }
      version = changes.version
      return keys
    }
  }

  /// Brings `known` up to date.
  ///
  /// - Returns: The keys whose values have changed since it was; none for the first time. If the
  ///   suite cannot be read, that is reported, and it counts as unchanged.
  private static func update(_ known: inout Known?, from store: Defaults.Store) -> Set<String> {
    do throws(StorageError) {
      let changes = try store.engine.get().changedValues(since: known?.version)
      if let keys = known?.apply(changes) { return keys }
      known = Known(changes)
    } catch {
      store.report(error.inContext(of: "changes"))
    }
    return []
  }

  func makeAsyncIterator() -> Iterator {
    Iterator(store, known: initial)
  }

  struct Iterator: AsyncIteratorProtocol {
    private let store: Defaults.Store
    /// The values at the last element; nil until the suite can be read.
    private var known: Known?
    private var signals: ChangeSignals

    fileprivate init(_ store: Defaults.Store, known: Known?) {
      self.store = store
      self.known = known
      signals = ChangeSignals(of: store)
    }

    /// Waits for the next changed keys; nil if the task is cancelled or the suite cannot be
    /// watched.
    mutating func next(
      isolation actor: isolated (any Actor)?
    ) async throws(Never) -> Set<String>? {
      while await signals.wait(isolation: actor) {
        let keys = SuiteChanges.update(&known, from: store)
        if !keys.isEmpty { return keys }
      }
      return nil
    }
  }
}

extension Defaults.Store {
  /// The keys whose values this and other processes change; see ``Defaults/changes(suite:)``.
  ///
  /// ```swift
  /// for await keys in Defaults.suite("team").changes() { print(keys) }
  /// ```
  ///
  /// No change after this call is missed.
  ///
  /// - Returns: A sequence that ends when its task is cancelled.
  public func changes() -> some AsyncSequence<Set<String>, Never> & Sendable {
    SuiteChanges(self)
  }
}
