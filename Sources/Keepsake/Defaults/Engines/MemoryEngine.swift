public import FoundationEssentials

/// Keeps a suite in the process: for short-lived data and for tests.
///
/// The suite `.memory` has one. To keep another suite in memory, put it on one:
///
/// ```swift
/// try StorageSystem.bootstrap(app: "com.example.notes", engines: ["session": MemoryEngine()])
/// ```
///
/// All is gone with the engine. Its calls may come from any thread.
public final class MemoryEngine: StorageEngine {
  let table = MemoryTable()

  /// An empty engine.
  public init() {}

  /// The bytes of a key, as JSON that says the same as what was set; nil when there are none.
  public func data(forKey key: String) throws -> Data? { try table.data(forKey: key) }

  /// Stores the bytes of a key, which must be JSON; nil removes them.
  public func set(_ data: Data?, forKey key: String) throws { try table.set(data, forKey: key) }

  /// Stores the bytes of a key if those there are still `old`; nil stands for none.
  public func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try table.replace(old, with: new, forKey: key)
  }

  /// All keys that have bytes.
  public func keys() -> [String] { table.allKeys() }

  /// Removes all bytes of all keys in one step.
  public func removeAll() throws { try table.clear() }

  /// A stream with an element after each change.
  public func changes() -> AsyncStream<Void>? { table.ticks { _ in true } }
}
