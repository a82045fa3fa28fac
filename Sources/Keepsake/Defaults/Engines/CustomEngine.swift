internal import FoundationEssentials
internal import Synchronization

/// Lets a ``Defaults/Store`` use a ``StorageEngines/Engine``, which stores bytes. Each read is a
/// call of the engine.
final class CustomEngine: ValueEngine {
  private let engine: any StorageEngines.Engine
  /// The scope in which the engine was given to a suite. If the engine uses stores itself, it finds
  /// the stores of this scope, no matter which task calls.
  private let scope = StorageScope.temporary
  private let observers = Observers()
  /// Orders the updates of this process that other writers have outrun too often.
  private let writer = Locked(())
  private let timeout = Duration.seconds(10)
  private let report: @Sendable (StorageError) -> Void
  private let isFollowing = Atomic(false)
  /// The task that waits for changes, or why there is none; nil if the engine has never had
  /// changes.
  private let following = Locked<(task: Task<Void, Never>?, failure: StorageError.Code?)?>(nil)

  init(_ engine: any StorageEngines.Engine, report: @escaping @Sendable (StorageError) -> Void) {
    self.engine = engine
    self.report = report
  }

  deinit { following.withLock { $0?.task?.cancel() } }

  var path: String? { nil }

  /// Runs a call of the engine in its scope, and gives its error a type.
  func calling<R>(_ key: String? = nil, _ call: () throws -> R) throws(StorageError) -> R {
    do {
      return try StorageScope.$temporary.withValue(scope, operation: call)
    } catch {
      throw StorageError(error, thrownBy: type(of: engine), key: key)
    }
  }

  // MARK: Reading

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    try StoredValue(engineData: calling(key) { try engine.data(forKey: key) }, key: key)
  }

  func keys() throws(StorageError) -> [String] { try calling { try engine.keys() } }

  // MARK: Writing

  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    // Even after an error, which does not say what the engine has stored.
    defer { observers.signal(key) }
    try calling(key) { try engine.set(value?.engineData, forKey: key) }
  }

  func apply(_ changes: [ValueChange]) throws(StorageError) {
    guard !changes.isEmpty else { return }
    let changes = changes.withoutRepeatedKeys
    // Even after an error, as for one key.
    defer { observers.signal(changes.onlyKey) }
    _ = try calling(changes.onlyKey) {
      let entries = changes.map { StorageEngines.Entry(key: $0.key, data: $0.value?.engineData) }
      return try engine.apply(entries, ifCurrent: [])
    }
  }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    // Even after an error, as in `set`.
    defer { observers.signal(key) }
    func replace(_ data: Data?) throws(StorageError) -> Bool {
      try calling(key) { try engine.replace(data, with: new?.engineData, forKey: key) }
    }
    let expected = old?.engineData
    if try replace(expected) { return true }
    // Another program may have written the same value differently.
    let data = try calling(key) { try engine.data(forKey: key) }
    guard data != expected, try StoredValue(engineData: data, key: key) == old else { return false }
    return try replace(data)
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    let end = ContinuousClock.now + timeout
    let isDone = try writer.withLock(timeout: timeout) { _ throws(StorageError) in
      while ContinuousClock.now < end {
        let old = try value(forKey: key)
        guard let new = try change(old) else { return true }
        if try replace(old, with: new, forKey: key) { return true }
      }
      return false
    }
    if isDone == true { return }
    throw StorageError(
      .timedOut, operation: "update", key: key,
      reason: "other writers kept changing the value for more than \(timeout)",
      remedy: "Reduce the number of concurrent writers.")
  }

  func removeAll() throws(StorageError) {
    defer { observers.signal() }
    try calling { try engine.removeAll() }
  }

  func synchronize() throws(StorageError) { try calling { try engine.synchronize() } }

  // MARK: Changes

  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    let changes = observers.changes(where: isRelevant)
    // On another thread, because the engine may wait, for a connection for example.
    if !isFollowing.exchange(true, ordering: .relaxed) {
      BlockingWork.start { [weak self] in self?.follow() }
    }
    return changes
  }

  /// Waits for changes of the engine, and starts again a second after that fails or ends.
  private func follow() {
    do throws(StorageError) {
      let changes = try calling { try engine.changes() }
      if let changes {
        let task = Task.detached { [weak self] in
          // The value may have changed before the stream began.
          self?.observers.signal()
          for await _ in changes {
            guard let self else { return }
            self.observers.signal()
          }
          self?.followLater()
        }
        following.withLock { $0 = (task, nil) }
      } else if following.withLock({ $0 != nil }) {
        followLater()
      }
    } catch {
      let isNew = following.withLock { following in
        defer { following = (nil, error.code) }
        return following?.failure != error.code
      }
      if isNew { report(error.inContext(of: "changes")) }
      followLater()
    }
  }

  private func followLater() {
    BackgroundWork.run(after: .seconds(1)) { [weak self] in
      BlockingWork.start { [weak self] in self?.follow() }
    }
  }
}
