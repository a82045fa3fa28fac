extension Defaults.Store {
  /// Changes a value atomically, like `Defaults.update`. The closure must not wait for another
  /// thread that writes to the suite.
  ///
  /// ```swift
  /// try Defaults.shared.update("launches", default: 0) { $0 += 1 }
  /// ```
  ///
  /// - Returns: The new value.
  /// - Throws: What `change` throws, or a ``StorageError``; the old value is intact then, except in
  ///   the cases that `set` names.
  @discardableResult
  public func update<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, _ change: (inout T) throws(E) -> Void
  ) throws -> T {
    try updateResult(key, default: defaultValue, change).get()
  }

  /// Changes the value of a typed key atomically.
  ///
  /// - Throws: What `change` throws, or a ``StorageError``; the old value is intact then, except in
  ///   the cases that `set` names.
  @discardableResult
  public func update<T: Codable, E: Error>(
    _ key: Defaults.Key<T>, _ change: (inout T) throws(E) -> Void
  ) throws -> T {
    try update(key.name, default: key.defaultValue, change)
  }

  /// Changes a value atomically, with a closure that cannot throw.
  ///
  /// - Throws: ``StorageError``; the old value is intact then, except in the cases that `set`
  ///   names.
  @discardableResult
  public func update<T: Codable>(
    _ key: String, default defaultValue: T, _ change: (inout T) -> Void
  ) throws(StorageError) -> T {
    try updateResult(key, default: defaultValue, change).get()
  }

  /// Changes the value of a typed key atomically, with a closure that cannot throw.
  ///
  /// - Throws: ``StorageError``; the old value is intact then, except in the cases that `set`
  ///   names.
  @discardableResult
  public func update<T: Codable>(
    _ key: Defaults.Key<T>, _ change: (inout T) -> Void
  ) throws(StorageError) -> T {
    try update(key.name, default: key.defaultValue, change)
  }

  /// Changes a value atomically. Only the store's errors are thrown: the closure's is in the
  /// result.
  @usableFromInline
  func updateResult<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, _ change: (inout T) throws(E) -> Void
  ) throws(StorageError) -> Result<T, E> {
    do throws(StorageError) {
      let engine = try engine.get()
      try RunningUpdate.requireNone(of: self)

      func changed(_ old: StoredValue?) throws(StorageError) -> Result<(T, StoredValue?), E> {
        // The coding of a type is code of the app, too.
        let update = RunningUpdate.begin(of: self)
        defer { RunningUpdate.end(update) }
        var value =
          try old.map { stored throws(StorageError) in
            try Codec.decodeSetting(stored, as: T.self)
          } ?? defaultValue
        do throws(E) { try change(&value) } catch { return .failure(error) }
        return .success((value, try Codec.encode(value)?.copied))
      }
      attempts: for _ in 0..<attemptsWithoutLock {
        let old = try engine.value(forKey: key)
        switch try changed(old) {
        // A copy may be too old to be judged by.
        case .failure where engine.isCopy: break attempts
        case .failure(let error): return .failure(error)
        case .success((let value, let new)):
          let isCounted = observation.beginWrite()
          defer { observation.endWrite(of: [key], isCounted: isCounted) }
          if try engine.replace(old, with: new, forKey: key) { return .success(value) }
        }
      }
      var result: Result<T, E>?
      let isCounted = observation.beginWrite()
      defer { observation.endWrite(of: [key], isCounted: isCounted) }
      try engine.update(key) { old throws(StorageError) in
        let change = try changed(old)
        result = change.map(\.0)
        guard case .success((_, let stored)) = change else { return nil }
        return .some(stored)
      }
      // `update` either calls its closure or throws, so there is a result.
      return result ?? .success(defaultValue)
    } catch {
      throw error.inContext(of: "update", key: key, path: path)
    }
  }
}

extension Defaults.Store {
  /// Identifies the engine, which two suites may share; nil if there is none.
  fileprivate var engineIdentity: UnsafeRawPointer? {
    guard case .success(let engine) = engine else { return nil }
    return UnsafeRawPointer(Unmanaged.passUnretained(engine as AnyObject).toOpaque())
  }
}

/// An `update` whose closure is running on this thread.
///
/// Closures of `update` can contain updates of other suites. Each is linked to the one around it; a
/// thread-local variable has the innermost.
@usableFromInline
struct RunningUpdate {
  private let engine: UnsafeRawPointer?
  private let outer: UnsafeRawPointer?

  /// Begins the closure of an update of `store`, and the coding of its value. The caller ends it.
  static func begin(of store: Defaults.Store) -> UnsafeMutablePointer<RunningUpdate> {
    let update = UnsafeMutablePointer<RunningUpdate>.allocate(capacity: 1)
    update.initialize(
      to: RunningUpdate(engine: store.engineIdentity, outer: ThreadState.innermostUpdate))
    ThreadState.innermostUpdate = UnsafeRawPointer(update)
    return update
  }

  static func end(_ update: UnsafeMutablePointer<RunningUpdate>) {
    ThreadState.innermostUpdate = update.pointee.outer
    update.deallocate()
  }

  /// Whether the closure of any update is running on this thread.
  static var isAnyRunning: Bool { ThreadState.innermostUpdate != nil }

  /// Throws if the closure of an update of this store is running on this thread: a write inside it
  /// would make the update lose every time, or wait for its own lock.
  static func requireNone(of store: Defaults.Store) throws(StorageError) {
    var next = ThreadState.innermostUpdate
    while let current = next {
      let update = current.load(as: RunningUpdate.self)
      if update.engine == store.engineIdentity {
        throw StorageError(
          .misuse, operation: "update", reason: "the suite was written to inside its own update",
          remedy: "Write after the closure, or change only the value that it is given.")
      }
      next = update.outer
    }
  }
}

/// After this many lost races an update takes the lock, so that it cannot lose again.
private let attemptsWithoutLock = 8
