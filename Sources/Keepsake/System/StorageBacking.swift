/// Where the settings, secrets and caches of an app are stored: on this machine, or on a server
/// that several machines share.
///
/// Pass one to
/// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``. The
/// default is ``thisMachine``. All calls of ``Defaults`` work the same with any other backing:
///
/// ```swift
/// struct TeamServer: StorageBacking {
///   func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
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
/// Secrets and caches stay on this machine unless the backing is the one of the product
/// `KeepsakeValkey`. Suites and caches in memory, and suites, services and caches in a directory
/// that the caller chose, always stay on this machine.
public protocol StorageBacking: Sendable {
  /// The engine of a suite; nil for a suite that stays on this machine.
  ///
  /// Called on any thread when a suite is first used. If two threads use it first at the same time,
  /// it is called twice, and one engine is discarded. It is not called for suites to which
  /// bootstrap gave an engine, or for suites in memory or in a directory that the caller chose. The
  /// call should not wait: a ``StorageEngines/MirroredEngine`` connects when it is asked to fill
  /// its mirror. If the call throws, so do all calls of the suite until the process ends.
  func engine(for suite: Defaults.Suite, app: String) throws -> (any StorageEngines.Engine)?

  /// The suites that have values and an engine of this backing, in any order.
  ///
  /// ``Defaults/Store/suites()`` lists them, and ``StorageSystem/removeAll()`` empties them.
  func suites(app: String) throws -> [Defaults.Suite]
}

extension StorageBacking where Self == StorageEngines.ThisMachine {
  /// Keeps settings, secrets and caches on this machine.
  public static var thisMachine: StorageEngines.ThisMachine { StorageEngines.ThisMachine() }
}

extension StorageEngines {
  /// Keeps everything on this machine; see ``StorageBacking/thisMachine``.
  public struct ThisMachine: StorageBacking {
    /// nil: every suite stays on this machine.
    public func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
      nil
    }

    /// None: the suites of this machine are found without a backing.
    public func suites(app: String) -> [Defaults.Suite] { [] }
  }
}
