import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// One of the 256 subdirectories of a cache cannot be read: it costs its own entries only.
@Suite(.singleThreaded) final class UnreadableSubdirectoryTests: Sendable {
  private static let footprint = 8_192

  private let directory: TemporaryDirectory
  private let failures = Failures()
  private let store: DiskCache.Store
  /// The subdirectory's path.
  private let path: String
  private let keys = (0..<300).map { "k\($0)" }
  private let unreadable: [String]
  /// How often it should have been read.
  private let scans = Locked(0)

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    store = directory.cache(failures: failures)
    for key in keys { try store.set(Data(count: 100), forKey: key) }
    path = FileSystem.parent(of: try store.payload("k0"))
    let (store, path) = (store, path)
    unreadable = try keys.filter { FileSystem.parent(of: try store.payload($0)) == path }
  }

  private func withUnreadable<R>(
    _ call: SystemCall = .list, _ code: Int32 = EACCES, _ body: () throws -> R
  ) rethrows -> R {
    let plan = FaultPlan { [path, self] event in
      guard event.call == call, event.path.hasPrefix(path) else { return .proceed }
      _ = scans.increment()
      return .fail(code)
    }
    return try FaultPlan.$current.withValue(plan, operation: body)
  }

  @Test(arguments: [EACCES, EIO]) func allOtherEntriesAreListed(_ code: Int32) throws {
    let listed = try withUnreadable(.list, code) { try store.keys() }
    #expect(Set(listed) == Set(keys).subtracting(unreadable))
    #expect(failures.all.map(\.code) == [code == EACCES ? .accessDenied : .system(code)])
    #expect(failures.all.first?.operation == "DiskCache.keys", "\(failures.all)")
    #expect(failures.all.first?.path == path)
    #expect(try Set(store.keys()) == Set(keys) && failures.all.count == 1)
  }

  @Test func allOtherEntriesAreCounted() throws {
    try store.files.openCacheForWriting().ledger?.invalidate()
    let size = try withUnreadable(.list, EIO) { try store.totalSize }
    #expect(size == (keys.count - unreadable.count) * Self.footprint)
    #expect(failures.all.contains { $0.operation == "DiskCache.totalSize" }, "\(failures.all)")
    #expect(try store.totalSize == keys.count * Self.footprint)
  }

  @Test func allOtherEntriesExpire() throws {
    for key in keys { try aSecondAgo { try store.set(1, forKey: key, expiry: .seconds(0.01)) } }
    let error = withUnreadable {
      expectFailure(.accessDenied) { try store.removeExpired() }
    }
    #expect(error?.path == path)
    #expect(try store.removeExpired() == unreadable.count)
  }

  /// Also if its entries can be listed, but not removed.
  @Test(arguments: [SystemCall.list, .unlink])
  func allOtherEntriesAreEvicted(_ call: SystemCall) throws {
    let error = withUnreadable(call) {
      expectFailure(.accessDenied) { try store.files.openCache()?.evict { 20 * Self.footprint } }
    }
    #expect(error?.path?.hasPrefix(path) == true)
    let rest = try store.keys()
    #expect(Set(rest).isSuperset(of: unreadable))
    #expect(rest.count <= 20 + unreadable.count)
  }

  /// Otherwise each set would scan the cache.
  @Test func aFailedEvictionIsNotTriedAgainForASecond() throws {
    let now = WallClock.now
    var number = 0
    func set(at time: Int64) throws {
      number += 1
      try WallClock.$fixed.withValue(time) {
        try store.set(Data(count: 100), forKey: "new\(number)")
      }
    }
    let cache = try store.files
    store.sizeLimit = 310 * Self.footprint
    try withUnreadable {
      for time in [now, now + WallClock.second] {
        let before = scans.withLock { $0 }
        // A job of the second before, which has its clock, may take the first set's for its own.
        try waitUntil("the eviction has failed") {
          try set(at: time)
          return cache.eviction.lastFailure.load(ordering: .relaxed) == time
        }
        let found = scans.withLock { $0 }
        #expect(found > before)
        for _ in 0..<500 { try set(at: time) }
        #expect(scans.withLock { $0 } == found)
      }
    }
    #expect(
      failures.all.contains { $0.operation == "DiskCache.evict" && $0.path == path },
      "\(failures.all)")
  }

  /// Likewise.
  @Test func aFailedSweepIsNotTriedAgainForASecond() throws {
    let cachePath = FileSystem.parent(of: path)
    let attempts = Locked(0)
    let plan = FaultPlan { event in
      guard event.call == .list, event.path == cachePath else { return .proceed }
      _ = attempts.increment()
      return .fail(EIO)
    }
    let later = WallClock.now + 2 * 86_400 * WallClock.second
    try FaultPlan.$current.withValue(plan) {
      for time in [later, later + WallClock.second] {
        try WallClock.$fixed.withValue(time) {
          let before = attempts.withLock { $0 }
          // A job of the second before may take the first set's for its own.
          try waitUntil("the sweep has failed") {
            try store.set(Data(count: 100), forKey: "k1")
            return attempts.withLock { $0 } > before
          }
          let found = attempts.withLock { $0 }
          for _ in 0..<500 { try store.set(Data(count: 100), forKey: "k1") }
          // Jobs begin in order.
          let hasBegun = ThreadGate()
          BackgroundWork.run { hasBegun.open() }
          hasBegun.wait()
          #expect(attempts.withLock { $0 } == found)
        }
      }
    }
    #expect(failures.all.contains { $0.operation == "DiskCache.sweep" }, "\(failures.all)")
  }

  /// One entry whose sidecar cannot be read, or that cannot be removed, costs itself only.
  @Test(arguments: [SystemCall.open, .unlink], ["totalSize", "removeExpired", "evict"])
  func allOtherEntriesOfTheSubdirectoryAreRemoved(_ call: SystemCall, by removal: String) throws {
    let bad = try call == .open ? store.sidecar("k0") : store.payload("k0")
    for key in keys { try aSecondAgo { try store.set(1, forKey: key, expiry: .seconds(0.01)) } }
    let plan = FaultPlan { $0.call == call && $0.path == bad ? .fail(EIO) : .proceed }
    try FaultPlan.$current.withValue(plan) { () throws in
      #expect(try store.keys() == (call == .open ? ["k0"] : []))
      if removal == "totalSize" {
        #expect(try store.totalSize == Self.footprint)
        #expect(failures.all.contains { $0.operation == "DiskCache.totalSize" }, "\(failures.all)")
      } else {
        let error = expectFailure(.system(EIO)) {
          if removal == "evict" {
            try store.files.openCache()?.evict { Self.footprint }
          } else {
            try store.removeExpired()
          }
        }
        #expect(error?.path == bad)
      }
      #expect(try store.totalSize == Self.footprint)
    }
    let names = try FileManager.default.subpathsOfDirectory(atPath: FileSystem.parent(of: path))
    #expect(names.count { $0.hasSuffix(Sidecar.suffix) } == 1)
    #expect(try store.removeExpired() == 1 && store.totalSize == 0)
  }

  /// Another user's directory, which the process may rename, but neither list nor delete.
  @Test(.enabled(if: getuid() == 0, "becoming another user needs root"), .multiprocess)
  func allOtherEntriesAreRemoved() throws {
    let home = try TemporaryDirectory(isQuick: true)
    try #require(chown(home.path, 1_234, 1_234) == 0)
    func run(_ words: [String]) throws -> String {
      let user = ["--reuid=1234", "--regid=1234", "--clear-groups"]
      let peer = try Child(
        "setpriv", user + [Peer.executable, home.path] + words, mergesErrors: true)
      let said = peer.finish()
      #expect(peer.exitStatus == 0, "\(said)")
      return said
    }
    #expect(try run(["cache-set"] + keys) == "")
    let (cache, name) = (home.file("x").path, FileSystem.name(of: path))
    let taken = cache + "/" + name
    try #require(chown(taken, 0, 0) == 0 && chmod(taken, 0o700) == 0)
    let taking = try #require(try FileSystem.status(taken))

    var said = [try run(["cache-clear", "0"])]
    let other = try #require(keys.first { !unreadable.contains($0) })
    said.append(try run(["cache-set", other]))
    // It may have another name by then.
    let isSaid = [taken, cache + "/." + name + "."].contains { said.joined().contains($0) }
    #expect(isSaid, "what was not removed is said: \(said)")
    let directories = try FileSystem.list(cache).map { cache + "/" + $0 }.filter { path in
      let status = try FileSystem.status(path)
      return status?.isDirectory == true && status?.isSameFile(as: taking) == false
    }
    #expect(try directories.flatMap { try FileSystem.list($0) }.count == 2, "one entry")
  }
}
