import Foundation
import Testing

@testable import Keepsake

/// A directory for one test, removed with the last reference, of which each store holds one.
final class TemporaryDirectory: Sendable {
  let path: String

  /// - Parameter isQuick: For tests that make thousands: in memory where the system has a place for
  ///   that, as disks are slow to give out new files.
  init(isQuick: Bool = false) throws {
    let memory = "/dev/shm/"
    let isInMemory = isQuick && FileManager.default.isWritableFile(atPath: memory)
    let parent = isInMemory ? memory : NSTemporaryDirectory()
    path = parent + "keepsake-test-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  /// A place in another one, where nothing is yet.
  init(_ name: String, in directory: TemporaryDirectory) { path = directory.path + "/" + name }

  /// A quick one with all that was in another one.
  convenience init(copying snapshot: Snapshot) throws {
    try self.init(isQuick: true)
    try snapshot.put(in: self)
  }

  deinit {
    // Unlike FileManager's, it goes on when a store's work in the background removes files as well.
    try? FileSystem.removeTree(path)
  }

  var url: URL { URL(filePath: path) }

  func file(_ name: String) -> URL { url.appending(path: name) }

  func names() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: path).sorted()
  }

  func write(_ bytes: [UInt8], to name: String) throws { try Data(bytes).write(to: file(name)) }

  func bytes(of name: String) throws -> [UInt8] { Array(try Data(contentsOf: file(name))) }

  static let journal = "standard.jsonl"

  /// A store on this directory's files that shares nothing with any other one.
  func store(
    _ suite: Defaults.Suite = .standard, failures: Failures = Failures()
  ) -> Defaults.Store {
    Defaults.Store(suite: suite, scope: scope(failures))
  }

  /// A store on an engine of a test's own.
  func store(engine: any StorageEngine) -> Defaults.Store {
    let finder = DirectoryFinder(app: "test", chosen: .init(configuration: url))
    let scope = StorageScope(finder: finder, engines: ["own": engine])
    // The scope holds its stores and they hold it: the directory would never be removed.
    defer { scope.close() }
    return scope.defaults("own")
  }

  /// The same for a cache, whose entries lie in `caches/standard`.
  func cache(
    _ name: DiskCache.Name = .standard, failures: Failures = Failures()
  ) -> DiskCache.Store {
    DiskCache.Store(name: name, scope: scope(failures))
  }

  /// The same for a cache that lies in this directory itself.
  func ownCache(_ name: String, failures: Failures = Failures()) -> DiskCache.Store {
    DiskCache.Store(name: DiskCache.Name(name, in: url), scope: scope(failures))
  }

  /// The same for a service's secrets, whose vault is in `vault` and its key file in `state`.
  func secrets(
    _ service: SecureVault.Service = .standard, failures: Failures = Failures(),
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil, environment: [String: String] = [:]
  ) -> SecureVault.Store {
    let options = VaultOptions(sources: keySources, authenticate: authenticate)
    let scope = scope(failures, options, environment)
    // The scope holds its stores and they hold it: the directory would never be removed.
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

/// What was reported while a test ran.
final class Failures: Sendable {
  private let errors = Locked<[StorageError]>([])

  var all: [StorageError] { errors.withLock { $0 } }
  @Sendable func append(_ error: StorageError) { errors.withLock { $0.append(error) } }
}

/// A store made above is kept alive by nothing else, and reports through its scope.
extension DiskCache.Store {
  /// The cache's files behind a store of a test.
  var files: FileCache { get throws { try #require(engine as? FileCache) } }

  /// The payload of an entry.
  func payload(_ key: String) throws -> String { try #require(try fileURL(key)).path }

  func sidecar(_ key: String) throws -> String { try payload(key) + Sidecar.suffix }
}

extension Defaults.Store {
  /// The journal behind a store of a test.
  var journal: Journal { get throws { try #require(engine.get() as? Journal) } }
}

/// A ``CommitHook`` that does nothing but commit.
func commitDirectly(_ commit: () throws(StorageError) -> Void) throws(StorageError) {
  try commit()
}
