import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A link or a mount takes the place of a subdirectory while the cache is in use: what is behind it
/// is not the cache's, even if it looks like entries.
@Suite struct ReplacedSubdirectoryTests {
  enum Call: CaseIterable {
    case get, getExpired, set, setFile, remove, removeExpired, evict, removeAll
  }

  private let directory: TemporaryDirectory
  private let failures = Failures()
  private let store: DiskCache.Store
  private let cachePath: String
  /// The path of the subdirectory with the entry of ``key``.
  private let path: String
  /// Neither the first nor the last to be evicted.
  private static let key = "k20"
  /// A key of another subdirectory.
  private let otherKey: String

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    cachePath = directory.file("caches/standard").path
    store = directory.cache(failures: failures)
    let keys = (0..<40).map { "k\($0)" }
    for key in keys { try store.set(Data(count: 500), forKey: key, expiry: .minutes(30)) }
    // In the order in which they are to be evicted: the times of the files are too coarse for that.
    for key in keys { _ = try store.get(key) }
    path = FileSystem.parent(of: try store.payload(Self.key))
    let (store, path) = (store, path)
    otherKey = try #require(
      try keys.first { FileSystem.parent(of: try store.payload($0)) != path })
  }

  /// Has the store know which entries to evict next, before they are replaced.
  private func findEntriesToEvict() throws {
    let path = try store.payload(Self.key)
    try store.files.openCache()?.evict { 300_000 }
    try #require(try FileSystem.status(path) != nil)
  }

  private func copy(_ source: String, to target: String) throws {
    let child = try Child("/bin/cp", ["-a", source, target], mergesErrors: true)
    let said = child.finish()
    try #require(child.exitStatus == 0, "\(said)")
  }

  /// What changes with any change of a file in the directory, or of its names.
  private func state(of path: String) throws -> [String: [Int64]] {
    var found: [String: [Int64]] = [:]
    for name in try FileSystem.list(path) + ["."] {
      let file = path + "/" + name
      let status = try #require(
        try FileSystem.status(file, followsLinks: false, withTimes: true), "\(file)")
      let inode = Int64(bitPattern: status.inode)
      found[name] = [inode, Int64(status.size), status.modified, status.changed]
    }
    return found
  }

  private var hasTrash: Bool {
    get throws { try FileSystem.list(cachePath).contains { $0.hasSuffix(".trash") } }
  }

  // MARK: Links

  /// A link in the place of the subdirectory.
  enum Link: CaseIterable {
    case toTheFiles, toCopies
    /// To the files, and no call of this process has used the subdirectory before.
    case forNewStore
  }

  private func call(_ call: Call, _ store: DiskCache.Store) throws {
    let key = Self.key
    switch call {
    case .get:
      // Long enough after the last use for this one to be recorded.
      let later = WallClock.now + 1_200 * WallClock.second
      _ = try? WallClock.$fixed.withValue(later) { try store.get(key) }
    case .getExpired: _ = try? anHourLater { try store.get(key) }
    case .set: expectFailure(.accessDenied) { try store.set("new", forKey: key) }
    case .setFile:
      let source = directory.file("source")
      try Data(count: 10_000).write(to: source)
      expectFailure(.accessDenied) { try store.set(contentsOf: source, forKey: key) }
    case .remove: expectFailure(.accessDenied) { try store.remove(key) }
    case .removeExpired: _ = try anHourLater { try store.removeExpired() }
    // The eviction may say that it could not remove all that it had found.
    case .evict: _ = try? store.files.openCache()?.evict { 20_000 }
    case .removeAll: try store.removeAll()
    }
  }

  @Test(arguments: Call.allCases, Link.allCases)
  func nothingBehindALinkIsChanged(_ call: Call, _ link: Link) async throws {
    if call == .evict { try findEntriesToEvict() }
    var target = directory.file("elsewhere").path
    try FileSystem.rename(path, to: target)
    if link == .toCopies {
      try copy(target, to: target + " copied")
      target += " copied"
    }
    try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: target)
    // Looks like a payload without a sidecar.
    try Data("mine".utf8).write(to: URL(filePath: target + "/half"))
    let before = try state(of: target)
    let store = link == .forNewStore ? directory.cache(failures: failures) : store
    // The store looks at a subdirectory once within a tick.
    waitForTick()
    try self.call(call, store)
    if call == .removeAll {
      try await eventually("the trash is deleted") { try !hasTrash }
      #expect(try store.keys() == [])
    }
    #expect(try state(of: target) == before)
    // The other subdirectories are still in use.
    try store.set("new", forKey: otherKey)
    #expect(try store.model(otherKey) == "new")
    #expect(try state(of: target) == before)
  }

  // MARK: Mounts

  enum Mount: CaseIterable { case overSubdirectory, inSubdirectory }

  /// Mounts a directory that has files with the names of entries.
  ///
  /// - Returns: The path under which the directory can be seen as well.
  private func mount(_ mount: Mount) throws -> String {
    let source = directory.file("elsewhere").path
    let mountPoint: String
    switch mount {
    case .overSubdirectory:
      try FileSystem.rename(path, to: source)
      mountPoint = path
    case .inSubdirectory:
      try copy(path, to: source)
      mountPoint = path + "/x"
    }
    try FileSystem.makeDirectory(mountPoint, mode: 0o700)
    try #require(Glibc.mount(source, mountPoint, nil, UInt(MS_BIND), nil) == 0)
    return source
  }

  /// The files of entries that are not behind the mount.
  private func entryFiles(_ mount: Mount) throws -> [String] {
    let mounted = mount == .overSubdirectory ? FileSystem.name(of: path) : "x"
    return try FileSystem.list(cachePath).filter { $0.utf8.count == 2 && $0 != mounted }
      .flatMap { try FileSystem.list(cachePath + "/" + $0) }.filter { $0 != mounted }
  }

  @Test(
    .enabled(if: OneAtATime.HazardTests.canMount, "nothing can be mounted here"),
    arguments: Mount.allCases, [Call.removeExpired, .evict, .removeAll])
  func nothingBehindAMountIsRemoved(_ mount: Mount, _ call: Call) async throws {
    if call == .evict { try findEntriesToEvict() }
    defer { directory.unmountAll() }
    let source = try self.mount(mount)
    let before = try state(of: source)
    // One that used the subdirectory before, and one that did not.
    for (store, limit) in [(store, 20_000), (directory.cache(failures: failures), 1)] {
      if mount == .overSubdirectory {
        waitForTick()
        expectFailure(.accessDenied) { try store.remove(Self.key) }
      }
      // Each may say that it could not remove everything.
      switch call {
      case .removeExpired: _ = try? anHourLater { try store.removeExpired() }
      case .evict: _ = try? store.files.openCache()?.evict { limit }
      default: _ = try? store.removeAll()
      }
      #expect(try state(of: source) == before)
      // The last used entry is not evicted, nor is what may have taken the place of others.
      #expect(try entryFiles(mount).count <= (call == .evict ? 8 : 0))
    }

    directory.unmountAll()
    let newFailures = Failures()
    let next = directory.cache(failures: newFailures)
    try next.set("new", forKey: otherKey)
    // A failure would be the same at each start.
    try await eventually("the trash is deleted") { try !hasTrash || !newFailures.all.isEmpty }
    try next.removeExpired()
    #expect(try !hasTrash)
    #expect(try next.model(otherKey) == "new")
    #expect(newFailures.all.isEmpty, "\(newFailures.all)")
    #expect(try state(of: source) == before)
  }
}
