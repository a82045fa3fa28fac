/// Where the settings, secrets and caches of an app are: on this machine, or where several machines
/// share them.
///
/// Pass one to
/// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:authenticate:onFailure:)``. The
/// default is ``thisMachine``. All calls of ``Defaults`` and ``SecureVault`` work the same with
/// another one:
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
/// Secrets are on this machine too unless the backing has an engine for them. The backing of the
/// product `KeepsakeValkey` shares caches, too; with one of your own they are on this machine. So
/// are, with any backing, suites and caches in memory, and suites, services and caches in a
/// directory of their own.
public protocol StorageBacking: Sendable {
  /// The engine of a suite; nil for a suite that stays on this machine.
  ///
  /// Called when a suite is first used, on any thread; twice if two threads do that at the same
  /// time, of whose engines one is used. It is not called for suites to which bootstrap gave an
  /// engine, or for suites in memory or in a directory of their own. The call should not wait: a
  /// ``StorageEngines/MirroredEngine`` connects when it is asked to fill its mirror. If the call
  /// throws, so do all calls of the suite until the process ends.
  func engine(for suite: Defaults.Suite, app: String) throws -> (any StorageEngines.Engine)?

  /// The suites that have values and an engine of this backing, in any order.
  ///
  /// ``Defaults/Store/suites()`` lists them, and ``StorageSystem/removeAll()`` empties them.
  func suites(app: String) throws -> [Defaults.Suite]

  /// The engine of the app's vault; nil, as by default, if the secrets stay on this machine.
  ///
  /// The engine stores what ``SecureVault`` has sealed: the vault header and the entries, under
  /// names that do not reveal the keys. Its ``StorageEngines/Engine/apply(_:ifCurrent:)`` has to
  /// accept several changes and several conditions, and ``StorageEngines/Engine/removeAll()`` has
  /// to remove everything in one step. It must not store anything else.
  ///
  /// Called when a secret is first used, under the same rules as ``engine(for:app:)``.
  func vault(app: String) throws -> (any StorageEngines.MirroredEngine)?
}

extension StorageBacking {
  /// nil: the secrets stay on this machine.
  public func vault(app: String) throws -> (any StorageEngines.MirroredEngine)? { nil }
}

extension StorageBacking where Self == StorageEngines.ThisMachine {
  /// Keeps the settings in journals on this machine.
  public static var thisMachine: StorageEngines.ThisMachine { StorageEngines.ThisMachine() }
}

extension StorageEngines {
  /// Keeps the settings in journals on this machine; see ``StorageBacking/thisMachine``.
  public struct ThisMachine: StorageBacking {
    /// nil: every suite stays on this machine.
    public func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
      nil
    }

    /// None: the suites of this machine are found without a backing.
    public func suites(app: String) -> [Defaults.Suite] { [] }
  }
}
