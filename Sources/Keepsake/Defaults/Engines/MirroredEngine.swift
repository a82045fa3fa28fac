package import FoundationEssentials
internal import Synchronization

extension StorageEngines {
  /// A ``StorageEngines/Engine`` whose values each process keeps in memory, so that reading a
  /// setting does not call the engine.
  ///
  /// Use this protocol for an engine that talks to a server. Its suite is then as fast to read as
  /// one in the journal, and can be read while the server cannot be reached. The engine passes each
  /// change to every ``StorageEngines/Mirror``:
  ///
  /// ```swift
  /// final class ServerEngine: StorageEngines.MirroredEngine {
  ///   func fill(_ mirror: StorageEngines.Mirror) throws {
  ///     try subscription.add(mirror)
  ///   }
  ///   // On the thread of the subscription, for each mirror:
  ///   //   mirror.replaceAll(with: entries)   after it has connected
  ///   //   mirror.apply(changes)              for each message
  /// }
  /// ```
  ///
  /// All other calls go to the engine, whose values count. The closure of an `update` may run on
  /// the mirror's value first; it runs again if the engine has a different one.
  /// `StorageEngineConformance`, in `KeepsakeTesting`, also tests what a mirror shows.
  public protocol MirroredEngine: Engine {
    /// Gives a mirror all values before it returns, and from then on every change, made by this or
    /// any other process.
    ///
    /// The engine calls the mirror in the order in which the changes were made, from one thread at
    /// a time. It keeps the mirror in a weak reference, which is nil once the suite is released,
    /// and removes such references. While it uses a mirror, that may become the last reference to
    /// the engine: the engine may then be released on the thread that makes the call.
    ///
    /// When a call that writes returns, every mirror of this engine has the change. When `replace`
    /// or `apply` returns false, they have the values that failed the condition.
    ///
    /// The call is made by the first read, by each further read until one succeeds, and again in a
    /// forked child: the engine must expect the same mirror several times, and several mirrors. It
    /// may wait for the server. If that cannot be reached, the call fails soon, with the code
    /// ``StorageError/Code-swift.struct/unreachable``.
    func fill(_ mirror: StorageEngines.Mirror) throws
  }

  /// The values of a ``StorageEngines/MirroredEngine`` in the memory of this process.
  ///
  /// A suite makes one for its engine, and so does a vault. While the engine cannot be reached, it
  /// keeps its last values. Calls may come from any thread, one at a time.
  public final class Mirror: Sendable {
    private let source: any StorageEngines.MirroredEngine
    /// Makes the calls of the engine other than ``StorageEngines/MirroredEngine/fill(_:)``.
    private let engine: CustomEngine
    private let values = MemoryEngine(afterFork: { ValueTable() })
    /// Why filling failed the last time. One thread at a time fills.
    private let failure = Locked<StorageError?>(nil)
    /// How often filling has failed.
    private let failureCount = Atomic(0)
    /// The ``ForkGuard/generation`` of the process that has filled the mirror; 0 before.
    private let filledGeneration = Atomic<UInt64>(0)
    private let isWatched = Atomic(false)
    private let handler: @Sendable (StorageError) -> Void

    package init(
      _ source: any StorageEngines.MirroredEngine,
      report: @escaping @Sendable (StorageError) -> Void
    ) {
      self.source = source
      handler = report
      engine = CustomEngine(source, report: report)
    }

    // MARK: For engines

    /// Replaces all values. Values that stay the same count as unchanged.
    public func replaceAll(with entries: [StorageEngines.Entry]) {
      receive { () throws(StorageError) in try values.replaceAll(with: Self.decode(entries)) }
    }

    /// Makes changes in one step.
    public func apply(_ changes: [StorageEngines.Entry]) {
      receive { () throws(StorageError) in try values.apply(Self.decode(changes)) }
    }

    /// Reports an error that no call can throw to ``StorageSystem/onFailure``: that the server has
    /// lost changes, for example. The handler runs on another thread.
    public func report(_ error: StorageError) { Self.report(error, to: handler) }

    /// Calls the handler on another thread, also in a forked child: it may read the suite, which
    /// waits for a call that fills its mirror.
    package static func report(
      _ error: StorageError, to handler: @escaping @Sendable (StorageError) -> Void
    ) {
      guard ForkGuard.isForkedChild else { return BackgroundWork.run { handler(error) } }
      _ = BackgroundThread.start(.maintenance) { handler(error) }
    }

    private func receive(_ store: () throws(StorageError) -> Void) {
      do throws(StorageError) {
        try store()
      } catch {
        // The values are missing something now. The next read gets all of them again.
        filledGeneration.store(0, ordering: .releasing)
        report(error.inContext(of: "changes"))
      }
    }

    private static func decode(_ entries: [StorageEngines.Entry]) -> [ValueChange] {
      entries.map { entry in
        let value = entry.data.map { StoredValue(engineData: $0) ?? damaged }
        return ValueChange(key: entry.key, value: value)
      }
    }

    /// Stands for bytes that are not JSON; no valid value is the same.
    private static let damaged = StoredValue.json([])

    // MARK: Filling

    @inline(__always)
    private var isFilled: Bool {
      filledGeneration.load(ordering: .acquiring) == ForkGuard.generation
    }

    @inline(__always)
    private func fillIfNeeded() throws(StorageError) {
      if !isFilled { try fill() }
    }

    /// Threads that wait while another one fails to fill the mirror fail with it: each attempt may
    /// take as long as a timeout.
    private func fill() throws(StorageError) {
      let known = failureCount.load(ordering: .acquiring)
      try failure.withLock { failure throws(StorageError) in
        if isFilled { return }
        if failureCount.load(ordering: .acquiring) != known, let failure { throw failure }
        do throws(StorageError) {
          try engine.calling { try source.fill(self) }
        } catch {
          failure = error
          failureCount.add(1, ordering: .releasing)
          throw error
        }
        failure = nil
        filledGeneration.store(ForkGuard.generation, ordering: .releasing)
      }
    }
  }
}

// MARK: - For vaults

extension StorageEngines.Mirror {
  /// The bytes of a key's value in the mirror; empty if it is no sequence of bytes.
  package func bytes(forKey key: String) throws(StorageError) -> Data? {
    try fillIfNeeded()
    return values.value(forKey: key).map(Self.bytes)
  }

  /// What the engine has for a key; see ``bytes(storedAs:)``.
  package func storedData(forKey key: String) throws(StorageError) -> Data? {
    try engine.calling { try source.data(forKey: key) }
  }

  /// The bytes that the engine stores as `data`; empty if it stores something else.
  package static func bytes(storedAs data: Data) -> Data {
    StoredValue(engineData: data).map(bytes) ?? Data()
  }

  /// What the engine stores for `bytes`.
  package static func storedData(for bytes: Data) -> Data { StoredValue.data(bytes).engineData }

  private static func bytes(_ value: StoredValue) -> Data {
    if case .data(let bytes) = value { bytes } else { Data() }
  }

  /// The keys that the engine has.
  package func storedKeys() throws(StorageError) -> [String] { try engine.keys() }

  package func apply(
    _ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]
  ) throws(StorageError) -> Bool {
    try engine.calling { try source.apply(changes, ifCurrent: conditions) }
  }

  package func removeAllStored() throws(StorageError) { try engine.removeAll() }

  /// Gets all values again from an engine whose changes may not arrive.
  package func refill() throws(StorageError) { try engine.calling { try source.fill(self) } }
}

extension StorageEngines.Mirror: ValueEngine {
  @usableFromInline var path: String? { nil }

  // MARK: Reading

  @usableFromInline
  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    try fillIfNeeded()
    let value = values.value(forKey: key)
    // The bytes were not JSON; see `damaged`.
    if case .json(let text)? = value, text.isEmpty { throw .notJSON(key) }
    return value
  }

  @usableFromInline
  func cachedModel(forKey key: String) -> DecodedModel? {
    isFilled ? values.cachedModel(forKey: key) : nil
  }

  @usableFromInline
  func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String) {
    values.cache(model, of: value, forKey: key)
  }

  @usableFromInline
  package func keys() throws(StorageError) -> [String] {
    try fillIfNeeded()
    return values.keys()
  }

  @usableFromInline
  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues {
    try fillIfNeeded()
    return values.changedValues(since: version)
  }

  @usableFromInline var isCopy: Bool { true }
  @usableFromInline var isReady: Bool { isFilled }

  // MARK: Writing

  // The engine gives the changes to this mirror before these calls return.

  @usableFromInline
  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try engine.set(value, forKey: key)
  }

  @usableFromInline
  func apply(_ changes: [ValueChange]) throws(StorageError) { try engine.apply(changes) }

  @usableFromInline
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    try engine.replace(old, with: new, forKey: key)
  }

  @usableFromInline
  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try engine.update(key, change)
  }

  @usableFromInline
  func removeAll() throws { try engine.removeAll() }

  @usableFromInline
  func synchronize() throws { try engine.synchronize() }

  // MARK: Changes

  @usableFromInline
  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    let changes = values.observers.changes(where: isRelevant)
    if !isFilled, !isWatched.exchange(true, ordering: .relaxed) {
      BlockingWork.start { [weak self] in self?.fillInBackground(lastFailure: nil) }
    }
    return changes
  }

  /// Fills the mirror, and tries again every second if that fails. Reports each kind of failure
  /// once.
  private func fillInBackground(lastFailure: StorageError.Code?) {
    do throws(StorageError) {
      try fillIfNeeded()
      isWatched.store(false, ordering: .relaxed)
      values.observers.signal()
    } catch {
      if error.code != lastFailure { report(error.inContext(of: "changes")) }
      let code = error.code
      BackgroundWork.run(after: .seconds(1)) { [weak self] in
        BlockingWork.start { [weak self] in self?.fillInBackground(lastFailure: code) }
      }
    }
  }
}
