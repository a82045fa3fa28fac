import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a process of an app has on a machine: a link of its own, and caches in a directory.
final class CacheMachine: Sendable {
  let server: Server
  let directory: ServerDirectory
  /// What was reported to `onFailure`.
  let reports = Recorder<StorageError>()
  private let testServer: TestServer
  private let scope: StorageScope

  /// - Parameters:
  ///   - directory: That of another process of the same machine.
  ///   - leaseTime: Longer than any test takes, unless it is about its end.
  ///   - change: Changes the address.
  init(
    _ testServer: TestServer, in directory: ServerDirectory? = nil, app: String = "app",
    localCaches: Set<DiskCache.Name> = [], leaseTime: Duration = .seconds(3_600),
    confirm confirmation: ValkeyBacking.Confirmation = .primary,
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) throws {
    self.testServer = testServer
    self.directory = try directory ?? ServerDirectory()
    server = testServer.backend(confirm: confirmation, change)
    scope = StorageScope(
      finder: .temporary(app: app, in: self.directory.path),
      backing: ValkeyBacking(server, localCaches: localCaches, leaseTime: leaseTime),
      // The directory is there for as long as any of its caches.
      handler: { [reports, directory = self.directory] error in
        withExtendedLifetime(directory) { reports.append(error) }
      })
  }

  deinit { scope.close() }

  /// A cache that has received no message yet.
  func newCache(_ name: DiskCache.Name = "pages") -> DiskCache.Store { scope.cache(name) }

  /// A cache that is told of all changes.
  func cache(
    _ name: DiskCache.Name = "pages", sourceLocation: SourceLocation = #_sourceLocation
  ) -> DiskCache.Store {
    let cache = scope.cache(name)
    cache.tiers?.followOnce()
    waitUntil("the cache is not followed", sourceLocation: sourceLocation) { cache.isFollowed }
    return cache
  }

  /// What was reported, apart from outages: on a busy machine any one may be long enough.
  var faults: [StorageError] { reports.all.filter { $0.code != .unreachable } }
}

extension DiskCache.Store {
  /// Suspends until a fetch of this cache waits for another machine.
  func waitForWaiter() async throws {
    try await eventually("no fetch waits") { tiers?.waits.count == 1 }
  }

  /// Expects that the text arrives; nil that there is none any more.
  func expectEventually(
    _ key: String, _ text: String?, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the change did not arrive", sourceLocation: sourceLocation) {
      (try? model(key, type: String.self)) == text
    }
  }
}

extension DiskCache.Store {
  /// Starts a fetch, and returns when its producer waits at the gate.
  func startFetch<Value: Codable & Sendable>(
    _ key: String = "k", of value: Value, at gate: Gate
  ) async throws -> Task<Value, any Error> {
    let count = await gate.entered
    let task = Task {
      try await fetch(key) {
        await gate.pass()
        return value
      }
    }
    try await gate.waitForProducers(count + 1)
    return task
  }
}

extension Gate {
  /// Suspends until so many producers have begun.
  func waitForProducers(_ count: Int) async throws {
    try await eventually("the producers have not begun") { self.entered >= count }
  }
}

extension DiskCache.Store {
  /// The engine of a cache with two tiers; nil for other caches.
  var tiers: TieredCache? { (try? engine) as? TieredCache }
  /// Whether it is told of changes on other machines.
  var isFollowed: Bool { tiers?.withKnown { $0.isFollowing } == true }
}
