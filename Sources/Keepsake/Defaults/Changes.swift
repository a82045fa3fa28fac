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
  /// The loop ends when its task is cancelled. While a loop waits it costs nothing: the kernel wakes
  /// it (`inotify(7)`); only where the system has no watch left it looks once a second.
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
        return try store.engine.value(forKey: key)
      } catch {
        store.report(error.during("changes", key: key))
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
      private var ticks: AsyncStream<Void>.Iterator?

      init(sequence: Changes, last: StoredValue?) {
        self.sequence = sequence
        self.last = last
        do throws(StorageError) {
          ticks = try sequence.store.engine.ticks().makeAsyncIterator()
        } catch {
          sequence.store.report(error.during("changes", key: sequence.key))
        }
      }

      /// The next value; nil when the task is cancelled or there is no store to watch.
      public mutating func next() async -> Value? {
        await next(isolation: nil)
      }

      /// The next value; nil when the task is cancelled or there is no store to watch.
      public mutating func next(
        isolation actor: isolated (any Actor)?
      ) async throws(Never) -> Value? {
        while ticks != nil, !Task.isCancelled {
          let current = Changes.current(sequence.store, sequence.key)
          if current != last {
            last = current
            guard let current else { return sequence.fallback }
            do throws(StorageError) {
              return try Codec.decode(current)
            } catch {
              sequence.store.report(error.during("changes", key: sequence.key))
              return sequence.fallback
            }
          }
          if await ticks?.next(isolation: actor) == nil { break }
        }
        return nil
      }
    }
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
