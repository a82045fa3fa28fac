import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Caches when system calls fail.
@Suite(.proofThread, .singleThreaded) struct CacheFaultTests {
  private static let old = Data(String(repeating: Fault.mark + " old. ", count: 30).utf8)
  private static let new = Data(String(repeating: Fault.mark + " new. ", count: 40).utf8)

  private let directory: TemporaryDirectory
  private let store: DiskCache.Store

  init() throws {
    directory = try TemporaryDirectory()
    store = directory.cache()
  }

  private static let day = WriteOptions(
    expiry: .after(86_400 * WallClock.second), details: EntryDetails(kept: 1), isDurable: false)

  /// Gives an entry that is found stale a new life.
  private static func renew(_ key: String, _ store: DiskCache.Store) throws {
    let found = try WallClock.$fixed.withValue(WallClock.now + 36 * 3_600 * WallClock.second) {
      try store.engine.find(key, noValue: true, tags: false).found
    }
    guard case .stale(let entry) = found else { return }
    _ = try store.engine.renew(entry, forKey: key, day, hook: commitDirectly)
  }

  private func prepare(_ directory: TemporaryDirectory) throws {
    let store = directory.cache()
    for key in ["k", "l", "m"] { try store.set(Self.old, forKey: key) }
    try store.set("gone", forKey: "gone", expiry: .seconds(1e-9))
    // Otherwise opening the cache would clean it up in the background during the call.
    try store.removeExpired()
  }

  @Test func eachFailingCallIsAnErrorOrAMissAndNeverAWrongValue() async throws {
    try await FaultSweep<EndlessCacheModel>().run()
  }

  @Test func aCallThatIsKilledLeavesTheOldOrTheNewState() throws {
    try FaultSweep<EndlessCacheModel>().runKills()
  }

  @Test func aLinkToADiskThatIsNotMountedIsAnError() throws {
    let store = directory.ownCache("x")
    try FileManager.default.createSymbolicLink(
      at: directory.file("x"), withDestinationURL: directory.file("unmounted/cache"))
    var error: StorageError?
    let calls = systemCalls {
      error = expectFailure(.symbolicLink) { try store.set(1, forKey: "k") }
    }
    #expect(error?.path == directory.file("x").path)
    #expect(calls.count < 20)
    #expect(try directory.names() == ["x"])
    try FileManager.default.createDirectory(
      at: directory.file("unmounted/cache"), withIntermediateDirectories: true)
    try store.set(1, forKey: "k")
    #expect(try store.model("k") == 1)
  }

  @Test func aPayloadThatCannotBeRenamedLeavesTheOldValue() throws {
    try store.set(Self.old, forKey: "k")
    let plan = FaultPlan(decide: { [.exchange, .rename].contains($0.call) ? .fail(EIO) : .proceed })
    #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(plan) { try store.set(Self.new, forKey: "k") }
    }
    #expect(try store.get("k") == Self.old && directory.cache().get("k") == Self.old)
  }

  @Test func anIncompleteRemovalIsNotCountedAsDamage() throws {
    try store.set(Self.old, forKey: "k")
    let count = Locked(0)
    let plan = FaultPlan { event in
      event.call == .unlink && count.increment() == 2 ? .fail(EIO) : .proceed
    }
    #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(plan) { try store.remove("k") }
    }
    // A sidecar without a payload counts as missing.
    for reader in [store, directory.cache()] {
      #expect(try reader.contains("k") == false && reader.get("k") == nil)
      #expect(reader.statistics.damaged == 0)
    }
  }

  /// Expired and damaged entries are missing. Their removal is not what the caller has asked for.
  @Test(arguments: [(SystemCall.unlink, ENOSPC), (.unlink, EROFS), (.lock, ENOLCK)])
  func anEntryThatCannotBeRemovedIsMissing(call: SystemCall, code: Int32) throws {
    try store.set(Self.old, forKey: "damaged")
    try Bytes.write(Array(Self.new.prefix(Self.old.count)), to: store.payload("damaged"))
    try aSecondAgo { try store.set(Self.old, forKey: "over", expiry: .seconds(0.01)) }
    let plan = FaultPlan(decide: { $0.call == call ? .fail(code) : .proceed })
    // Whether a damaged entry is one cannot be found out without the lock.
    for key in call == .lock ? ["over"] : ["over", "damaged"] {
      try FaultPlan.$current.withValue(plan) { () throws in
        #expect(try store.get(key) == nil, "\(key)")
        if key == "over" { #expect(try !store.contains(key) && store.entry(key) == nil) }
        #expect(try store.files.openChunks(key) == nil)
      }
    }
    #expect(try store.get("damaged") == nil && store.removeExpired() <= 1)
    #expect(try store.keys() == [] && store.totalSize == 0)
  }

  @Test func aSetThatFailsEarlyLeavesNoSidecar() throws {
    // Its files get the mode of the directory.
    try #require(chmod(directory.path, 0o770) == 0)
    let store = directory.ownCache("x")
    let plan = FaultPlan(decide: {
      $0.call == .chmod && $0.path.hasSuffix(Sidecar.suffix) ? .fail(EIO) : .proceed
    })
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.system(EIO)) { try store.set(Self.new, forKey: "k") }
    }
    let names = try FileManager.default.subpathsOfDirectory(atPath: directory.path + "/x")
    #expect(names.allSatisfy { !$0.hasSuffix(Sidecar.suffix) })
    try store.set(Self.new, forKey: "k")
    #expect(try store.get("k") == Self.new && store.totalSize == 8_192)
  }

  @Test func aPartialWriteLeavesTheOldValue() throws {
    for length in [0, 1, 63, 64, 65, 899] {
      let directory = try TemporaryDirectory()
      let store = directory.cache()
      try store.set(Self.old, forKey: "k")
      let error = expectFailure(.diskFull) {
        try withDiskFull(afterBytes: length) { try store.set(Self.new, forKey: "k") }
      }
      #expect(error?.key == "k" && error?.operation == "set")
      #expect(try store.get("k") == Self.old && directory.cache().get("k") == Self.old)
    }
  }

  /// Stops a process before each system call of a set in turn, as a kill does: no later call of it
  /// has an effect.
  @Test(
    arguments: [(30, "set", false), (30, "durable", false), (6_000, "set", false)]
      + [30, 6_000].flatMap { length in
        ["set", "tagged", "renew", "no value"].map { (length, $0, true) }
      } + [(30, "tagged", false), (30, "no value", false)])
  func aSetThatIsKilledLeavesTheOldOrTheNewValue(
    keyLength: Int, change: String, oldHasTags: Bool
  ) throws {
    let key = String(repeating: "k", count: keyLength)
    let after: Data? = change == "renew" ? Self.old : change == "no value" ? nil : Self.new
    var values: [Data?] = []
    for number in 0... {
      try #require(number < 60)
      let directory = try TemporaryDirectory(isQuick: true)
      try directory.cache().set("first", forKey: key)
      if oldHasTags {
        try directory.cache().set(
          Self.old, forKey: key, expiry: .days(1), keptFor: .days(1), tags: ["t": "0"])
      } else {
        try directory.cache().set(Self.old, forKey: key, expiry: .days(1))
      }
      let size = try directory.cache().totalSize
      /// Whether the set was killed.
      func set(_ value: Data) -> Bool {
        let store = directory.cache()
        return killing(beforeCall: number) {
          // Its clean-up fails too.
          switch change {
          case "tagged": try? store.set(value, forKey: key, tags: ["t": "1", "u": "2"])
          case "renew": try? Self.renew(key, store)
          case "no value":
            try? store.engine.writeNoValue(forKey: key, Self.day, hook: commitDirectly)
          default: try? store.set(value, forKey: key, durable: change == "durable")
          }
        }
      }
      // Killed twice at the same point, without a read in between.
      let isKilled = set(Self.new)
      if isKilled { _ = set(Self.new) }
      let found = try directory.cache().get(key)
      #expect(found == Self.old || found == after, "before call \(number)")
      values.append(found)
      let next = directory.cache()
      #expect(try next.entry(key)?.size == found?.count)
      #expect(try next.keys() == (found == nil ? [] : [key]))
      #expect(next.statistics.damaged == 0)
      try next.set(Self.new, forKey: key)
      #expect(try directory.cache().get(key) == Self.new)
      try next.removeExpired()
      #expect(try next.totalSize == (oldHasTags ? bytesTaken(directory, "caches/standard") : size))
      if !isKilled { break }
    }
    #expect(values.first == Self.old && values.last == after && values.count > 8)
  }

  /// The sidecars of long keys take several blocks, and become longer and shorter.
  @Test(arguments: [1_900, 3_900, 6_000])
  func totalSizeFollowsTheSidecarsOfLongKeys(keyLength: Int) throws {
    let key = String(repeating: "k", count: keyLength)
    let tags = ["t": String(repeating: "t", count: 500)]
    for tags in [[:], [:], tags, tags, [:], [:], tags, [:]] {
      try store.set(Self.new, forKey: key, tags: tags)
      #expect(try store.totalSize == bytesTaken(directory, "caches/standard"), "\(tags.count)")
    }
    try store.remove(key)
    #expect(try store.totalSize == 0)
  }

  /// Where a file system copies on write, as btrfs does, a full disk does not accept changes to the
  /// ledger either.
  @Test func aFullDiskFailsNoRemoval() throws {
    try prepare(directory)
    let footprint = 8_192
    let plan = FaultPlan(decide: { $0.call == .publish ? .fail(ENOSPC) : .proceed })
    try FaultPlan.$current.withValue(plan) {
      let store = directory.cache()
      #expect(try store.totalSize == 3 * footprint)
      try store.set("x", forKey: "k")
      try store.set("y", forKey: "late")
      #expect(try store.model("k") == "x" && store.model("late") == "y")
      try store.set("z", forKey: "z", expiry: .days(1))
      #expect(try store.model("z") == "z")
      #expect(try store.totalSize == 5 * footprint)
      try store.remove("z")
      try store.remove("late")
      #expect(try store.removeExpired() == 0 && store.totalSize == 3 * footprint)
      store.sizeLimit = 2 * footprint
      try waitUntil("entries are evicted") { try store.keys().count <= 2 }
      #expect(try (1...2).contains(store.keys().count))
      store.sizeLimit = nil
      try store.removeAll()
      #expect(try store.keys() == [] && store.totalSize == 0)
      #expect(try directory.cache().totalSize == 0)
    }
    let next = directory.cache()
    try next.set("x", forKey: "k", expiry: .days(1))
    #expect(try next.totalSize == footprint && directory.cache().model("k") == "x")
  }

  @Test func facadeReturnsFalseAndReportsErrorsWithoutTheValue() async throws {
    try directory.write([], to: "caches")  // a file instead of the directory
    let failures = Failures()
    let store = directory.cache(failures: failures)
    let error = #expect(throws: StorageError.self) { try store.set("secret", forKey: "k") }
    #expect(error?.path?.hasPrefix(directory.path + "/caches") == true)
    #expect(error.map { "\($0)".contains("secret") } == false)
    try await StorageSystem.withTemporary {
      let failures = Failures()
      StorageSystem.onFailure = failures.append
      #expect(!DiskCache.set("secret", forKey: String(repeating: "x", count: 70_000)))
      #expect(DiskCache.set("text", forKey: "text"))
      #expect(DiskCache.model("text", type: Int.self) == nil)
      #expect(failures.all.map(\.code) == [.misuse, .wrongType])
      #expect(failures.all.allSatisfy { $0.key != nil && !"\($0)".contains("secret") })
    }
  }

  @Test func eachCallThrowsIfThereIsNoDirectory() async throws {
    var finder = DirectoryFinder(app: "test")
    finder.environment = { _ in nil }
    finder.registeredHome = { nil }
    let store = DiskCache.Store(name: .standard, scope: StorageScope(finder: finder))
    let calls: [() throws -> Void] = [
      { try store.set(1, forKey: "k") }, { _ = try store.get("k") }, { _ = try store.keys() },
      { try store.remove("k") }, { try store.removeAll() }, { _ = try store.totalSize },
      { _ = try store.contains("k") }, { _ = try store.entry("k") }, { _ = try store.folderURL },
      { _ = try store.fileURL("k") }, { try store.removeExpired() },
    ]
    for call in calls {
      let error = #expect(throws: StorageError.self) { try call() }
      #expect(error?.code == .notFound && error?.remedy.contains("HOME") == true)
    }
  }

  @Test func filesArePrivateAndTheDirectoryIsTagged() throws {
    try store.set(Self.new, forKey: "k")
    func mode(_ path: String) throws -> UInt32 { try #require(try FileSystem.status(path)).mode }
    let payload = try store.payload("k")
    #expect(try mode(payload) == 0o600 && mode(payload + Sidecar.suffix) == 0o600)
    try store.set(contentsOf: URL(filePath: payload), forKey: "file")
    #expect(try mode(store.payload("file")) == 0o600)
    let subdirectory = FileSystem.parent(of: payload)
    for path in [subdirectory] + ["/caches", "/caches/standard"].map({ directory.path + $0 }) {
      #expect(try mode(path) == 0o700, "\(path)")
    }
    #expect(try mode(directory.file("caches/.standard.ledger").path) == 0o600)
    let tag = try directory.bytes(of: "caches/standard/CACHEDIR.TAG")
    #expect(tag.starts(with: "Signature: 8a477f597d28d172789f06886806bc55".utf8))
    #expect(try Array(Data(contentsOf: URL(filePath: payload))) == Array(Self.new))
  }

  @Test func onlyDurableSetsSynchronize() throws {
    let syncs: Set<SystemCall> = [.fsync, .fdatasync]
    let calls = try systemCalls {
      try store.set(Self.new, forKey: "a", expiry: .days(1))
      try store.set(Self.old, forKey: "a")
      _ = try store.get("a")
      try store.remove("a")
      try store.removeAll()
    }
    #expect(calls.allSatisfy { !syncs.contains($0) })
    // The first one also synchronizes the directories above, which may be new.
    let first = try systemCalls { try store.set(Self.new, forKey: "first", durable: true) }
    // The payload, its subdirectory, the cache's directory, and the name of each directory above.
    let depth = try #require(try store.folderURL).path.split(separator: "/").count
    #expect(first.count { $0 == .fsync } == 3 + depth)
    let durable = try systemCalls { try store.set(Self.new, forKey: "first", durable: true) }
    // First the payload with its times, then the sidecar, then their names.
    #expect(
      durable.filter { syncs.contains($0) || $0 == .exchange }
        == [.fsync, .fdatasync, .exchange, .fsync])
  }

  @Test func theFirstDurableEntryOfEachSubdirectorySynchronizesItsName() throws {
    let synchronized = Locked<[String]>([])
    let plan = FaultPlan(decide: { event in
      if event.call == .fsync { synchronized.withLock { $0.append(event.path) } }
      return .proceed
    })
    func synchronizedNameCount(_ key: String) throws -> Int {
      synchronized.withLock { $0 = [] }
      try FaultPlan.$current.withValue(plan) {
        try store.set(Self.new, forKey: key, durable: true)
      }
      let path = try store.files.paths.directory
      return synchronized.withLock { $0.count { $0 == path } }
    }
    #expect(try synchronizedNameCount("a") == 1 && synchronizedNameCount("a") == 0)
    let other = try #require(
      (1...100).map { "other \($0)" }.first {
        EntryName.directory(of: $0) != EntryName.directory(of: "a")
      })
    #expect(
      try synchronizedNameCount(other) == 1 && synchronizedNameCount(other) == 0
        && synchronizedNameCount("a") == 0)
    // A subdirectory that is created again has a new name to synchronize.
    let path = FileSystem.parent(of: try store.payload("a"))
    try FileSystem.removeTree(path)
    #expect(try synchronizedNameCount("a") == 1)
  }

  /// The system calls of the one of ten rounds that makes the fewest: every few milliseconds a call
  /// also checks whether the directory and the ledger were replaced.
  private func fewest(
    after prepare: () throws -> Void = {}, _ body: () throws -> Void
  ) throws -> [SystemCall] {
    let calls = try (0..<10).map { _ in
      try prepare()
      return try systemCalls(of: body)
    }
    return calls.min { $0.count < $1.count } ?? []
  }

  @Test func aVerifiedEntryIsReadWithThreeCalls() throws {
    try store.set(Self.new, forKey: "k", expiry: .days(1))
    _ = try store.get("k")
    #expect(try fewest { _ = try store.get("k") } == [.open, .stat, .read])
    #expect(try fewest { _ = try store.contains("k") } == [.stat])
    #expect(try fewest { _ = try store.contains("missing") } == [.stat])
    _ = try store.get("missing")
    #expect(try fewest { _ = try store.get("missing") } == [.stat])
    #expect(try fewest { _ = try store.totalSize } == [])
  }

  @Test func aFirstReadMakesOnlyTheseCalls() throws {
    for number in 0..<10 { try directory.cache().set(Self.new, forKey: "k\(number)") }
    let calls = try (0..<10).map { number in
      try systemCalls { _ = try store.get("k\(number)") }
    }
    #expect(calls.min { $0.count < $1.count } == [.stat, .open, .open, .read, .read])
  }

  @Test func aSetMakesOnlyTheseCalls() throws {
    func set() throws { try store.set(Self.new, forKey: "k") }
    try store.set(Self.old, forKey: "k")
    #expect(
      try fewest(after: { try store.remove("k") }, set) == [
        .open, .write, .times, .lock, .open, .read, .stat, .write, .rename, .lock, .publish,
      ])
    #expect(
      try fewest(after: { try store.set(Self.old, forKey: "k") }, set) == [
        .open, .write, .times, .lock, .open, .read, .write, .exchange, .unlink,
      ])
  }

  @Test func readersDoNotWaitForWriters() throws {
    try store.set(Self.old, forKey: "k")
    try store.set("v", forKey: "over", expiry: .seconds(0.01))
    let cache = try #require(try store.files.openCache())
    // A writer of the key holds the lock.
    for key in ["k", "over", "missing"] {
      let name = try EntryName(key: key, rules: cache.rules)
      let entry = try cache.lock(name, timeout: .seconds(1))
      defer { entry.unlock() }
      let calls = try systemCalls { () throws in
        for reader in [store, directory.cache()] {
          _ = try reader.get(key)
          _ = try reader.contains(key)
          _ = try (reader.keys(), reader.count, reader.totalSize)
          #expect(try reader.get("k") == Self.old)
        }
      }
      // Each call tries a few locks once. A reader that waits tries again thousands of times until
      // it times out.
      #expect(calls.count { $0 == .lock } < 100, "\(key)")
    }
  }

  @Test func throwsAfterATimeoutIfAKeyStaysLocked() throws {
    try directory.cache().set(Self.old, forKey: "k")
    let holder = try #require(try directory.cache().files.openCache())
    let name = try EntryName(key: "k", rules: holder.rules)
    let paths = try directory.cache().files.paths
    let waiting = FileCache(paths: paths, timeout: .milliseconds(50)) { _ in }
    let entry = try holder.lock(name, timeout: .seconds(1))
    expectFailure(.timedOut) {
      try waiting.write(
        Payload(bytes: Self.new, kind: .data), forKey: "k",
        WriteOptions(expiry: .never, isDurable: false), hook: commitDirectly)
    }
    entry.unlock()
    #expect(try directory.cache().get("k") == Self.old)
    #expect(try waiting.read("k")?.bytes == Self.old)
  }
}
