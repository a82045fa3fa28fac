internal import CKeepsake

extension Defaults.Store {
  /// Changes a value in one step that no other thread or process can come between.
  ///
  /// The closure runs without a lock, and again if the value changed meanwhile: let it do nothing
  /// else. After eight lost races it runs under the suite's lock. Writing to the same suite inside
  /// it is an error, and so must be waiting for another thread that does.
  ///
  /// ```swift
  /// try Defaults.shared.update("launches", default: 0) { $0 += 1 }
  /// ```
  ///
  /// - Parameters:
  ///   - key: The value's name.
  ///   - defaultValue: What the closure is given when nothing is stored.
  ///   - change: Makes the new value from the old one; nil, for an optional `T`, removes it.
  /// - Returns: The new value.
  /// - Throws: What `change` throws, or a ``StorageError``; the old value is intact then.
  @discardableResult
  public func update<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, _ change: (inout T) throws(E) -> Void
  ) throws -> T {
    try attemptUpdate(key, default: defaultValue, change).get()
  }

  /// Changes the value of a typed key in one step that nothing can come between.
  @discardableResult
  public func update<T: Codable, E: Error>(
    _ key: Defaults.Key<T>, _ change: (inout T) throws(E) -> Void
  ) throws -> T {
    try update(key.name, default: key.defaultValue, change)
  }

  /// Changes a value in one step that nothing can come between, by a closure that cannot throw.
  ///
  /// See `update`, whose only errors are then the store's own.
  @discardableResult
  public func update<T: Codable>(
    _ key: String, default defaultValue: T, _ change: (inout T) -> Void
  ) throws(StorageError) -> T {
    try attemptUpdate(key, default: defaultValue, change).get()
  }

  /// Changes the value of a typed key in one step, by a closure that cannot throw.
  @discardableResult
  public func update<T: Codable>(
    _ key: Defaults.Key<T>, _ change: (inout T) -> Void
  ) throws(StorageError) -> T {
    try update(key.name, default: key.defaultValue, change)
  }

  /// The same with the closure's error apart from the store's.
  @usableFromInline
  func attemptUpdate<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, _ change: (inout T) throws(E) -> Void
  ) throws(StorageError) -> Result<T, E> {
    do throws(StorageError) {
      try UpdateFrame.requireOutside(self)

      /// What the closure makes of a stored value.
      func changed(_ old: StoredValue?) throws(StorageError) -> Result<(T, StoredValue?), E> {
        var value =
          try old.map { stored throws(StorageError) in
            try Codec.decode(stored, as: T.self)
          } ?? defaultValue
        do throws(E) {
          try UpdateFrame.run(self) { () throws(E) in try change(&value) }
        } catch {
          return .failure(error)
        }
        return .success((value, try Codec.encode(value)))
      }
      for _ in 0..<8 {
        let old = try engine.get().value(forKey: key)
        switch try changed(old) {
        case .failure(let error): return .failure(error)
        case .success((let value, let new)):
          let isDone = try observed.telling([key]) { () throws(StorageError) in
            try engine.get().replace(old, with: new, forKey: key)
          }
          if isDone { return .success(value) }
        }
      }
      var outcome: Result<T, E>?
      try observed.telling([key]) { () throws(StorageError) in
        try engine.get().update(key) { old throws(StorageError) in
          let result = try changed(old)
          outcome = result.map(\.0)
          guard case .success((_, let stored)) = result else { return nil }
          return .some(stored)
        }
      }
      // `update` either calls its closure or throws.
      return outcome ?? .success(defaultValue)
    } catch {
      throw error.inContext(of: "update", key: key, path: place)
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

/// The updates that run on this thread, innermost first: a list on its stack.
@usableFromInline
struct UpdateFrame {
  private let store: UnsafeRawPointer?
  private let outer: UnsafeRawPointer?

  /// Runs `body` as an update of `store`.
  static func run<E: Error>(
    _ store: Defaults.Store, _ body: () throws(E) -> Void
  ) throws(E) {
    let outer = keepsake_thread_frame()
    var frame = UpdateFrame(store: store.engineIdentity, outer: outer)
    var failure: E?
    withUnsafePointer(to: &frame) { pointer in
      keepsake_set_thread_frame(pointer)
      do throws(E) {
        try body()
      } catch {
        failure = error
      }
      keepsake_set_thread_frame(outer)
    }
    if let failure { throw failure }
  }

  /// Whether an update's closure runs on this thread.
  static var isInside: Bool { keepsake_thread_frame() != nil }

  /// Refuses to write to a store that is being updated on this thread: it could never end.
  static func requireOutside(_ store: Defaults.Store) throws(StorageError) {
    var next = keepsake_thread_frame()
    while let current = next {
      let frame = current.load(as: UpdateFrame.self)
      if frame.store == store.engineIdentity {
        throw StorageError(
          .misuse, operation: "update", reason: "a suite was written to inside its own update",
          remedy: "Write after the closure, or change only the value it was given.")
      }
      next = frame.outer
    }
  }
}
