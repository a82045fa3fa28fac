/// Where the settings of an app are: on this machine, or where several machines share them.
///
/// Pass one to ``StorageSystem/bootstrap(app:on:directories:engines:keySources:authenticate:)``.
/// The default is ``thisMachine``. All calls of ``Defaults`` work the same with another one:
///
/// ```swift
/// struct TeamServer: StorageBacking {
///   func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngine)? {
///     suite == "window" ? nil : TeamEngine(table: "\(app)/\(suite.name)")
///   }
///
///   func suites(app: String) throws -> [Defaults.Suite] {
///     try tables(of: app).map { Defaults.Suite($0) }
///   }
/// }
///
/// try StorageSystem.bootstrap(app: "com.example.shop", on: TeamServer())
/// Defaults.set(0.2, forKey: "rollout")
/// ```
///
/// Secrets and caches are on this machine with any backing, as are suites in memory and suites in a
/// directory of their own.
public protocol StorageBacking: Sendable {
  /// The engine of a suite; nil for a suite that stays on this machine.
  ///
  /// Called when a suite is first used, on any thread; twice if two threads do that at the same
  /// time, of whose engines one is used. It is not called for suites to which bootstrap gave an
  /// engine, or for suites in memory or in a directory of their own. The call should not wait: a
  /// ``MirroredEngine`` connects when it is asked to fill its mirror. If the call throws, so do all
  /// calls of the suite until the process ends.
  func engine(for suite: Defaults.Suite, app: String) throws -> (any StorageEngine)?

  /// The suites that have values and an engine of this backing, in any order.
  ///
  /// ``Defaults/suites()`` lists them, and ``StorageSystem/removeAll()`` empties them.
  func suites(app: String) throws -> [Defaults.Suite]
}

extension StorageBacking where Self == ThisMachine {
  /// Keeps the settings in journals on this machine.
  public static var thisMachine: ThisMachine { ThisMachine() }
}

/// Keeps the settings in journals on this machine; see ``StorageBacking/thisMachine``.
public struct ThisMachine: StorageBacking {
  /// nil: every suite stays on this machine.
  public func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngine)? { nil }

  /// None: the suites of this machine are found without a backing.
  public func suites(app: String) -> [Defaults.Suite] { [] }
}
