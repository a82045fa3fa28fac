import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The directory of a cache is a link to one that has other files beside the entries, of which
/// whatever empties or sweeps the cache removes none.
@Suite(.multiprocess, .threadPerTest) struct LinkedCacheTests {
  enum Emptying: CaseIterable { case keepsakectl, storageSystem, removeExpired, dailySweep }

  private static let app = "com.example.notes"
  private let directory: TemporaryDirectory
  private let inspector: Example
  private let finder: DirectoryFinder
  private let failures = Failures()

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    inspector = Example("keepsakectl", in: directory)
    let variables = inspector.environment
    finder = DirectoryFinder(app: Self.app, environment: { variables[$0] })
  }

  /// Runs `body` with the cache of a process that has just started.
  private func withCache<R>(_ body: (DiskCache.Store) throws -> R) rethrows -> R {
    let scope = StorageScope(finder: finder, handler: failures.append)
    defer { scope.close() }
    return try body(scope.cache(.standard))
  }

  private func empty(_ emptying: Emptying) throws {
    switch emptying {
    case .keepsakectl:
      let run = try inspector.run("cache", "clear", Self.app, "--yes")
      #expect(run.status == 0, "\(run)")
    case .storageSystem: #expect(try inScope(finder) { StorageSystem.removeAll() })
    case .removeExpired: #expect(try anHourLater { try withCache { try $0.removeExpired() } } == 10)
    case .dailySweep:
      let later = WallClock.now + 2 * 86_400 * WallClock.second
      try WallClock.$fixed.withValue(later) {
        try withCache { try $0.set("new", forKey: "new") }
      }
    }
  }

  @Test(arguments: Emptying.allCases) func onlyEntriesAreRemoved(_ emptying: Emptying) async throws
  {
    let files = try withCache { store in
      try (0..<10).map { "k\($0)" }.flatMap { key in
        try store.set("value", forKey: key, expiry: .minutes(30))
        return try [store.payload(key), store.sidecar(key)]
      }
    }
    let link = "cache/\(Self.app)/caches/standard"
    try FileSystem.rename(directory.file(link).path, to: directory.file("disk").path)
    try directory.link(link, to: directory.file("disk").path)
    let foreign = try directory.makeForeignFiles(in: "disk")
    try empty(emptying)
    try await eventually("the entries are removed") {
      try files.allSatisfy { try FileSystem.status($0) == nil }
    }
    try directory.expectPresent(foreign, "beside the entries")
    #expect(try directory.status(link)?.isSymbolicLink == true)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }
}
