import Foundation
import Testing

@testable import Keepsake

/// A directory for one test. It is removed with its last reference; every store holds one.
final class TemporaryDirectory: Sendable {
  let path: String

  /// - Parameter isQuick: Whether to use a file system in memory if there is one, for tests that
  ///   make thousands of files.
  init(isQuick: Bool = false) throws {
    let memory = "/dev/shm/"
    let isInMemory = isQuick && FileManager.default.isWritableFile(atPath: memory)
    let parent = isInMemory ? memory : NSTemporaryDirectory()
    path = parent + "keepsake-test-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  /// A path in another directory, where nothing exists yet.
  init(_ name: String, in directory: TemporaryDirectory) { path = directory.path + "/" + name }

  deinit {
    // Unlike FileManager, it continues if work in the background removes files at the same time.
    do {
      try FileSystem.removeTree(path)
    } catch {
      // Names that are not UTF-8, for example.
      _ = try? Child("/bin/rm", ["-rf", path]).exitStatus
    }
  }

  var url: URL { URL(filePath: path) }

  func file(_ name: String) -> URL { url.appending(path: name) }

  func names() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: path).sorted()
  }

  func write(_ bytes: [UInt8], to name: String) throws { try Data(bytes).write(to: file(name)) }

  func bytes(of name: String) throws -> [UInt8] { Array(try Data(contentsOf: file(name))) }

  static let journal = "standard.jsonl"

  /// A new store on this directory's files. It shares nothing in memory with other stores.
  func store(
    _ suite: Defaults.Suite = .standard, failures: Failures = Failures()
  ) -> Defaults.Store {
    Defaults.Store(suite: suite, scope: scope(failures))
  }

  /// A new store on the test's engine.
  func store(engine: any StorageEngines.Engine) -> Defaults.Store {
    let finder = DirectoryFinder(app: "test", chosen: .init(configuration: url))
    let scope = StorageScope(finder: finder, engines: ["own": engine])
    // A scope and its stores reference each other; closing it lets the directory be removed.
    defer { scope.close() }
    return scope.defaults("own")
  }

  /// A new cache, whose entries are in `caches/standard`.
  func cache(
    _ name: DiskCache.Name = .standard, failures: Failures = Failures()
  ) -> DiskCache.Store {
    DiskCache.Store(name: name, scope: scope(failures))
  }

  /// A new cache in a subdirectory of this directory.
  func ownCache(_ name: String, failures: Failures = Failures()) -> DiskCache.Store {
    DiskCache.Store(name: DiskCache.Name(name, in: url), scope: scope(failures))
  }

  /// A new store of a service's secrets, with the vault in `vault` and its key file in `state`.
  func secrets(
    _ service: SecureVault.Service = .standard, failures: Failures = Failures(),
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil, environment: [String: String] = [:]
  ) -> SecureVault.Store {
    let options = VaultOptions(sources: keySources, authenticate: authenticate)
    let scope = scope(failures, options, environment)
    // A scope and its stores reference each other; closing it lets the directory be removed.
    defer { scope.close() }
    return scope.vault(service)
  }

  private func scope(
    _ failures: Failures, _ vaultOptions: VaultOptions = VaultOptions(),
    _ environment: [String: String] = [:]
  ) -> StorageScope {
    let finder = DirectoryFinder(
      app: "test",
      chosen: .init(configuration: url, data: url, state: url.appending(path: "state"), cache: url),
      environment: { environment[$0] })
    return StorageScope(finder: finder, vaultOptions: vaultOptions) { [self] error in
      failures.append(error)
      withExtendedLifetime(self) {}
    }
  }
}

/// The failures that were reported during a test.
final class Failures: Sendable {
  private let errors = Locked<[StorageError]>([])

  var all: [StorageError] { errors.withLock { $0 } }
  @Sendable func append(_ error: StorageError) { errors.withLock { $0.append(error) } }
}

extension DiskCache.Store {
  /// The engine of a cache on disk.
  var files: FileCache { get throws { try #require(engine as? FileCache) } }

  /// The path of an entry's payload.
  func payload(_ key: String) throws -> String { try #require(try fileURL(key)).path }

  func sidecar(_ key: String) throws -> String { try payload(key) + Sidecar.suffix }
}

extension Defaults.Store {
  /// The engine of settings in a journal.
  var journal: Journal { get throws { try #require(engine.get() as? Journal) } }
}

extension Journal {
  /// Has it watch another way than its own: a look in the background goes by the real clock, and
  /// may be earlier than that of the test.
  func lookOnlyWhenUsed() {
    let watch = FileWatcher.shared.watch(.names, of: "/", polls: false) { _ in }
    loaded.withLock { $0.watch([watch], of: nil, isFollowed: false) }
  }
}

/// Leaves the settings of `store` unsynced until the test syncs them itself: it makes the journal
/// believe that a sync is scheduled.
///
/// The first change in a process schedules one sync of all journals that change in the next second,
/// so a journal may otherwise be synced at any moment after its first change.
func keepFromBackgroundSync(_ store: Defaults.Store) throws {
  try store.journal.loaded.withLock { $0.isSyncScheduled = true }
}

/// A ``CommitHook`` that does nothing but commit.
func commitDirectly(_ commit: () throws(StorageError) -> Void) throws(StorageError) {
  try commit()
}
