public import Keepsake

/// Keeps the settings, secrets and caches of an app on a Valkey or Redis server, which several
/// machines share; see ``Keepsake/StorageBacking/valkey(_:local:localCaches:confirm:password:)``.
///
/// All calls of `Defaults`, `SecureVault` and `DiskCache` work as on one machine:
///
/// ```swift
/// let backing = try ValkeyBacking.valkey("valkeys://cache.internal:6379", local: ["window"])
/// try StorageSystem.bootstrap(app: "com.example.shop", on: backing)
/// Defaults.set(0.2, forKey: "rollout")    // every process of the app reads 0.2 a moment later
/// let page = try await DiskCache.fetch("home", expiry: .minutes(5)) { try await render() }
/// ```
///
/// Each process has all values of the suites that it uses in memory, and reads from there. A set is
/// one round trip to the server. When it has returned, this process reads the new value; the others
/// read it as soon as the message has arrived. All processes see the changes in one order. `update`
/// and `import` are atomic across machines.
///
/// While the server is away, reads return the last known values. A process that starts during that
/// time reads the values that were last known on its machine. Both are reported to
/// `StorageSystem.onFailure`, once for each outage of more than a second. Writes fail with the code
/// `unreachable` if nothing was changed, and with `outcomeUnknown` if the server may have made the
/// change. They are never queued.
///
/// When a call that sets a value returns, the value survives the end of the process. Whether it
/// also survives the end of the server depends on the server's settings `appendonly` and
/// `appendfsync`. `synchronize()` returns when the server has written everything to its disk, and
/// fails with the code `misuse` if the server writes nothing to a disk. A server older than Redis
/// 7.2 cannot say when it has written, so there the call returns at once. After a failover the new
/// primary may lack the last changes, unless ``Confirmation/replicas(_:timeout:)`` waits for the
/// replicas.
///
/// If the server comes back with no settings or with different ones, the processes keep the values
/// that they have in memory. This is reported, and writes fail with the code `notFound` until you
/// decide for all of them with ``push(_:)`` or ``adopt(_:)``. A server whose `maxmemory-policy`
/// lets it delete any keys when its memory is full is refused with the code `misuse`; use
/// `noeviction` or `volatile-lru`. <doc:AcrossMachines> describes all outages.
///
/// All values of a suite together may take 32 MiB, including their keys and 32 bytes for each
/// value.
///
/// A cache has a directory on each machine, and the server behind it. All machines read a value
/// that one of them has stored, only one machine runs the producer of a `fetch`, and no machine
/// uses an entry that another one has replaced or removed. While the server is away, each machine
/// continues with its own entries: `set` stores there, and `remove` fails with the code
/// `unreachable` because it cannot reach the other machines. A server that has only caches may also
/// use `allkeys-lru` or `allkeys-lfu`.
///
/// Calls may come from any thread, and block it while they wait for the server. If the server does
/// not answer, the first call fails after the `timeout` of the URL, one second by default, or after
/// a few times as long if it must connect first; later calls fail at once. A call waits longer only
/// while replies are arriving. In a task, write in `StorageSystem.perform`.
public final class ValkeyBacking: StorageBacking, CacheBacking {
  /// How many servers must have a change before the call that made it returns.
  public struct Confirmation: Sendable, Hashable {
    let replicaCount: Int
    let timeout: Duration?

    /// The server that the URL names.
    public static var primary: Self { Self(replicaCount: 0, timeout: nil) }

    /// This server and the given number of its replicas.
    ///
    /// If the replicas do not confirm a change in time, the call fails with the code
    /// `outcomeUnknown`, although the change was made. Until then, other calls of the process wait.
    ///
    /// - Parameters:
    ///   - count: The number of replicas, at least one.
    ///   - timeout: How long to wait for them; by default half the `timeout` of the URL.
    public static func replicas(_ count: Int, timeout: Duration? = nil) -> Self {
      Self(replicaCount: max(1, count), timeout: timeout)
    }
  }

  let server: Server
  private let local: Set<Defaults.Suite>
  private let localCaches: Set<DiskCache.Name>
  private let leaseTime: Duration
  /// The cache that holds the copies on disk.
  let copies: DiskCache.Name
  static let copies: DiskCache.Name = "keepsake-valkey"
  private let tables = Locked<[TableName: SettingsTable]>([:])
  private let caches = Locked<[CacheKeys: ServerCache]>([:])

  /// - Parameter leaseTime: How long one process alone produces a value.
  init(
    _ server: Server, local: Set<Defaults.Suite> = [], localCaches: Set<DiskCache.Name> = [],
    copies: DiskCache.Name = ValkeyBacking.copies, leaseTime: Duration = .seconds(10)
  ) {
    self.server = server
    self.local = local
    self.localCaches = localCaches.union([copies, Self.copies])
    self.copies = copies
    self.leaseTime = leaseTime
  }

  /// The engine of a suite, which connects when it is first used; nil for a suite that stays on
  /// this machine.
  public func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
    local.contains(suite) ? nil : table(of: suite, app: app)
  }

  #if SecureVault
  /// The app's vault, which connects when it is first used.
  package func vaultStorage(
    app: String, report: @escaping @Sendable (StorageError) -> Void
  ) -> any VaultStorage {
    SharedVault(table(ofVaultOf: app), app: app, report: report)
  }

  #endif

  func table(of suite: Defaults.Suite, app: String) -> SettingsTable {
    table(TableName(app: app, suite: suite.name, database: server.address.database))
  }

  func table(ofVaultOf app: String) -> SettingsTable {
    table(TableName(vaultOf: app, database: server.address.database))
  }

  private func table(_ name: TableName) -> SettingsTable {
    tables.withLock { tables in
      if let table = tables[name] { return table }
      let table = SettingsTable(
        name, on: server, cache: DiskCache.named(copies),
        report: StorageSystem.makeReporter(
          for: name.content == .settings ? "Defaults" : "SecureVault"))
      tables[name] = table
      return table
    }
  }

  /// The suites that have values on the server.
  ///
  /// The server looks through all its keys for them, a thousand at a time.
  ///
  /// - Throws: `StorageError` if the server cannot be reached or refuses the command.
  public func suites(app: String) throws -> [Defaults.Suite] {
    try suites(app: app, timeout: .seconds(60))
  }

  /// - Parameter timeout: How long the search may take. A server may never say that it is complete.
  func suites(app: String, timeout: Duration) throws -> [Defaults.Suite] {
    let end = ContinuousClock.now + timeout
    func perform(_ command: Command) throws(StorageError) -> Reply {
      guard ContinuousClock.now < end else {
        throw StorageError(
          .timedOut, operation: "suites", path: server.address.description,
          reason: "the server did not finish the search within \(timeout)",
          remedy: "Keep settings in another database of the server than caches and other keys.")
      }
      return try server.perform(command)
    }
    // Not strings: names that differ only in Unicode normalization are two suites.
    var found: Set<Defaults.Suite> = []
    var cursor = "0"
    repeat {
      let scan = Command(
        reading: "SCAN", cursor, "MATCH", TableName.pattern(app: app), "COUNT", "1000", "TYPE",
        "hash")
      guard case .array(let elements) = try perform(scan), elements.count == 2,
        case .bytes(let next) = elements[0], case .array(let keys) = elements[1]
      else { throw server.invalidReply("SCAN") }
      for case .bytes(let key) in keys {
        let key = String(decoding: key, as: UTF8.self)
        if let name = TableName.suite(of: key, app: app) { found.insert(Defaults.Suite(name)) }
      }
      cursor = String(decoding: next, as: UTF8.self)
    } while cursor != "0"
    return try found.subtracting(local).filter { suite in
      let values = TableName(app: app, suite: suite.name).values
      return Self.hasValues(try perform(Command(reading: "HLEN", values)))
    }
  }

  /// Whether a table has values besides its marker, as a reply to `HLEN` says.
  static func hasValues(_ reply: Reply) -> Bool {
    if case .integer(let count) = reply { count > 1 } else { false }
  }

  /// The engine of a cache on the server; nil for a cache that stays on this machine.
  package func cacheEngine(
    over files: FileCache, of cache: DiskCache.Name, app: String,
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) -> (any CacheEngine)? {
    if localCaches.contains(cache) { return nil }
    let names = CacheKeys(app: app, cache: cache.name, database: server.address.database)
    let tier = caches.withLock { caches in
      let known = caches[names] ?? ServerCache(names, on: server, leaseTime: leaseTime)
      caches[names] = known
      return known
    }
    return TieredCache(files, tier, onFailure: onFailure)
  }

  // MARK: After a loss

  /// Stores the settings that this process knows on the server again, and replaces what is there.
  ///
  /// Call it after the server has lost its settings, in the process that has the newest ones. All
  /// other processes then use them. A process that had begun to use other settings of the server
  /// reports this with the code `damaged`. If the server has lost nothing, nothing is changed.
  ///
  /// ```swift
  /// try backing.push("prices")
  /// ```
  ///
  /// - Throws: `StorageError` of code `notFound` if this process knows no settings of the suite, of
  ///   code `misuse` if ``adopt(_:)`` has given them up, and of other codes if the server cannot be
  ///   reached or refuses the change.
  public func push(_ suite: Defaults.Suite = .standard) throws(StorageError) {
    _ = try table(of: suite, app: StorageSystem.appName).push()
  }

  /// Gives up the settings that this process knows and uses the server's, if it has any.
  ///
  /// Call it in one process after the server has lost its settings, if you do not want them back.
  /// All processes that know the same settings then use the server's, at once or when they next
  /// connect. Each process reports this once, with the code `damaged`. If the server has lost
  /// nothing, or if this process knows no settings, nothing is changed.
  ///
  /// - Throws: `StorageError` if the server cannot be reached. This process then keeps its
  ///   settings.
  public func adopt(_ suite: Defaults.Suite = .standard) throws(StorageError) {
    _ = try table(of: suite, app: StorageSystem.appName).adopt()
  }

  /// Stores the sealed secrets that this process knows on the server again, as ``push(_:)`` does
  /// with settings. The vault need not be open.
  ///
  /// ```swift
  /// try backing.pushSecrets()
  /// ```
  ///
  /// - Throws: `StorageError` of code `notFound` if this process knows no secrets, of code `misuse`
  ///   if ``adoptSecrets()`` has given them up, and of other codes if the server cannot be reached
  ///   or refuses the change.
  public func pushSecrets() throws(StorageError) {
    _ = try table(ofVaultOf: StorageSystem.appName).push()
  }

  /// Uses the sealed secrets on the server, as ``adopt(_:)`` does with settings.
  ///
  /// - Throws: `StorageError` if the server cannot be reached. This process then keeps its secrets.
  public func adoptSecrets() throws(StorageError) {
    _ = try table(ofVaultOf: StorageSystem.appName).adopt()
  }
}

#if SecureVault
extension ValkeyBacking: VaultBacking {}
#endif

extension StorageBacking where Self == ValkeyBacking {
  /// Keeps the settings, secrets and caches on a Valkey or Redis server of version 6.2 or newer.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(
  ///   app: "com.example.shop", on: .valkey("valkeys://cache.internal:6379"))
  /// ```
  ///
  /// The URL is one of these; `valkey` and `valkeys` may also be written `redis` and `rediss`:
  /// - `valkey://host:6379/0`: the host, the port and the number of the database.
  /// - `valkeys://host:6379`: with TLS. `?ca=/path/ca.pem` names a file of the certificate
  ///   authorities to trust instead of the system's. If the server requires a client certificate,
  ///   add `cert=/path/client.pem&key=/path/client.key`; without `key`, the private key is in the
  ///   file of the certificate.
  /// - `unix:///run/valkey.sock?db=0`: a socket in the file system.
  ///
  /// User and password come before the host, percent-encoded: `valkey://user:password@host`. The
  /// parameters `connect-timeout` and `timeout`, such as `500ms`, limit how long connecting may
  /// take (two seconds by default) and how long a call waits for the server (one second by
  /// default). No error and no report contains the user or the password.
  ///
  /// Secrets are sealed before they leave the machine. The secrets of a service in a directory that
  /// you choose stay on the machine, and so do suites and caches in such a directory.
  ///
  /// The process connects when a suite, a secret or a cache is first used.
  ///
  /// - Parameters:
  ///   - url: The address of the server.
  ///   - local: The suites that stay on this machine.
  ///   - localCaches: The caches that stay on this machine.
  ///   - confirmation: How many servers must have a change before the call that made it returns.
  ///   - password: Returns the password, instead of the one in the URL. Called before each
  ///     connection, on a thread of the library.
  /// - Throws: `StorageError` of code `misuse` if the URL is invalid.
  public static func valkey(
    _ url: String, local: Set<Defaults.Suite> = [], localCaches: Set<DiskCache.Name> = [],
    confirm confirmation: ValkeyBacking.Confirmation = .primary,
    password: (@Sendable () throws -> String)? = nil
  ) throws(StorageError) -> ValkeyBacking {
    var options = LinkOptions()
    options.password = password
    let server = Server(try ServerAddress(url), options: options, confirm: confirmation)
    return ValkeyBacking(server, local: local, localCaches: localCaches)
  }
}
