extension Defaults {
  /// The values of a key as this and other processes change them.
  ///
  /// Each element is the value at the time the loop asks for it. Values that were replaced before
  /// that are skipped, and a value that was stored again unchanged is not repeated, except a `Set`,
  /// which is stored as a list whose order may differ. The sequence starts with the call that made
  /// it: a change between that call and the first `next()` is not missed. A removed value appears
  /// as the default. So does a value of another type, which is also reported to
  /// ``StorageSystem/onFailure``.
  ///
  /// ```swift
  /// for await size in Defaults.changes("fontSize", default: 16) {
  ///   print("now", size)
  /// }
  /// ```
  ///
  /// With `initial: true` the first element is the value at the time of the first `next()`, so that
  /// one loop sets things up and keeps them current.
  ///
  /// Changes in quick succession are combined: a loop gets at most five elements in ten
  /// milliseconds.
  ///
  /// The loop ends when its task is cancelled. While it waits it uses no processor time, because
  /// the kernel wakes it (`inotify(7)`); only if the system has no watches left does it check once
  /// a second.
  public struct Changes<Value: Codable>: AsyncSequence {
    private let store: Store
    private let key: String
    /// The value when the sequence was made; nil to begin with the current one.
    private let firstValue: StoredValue??
    private let defaultValue: Value

    init(_ store: Store, _ key: String, default defaultValue: Value, initial: Bool) {
      self.store = store
      self.key = key
      self.defaultValue = defaultValue
      firstValue = initial ? nil : .some(Self.currentValue(store, key))
    }

    private static func currentValue(_ store: Store, _ key: String) -> StoredValue? {
      do throws(StorageError) {
        return try store.engine.get().value(forKey: key)
      } catch {
        store.report(error.inContext(of: "changes", key: key))
        return nil
      }
    }

    /// Makes an iterator, which begins with the first change after the sequence was made, or with
    /// the current value if the sequence was made with `initial: true`.
    public func makeAsyncIterator() -> Iterator {
      Iterator(sequence: self, lastValue: firstValue)
    }

    /// Returns one value after another.
    public struct Iterator: AsyncIteratorProtocol {
      private let sequence: Changes
      /// nil before the first element of a sequence that begins with the current value.
      private var lastValue: StoredValue??
      private var signals: ChangeSignals

      init(sequence: Changes, lastValue: StoredValue??) {
        self.sequence = sequence
        self.lastValue = lastValue
        signals = ChangeSignals(of: sequence.store, key: sequence.key)
      }

      /// Waits for the next value; nil if the task is cancelled or the suite cannot be watched.
      public mutating func next(
        isolation actor: isolated (any Actor)?
      ) async throws(Never) -> Value? {
        while await signals.wait(isolation: actor) {
          let current = Changes.currentValue(sequence.store, sequence.key)
          if let lastValue, lastValue.isEquivalent(to: current) { continue }
          lastValue = .some(current)
          guard let current else { return sequence.defaultValue }
          do throws(StorageError) {
            return try Codec.decodeSetting(current)
          } catch {
            sequence.store.report(error.inContext(of: "changes", key: sequence.key))
            return sequence.defaultValue
          }
        }
        return nil
      }
    }
  }
}

/// Waits for signals that the values of a store may have changed.
struct ChangeSignals {
  /// nil if the store cannot be watched.
  private var signals: AsyncStream<Void>.Iterator?
  private let engine: Result<any ValueEngine, StorageError>
  /// Whether values may have changed since the last check.
  private var isCheckDue = true
  /// When the current period began, and how many checks have been made in it.
  private var period = (start: ContinuousClock.now, checkCount: 0)

  /// A check reads values, which delays writers, and waking a task takes longer than a set. A loop
  /// that follows many changes in a row leaves the writers alone most of the time.
  @TaskLocal static var lengthOfPeriod = Duration.milliseconds(10)
  static let mostChecks = 5

  /// Receives the signals from now on; reports a failure to do so.
  init(of store: Defaults.Store, key: String? = nil) {
    engine = store.engine
    do throws(StorageError) {
      signals = try engine.get().changes { key == nil || $0 == key }.makeAsyncIterator()
    } catch {
      store.report(error.inContext(of: "changes", key: key))
    }
  }

  /// Waits until values may have changed since the last call, whose caller has checked them;
  /// returns at once when it is first called.
  ///
  /// - Returns: false if the task is cancelled or the store cannot be watched.
  mutating func wait(isolation actor: isolated (any Actor)?) async -> Bool {
    while signals != nil, !Task.isCancelled {
      // A check must not wait for a server on a thread that tasks share. There is a signal when the
      // values have come.
      if isCheckDue, (try? engine.get().isReady) == true {
        isCheckDue = false
        return true
      }
      // Signals that come until the next check make one.
      if await signals?.next(isolation: actor) == nil { break }
      isCheckDue = true
      await limitRate(isolation: actor)
    }
    return false
  }

  /// Waits if there have been too many checks lately.
  private mutating func limitRate(isolation actor: isolated (any Actor)?) async {
    let now = ContinuousClock.now
    if now - period.start >= Self.lengthOfPeriod { period = (now, 0) }
    period.checkCount += 1
    // Throws if the task is cancelled, which the caller notices.
    if period.checkCount > Self.mostChecks { try? await Task.sleep(for: Self.lengthOfPeriod) }
  }
}

extension Defaults.Changes: Sendable where Value: Sendable {}

extension Defaults.Store {
  /// The values of a key as this and other processes change them; see ``Defaults/Changes``.
  public func changes<T: Codable>(
    _ key: String, default defaultValue: T, initial: Bool = false
  ) -> Defaults.Changes<T> {
    Defaults.Changes(self, key, default: defaultValue, initial: initial)
  }

  /// The values of a key as this and other processes change them, nil while it has none; see
  /// ``Defaults/Changes``.
  public func changes<T: Codable>(
    _ key: String, type: T.Type = T.self, initial: Bool = false
  ) -> Defaults.Changes<T?> {
    Defaults.Changes(self, key, default: nil, initial: initial)
  }

  /// The values of a typed key as this and other processes change them; see ``Defaults/Changes``.
  public func changes<T: Codable>(
    _ key: Defaults.Key<T>, initial: Bool = false
  ) -> Defaults.Changes<T> {
    changes(key.name, default: key.defaultValue, initial: initial)
  }
}
