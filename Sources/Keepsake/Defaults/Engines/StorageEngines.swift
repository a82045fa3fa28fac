public import FoundationEssentials

/// Engines that store suites of ``Defaults`` elsewhere than in a journal, and the protocols for
/// your own engines.
///
/// Assign engines to suites with
/// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``:
///
/// ```swift
/// try StorageSystem.bootstrap(
///   app: "com.example.notes",
///   engines: [
///     "session": StorageEngines.memory(),
///     "themes": StorageEngines.files(in: .applicationSupport.subfolder("themes")),
///   ])
/// ```
public enum StorageEngines {}

extension StorageEngines {
  /// Stores the values of one suite of ``Defaults``: bytes by key.
  ///
  /// A suite is stored in the journal unless you give it another engine:
  /// ``StorageEngines/memory()``, ``StorageEngines/files(in:)``, or one of your own that stores it
  /// wherever you like. Assign engines to suites with
  /// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``.
  ///
  /// ```swift
  /// final class TableEngine: StorageEngines.Engine {
  ///   private let table = Mutex<[String: Data]>([:])
  ///
  ///   func data(forKey key: String) -> Data? { table.withLock { $0[key] } }
  ///   func set(_ data: Data?, forKey key: String) { table.withLock { $0[key] = data } }
  ///   func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
  ///     table.withLock { table in
  ///       guard table[key] == old else { return false }
  ///       table[key] = new
  ///       return true
  ///     }
  ///   }
  ///   func keys() -> [String] { table.withLock { Array($0.keys) } }
  /// }
  ///
  /// try StorageSystem.bootstrap(app: "com.example.notes", engines: ["session": TableEngine()])
  /// ```
  ///
  /// The bytes of each value are one JSON text, such as `16`, `"dark"` or `{"name":"Ann"}`. Bytes,
  /// dates, and numbers that JSON cannot express are wrapped in an object, as described for
  /// ``Defaults/ExportFormat/json``. An engine returns the bytes as they were set and need not
  /// parse them.
  ///
  /// Calls come from any thread, and several may run at the same time. Every read of a setting
  /// calls the engine, unless it is a ``StorageEngines/MirroredEngine``; an engine that talks to a
  /// server should be one. ``Defaults`` reports the errors of an engine, and its stores throw them:
  /// a ``StorageError`` unchanged, and any other error as the `underlyingError` of a `StorageError`
  /// with the code `engineFailed`. `StorageEngineConformance`, in `KeepsakeTesting`, tests your
  /// engine and names each rule it breaks.
  public protocol Engine: Sendable {
    /// The bytes of a key; nil if there are none.
    func data(forKey key: String) throws -> Data?

    /// Stores the bytes of a key, which the next read returns; nil removes them.
    ///
    /// If it throws, the key keeps its old bytes, unless the error has the code
    /// ``StorageError/Code-swift.struct/outcomeUnknown``, or only making the change durable failed.
    func set(_ data: Data?, forKey key: String) throws

    /// Stores the bytes of a key if its current bytes are `old`, in one atomic step; nil stands for
    /// no bytes.
    ///
    /// - Returns: Whether the current bytes were `old`.
    func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool

    /// Makes several changes in one step, if every key of `conditions` has the bytes that it has
    /// there.
    ///
    /// No other writer changes anything between the check and the last change, and either all
    /// changes are made or none. Each key occurs at most once in `changes`. `Defaults.import` and
    /// the removal of several keys make the call without conditions.
    ///
    /// By default, one change under a condition on the same key is a
    /// ``replace(_:with:forKey:)``, and changes without conditions are made one after another: if
    /// that fails halfway, the first ones are made. Anything else is an error of code `misuse`.
    ///
    /// - Returns: Whether all conditions were met.
    func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry])
      throws -> Bool

    /// All keys that have bytes, in any order.
    func keys() throws -> [String]

    /// Removes the bytes of all keys; by default one key after another.
    func removeAll() throws

    /// Returns when everything that was stored survives a power cut; by default immediately.
    func synchronize() throws

    /// A stream with an element after each change that did not come through this engine, for
    /// example from another process. By default nil, for an engine that cannot notice such changes.
    ///
    /// The stream need not include changes that were made through this engine. If it ends, a suite
    /// asks for another one a second later.
    func changes() throws -> AsyncStream<Void>?
  }
}

extension StorageEngines.Engine {
  /// Makes one change after another, or replaces the bytes of one key.
  public func apply(
    _ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]
  ) throws -> Bool {
    if conditions.isEmpty {
      try setOneByOne(changes)
      return true
    }
    guard changes.count == 1, conditions.count == 1,
      ExactString(changes[0].key) == ExactString(conditions[0].key)
    else {
      throw StorageError(
        .misuse, operation: "apply",
        reason: "\(Self.self) cannot change several keys under conditions",
        remedy: "Implement apply(_:ifCurrent:) in the engine.")
    }
    return try replace(conditions[0].data, with: changes[0].data, forKey: changes[0].key)
  }

  /// Removes the bytes of one key after another.
  public func removeAll() throws {
    try setOneByOne(keys().map { StorageEngines.Entry(key: $0, data: nil) })
  }

  private func setOneByOne(_ changes: [StorageEngines.Entry]) throws {
    for (count, change) in changes.enumerated() {
      do {
        try set(change.data, forKey: change.key)
      } catch {
        let error = StorageError(error, thrownBy: Self.self, key: change.key)
          .inContext(of: "set", key: change.key)
        // That code says that nothing was changed.
        throw error.code == .unreachable && count > 0 ? error.withUnknownOutcome : error
      }
    }
  }

  /// Does nothing.
  public func synchronize() throws {}

  /// nil.
  public func changes() throws -> AsyncStream<Void>? { nil }
}
