public import FoundationEssentials

/// Keeps the values of one suite of ``Defaults``: bytes by key.
///
/// The journal, ``MemoryEngine`` and ``FileEngine`` are engines. With one of your own a suite lies
/// wherever you like; ``StorageSystem/bootstrap(app:directories:engines:keySources:authenticate:)``
/// says which suite is on which engine.
///
/// ```swift
/// final class TableEngine: StorageEngine {
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
/// The bytes are JSON, one text for each value, which says by itself what it is: `16`, `"dark"`,
/// `{"name":"Ann"}`; bytes, dates and numbers that JSON has no word for stand in an object as
/// ``Defaults/ExportFormat/json`` has it. An engine need not look at them, and returns them as they
/// were set.
///
/// Each call may come from any thread, several at once, and each read of a setting is a call: one
/// that asks a server keeps a copy, or makes its readers wait. Where a call throws, ``Defaults``
/// reports it and its stores throw it; a ``StorageError`` as it is, any other error as the
/// `underlyingError` of one of code `engineFailed`. `StorageEngineConformance`, in
/// `KeepsakeTesting`, checks an engine.
public protocol StorageEngine: Sendable {
  /// The bytes of a key; nil when there are none.
  func data(forKey key: String) throws -> Data?

  /// Stores the bytes of a key, which the next read returns; nil removes them.
  ///
  /// When it throws, the old bytes are there as before.
  func set(_ data: Data?, forKey key: String) throws

  /// Stores the bytes of a key if those there are still `old`, in one step that nothing can come
  /// between; nil stands for none.
  ///
  /// - Returns: Whether they were.
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool

  /// All keys that have bytes, in any order.
  func keys() throws -> [String]

  /// Removes all bytes of all keys; by default one key after another.
  func removeAll() throws

  /// Returns when all that was stored survives a power cut; by default at once.
  func synchronize() throws

  /// A stream with an element after each change that others have made, such as another process; by
  /// default nil, for an engine that does not learn of them.
  ///
  /// Of its own changes a suite knows without it. When the stream ends it is asked for again a
  /// second later.
  func changes() throws -> AsyncStream<Void>?
}

extension StorageEngine {
  /// Removes the bytes of one key after another.
  public func removeAll() throws {
    for key in try keys() { try set(nil, forKey: key) }
  }

  /// Does nothing.
  public func synchronize() throws {}

  /// nil.
  public func changes() throws -> AsyncStream<Void>? { nil }
}
