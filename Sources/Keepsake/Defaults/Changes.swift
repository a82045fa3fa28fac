extension Defaults {
  /// A setting's values as they change, in this process and in others.
  ///
  /// Each element is the value at the time it is asked for: values that came and went in between
  /// are skipped, and one that is stored again with the same bytes is not repeated. What changes
  /// between the call that made the sequence and the first `next()` is not missed. Removal shows as
  /// the default. A value of another type shows as the default too, and is reported to
  /// ``StorageSystem/onFailure``.
  ///
  /// ```swift
  /// for await size in Defaults.changes("fontSize", default: 16) {
  ///   print("now", size)
  /// }
  /// ```
  ///
  /// The loop ends when its task is cancelled. While a loop waits it costs nothing: the kernel
  /// wakes it (`inotify(7)`); only where the system has no watch left it looks once a second.
  public struct Changes<Value: Codable>: AsyncSequence {
    private let store: Store
    private let key: String
    private let start: StoredValue?
    private let fallback: Value

    init(_ store: Store, _ key: String, fallback: Value) {
      self.store = store
      self.key = key
      self.fallback = fallback
      start = Self.current(store, key)
    }

    private static func current(_ store: Store, _ key: String) -> StoredValue? {
      do throws(StorageError) {
        return try store.engine.get().value(forKey: key)
      } catch {
        store.report(error.inContext(of: "changes", key: key))
        return nil
      }
    }

    /// Starts to wait for changes since this sequence was made.
    public func makeAsyncIterator() -> Iterator {
      Iterator(sequence: self, last: start)
    }

    /// Hands out one value after another.
    public struct Iterator: AsyncIteratorProtocol {
      private let sequence: Changes
      private var last: StoredValue?
      private var news: NewsIterator

      init(sequence: Changes, last: StoredValue?) {
        self.sequence = sequence
        self.last = last
        news = NewsIterator(of: sequence.store, key: sequence.key)
      }

      /// The next value; nil when the task is cancelled or there is no store to watch.
      public mutating func next() async -> Value? {
        await next(isolation: nil)
      }

      /// The next value; nil when the task is cancelled or there is no store to watch.
      public mutating func next(
        isolation actor: isolated (any Actor)?
      ) async throws(Never) -> Value? {
        // The closure must not reach into `self`, which is being changed as long as it waits.
        var last = last
        defer { self.last = last }
        return await news.next(isolation: actor) { [sequence] () -> Value? in
          let current = Changes.current(sequence.store, sequence.key)
          guard current != last else { return nil }
          last = current
          guard let current else { return sequence.fallback }
          do throws(StorageError) {
            return try Codec.decode(current)
          } catch {
            sequence.store.report(error.inContext(of: "changes", key: sequence.key))
            return sequence.fallback
          }
        }
      }
    }
  }
}

/// Looks at a store again whenever something in it may have changed.
struct NewsIterator {
  private var ticks: AsyncStream<Void>.Iterator?

  /// Looks from now on; a failure to do so is reported.
  init(of store: Defaults.Store, key: String? = nil) {
    do throws(StorageError) {
      let ticks =
        if let key { try store.engine.get().changes(where: { $0 == key }) } else {
          try store.engine.get().changes(where: { _ in true })
        }
      self.ticks = ticks.makeAsyncIterator()
    } catch {
      store.report(error.inContext(of: "changes", key: key))
    }
  }

  /// What `look` finds, once it finds something; nil when the task is cancelled or there is no
  /// store to watch.
  mutating func next<Element>(
    isolation actor: isolated (any Actor)?, _ look: () -> Element?
  ) async -> Element? {
    while ticks != nil, !Task.isCancelled {
      if let element = look() { return element }
      if await ticks?.next(isolation: actor) == nil { break }
    }
    return nil
  }
}

extension Defaults.Changes: Sendable where Value: Sendable {}

extension Defaults.Store {
  /// The values of a key as they change; see ``Defaults/Changes``.
  public func changes<T: Codable>(_ key: String, default defaultValue: T) -> Defaults.Changes<T> {
    Defaults.Changes(self, key, fallback: defaultValue)
  }

  /// The values of a key as they change, nil while nothing is stored; see ``Defaults/Changes``.
  public func changes<T: Codable>(
    _ key: String, type: T.Type = T.self
  ) -> Defaults.Changes<T?> {
    Defaults.Changes(self, key, fallback: nil)
  }

  /// The values of a typed key as they change; see ``Defaults/Changes``.
  public func changes<T: Codable>(_ key: Defaults.Key<T>) -> Defaults.Changes<T> {
    changes(key.name, default: key.defaultValue)
  }
}
