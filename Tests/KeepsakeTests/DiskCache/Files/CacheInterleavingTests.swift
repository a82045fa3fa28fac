import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Changes by another store between two system calls of a read, write, sweep or eviction.
@Suite(.proofThread) struct CacheInterleavingTests {
  private let directory: TemporaryDirectory
  private let value = Data(count: 4_000)  // 8,192 bytes on disk

  init() throws { directory = try TemporaryDirectory() }

  /// Runs `action` once, before the first call that `condition` picks.
  private func interrupting(
    _ condition: @escaping @Sendable (SystemCallEvent) -> Bool,
    _ action: @escaping @Sendable () throws -> Void
  ) -> FaultPlan {
    let isDone = Locked(false)
    // The action's own calls are not interrupted.
    return FaultPlan(decide: { event in
      let isNow = isDone.withLock { isDone in
        if isDone || !condition(event) { return false }
        isDone = true
        return true
      }
      if isNow {
        FaultPlan.$current.withValue(nil) { #expect(throws: Never.self) { try action() } }
      }
      return .proceed
    })
  }

  /// Picks the call with which a writer that has published its payload begins to add its size.
  private func isAboutToAddSize() -> @Sendable (SystemCallEvent) -> Bool {
    let isMoved = Locked(false)
    return { event in
      isMoved.withLock { isMoved in
        if event.call == .exchange || event.call == .rename { isMoved = true }
        return isMoved && event.call == .lock
      }
    }
  }

  @Test func anEntryReplacedAfterItWasFoundExpiredIsKept() throws {
    let (store, other) = (directory.cache(), directory.cache())
    try aSecondAgo { try store.set("old", forKey: "k", expiry: .seconds(0.01)) }
    let rewrite: @Sendable () throws -> Void = { try other.set("new", forKey: "k") }
    let plan = interrupting({ $0.call == .lock }, rewrite)
    #expect(try FaultPlan.$current.withValue(plan) { try store.get("k") } == nil)
    for reader in [store, other, directory.cache()] { #expect(try reader.model("k") == "new") }
  }

  /// Runs `body` on another thread, and returns once it has ended or waits for a lock.
  private static func start(_ body: @escaping @Sendable () -> Void) {
    let isHeldUp = ThreadGate()
    let takenPaths = Locked<Set<String>>([])
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, result in
        guard event.call == .lock, case .failure = result else { return }
        // The first attempt may be one that does not wait.
        let isFirst = takenPaths.withLock { $0.insert(event.path).inserted }
        if !isFirst { isHeldUp.open() }
      })
    Thread.detachNewThread {
      FaultPlan.$current.withValue(plan, operation: body)
      isHeldUp.open()
    }
    isHeldUp.wait()
  }

  @Test func aSweepWaitsForWritersThatHaveNotAddedTheirSize() throws {
    let (store, other) = (directory.cache(), directory.cache())
    try store.set(value, forKey: "k")
    let isSwept = ThreadGate()
    let plan = interrupting(isAboutToAddSize()) {
      Self.start {
        _ = try? other.removeExpired()
        isSwept.open()
      }
    }
    try FaultPlan.$current.withValue(plan) { try store.set(Data(count: 100_000), forKey: "k") }
    isSwept.wait()
    #expect(try store.totalSize == 102_400 + 4_096)
  }

  private static let operations: [@Sendable (DiskCache.Store) throws -> Void] = [
    { try $0.set(Data(count: 100_000), forKey: "k") },
    { try $0.set(Data(count: 100_000), forKey: "new", durable: true) },
    { try $0.remove("k") },
    { _ = try $0.removeExpired() },
    {
      // The cache exceeds the limit by so much that the set itself evicts.
      $0.sizeLimit = 40_000
      try $0.set(Data(count: 30_000), forKey: "new")
    },
    { try $0.removeAll() },
  ]

  /// Another store empties the cache and sets entries before each system call in turn.
  @Test(arguments: operations.indices)
  func totalSizeIsRightWheneverTheCacheIsEmptied(which: Int) throws {
    for number in 0... {
      try #require(number < 400)
      let directory = try TemporaryDirectory(isQuick: true)
      let (store, other) = (directory.cache(), directory.cache())
      for key in ["k", "l", "m"] { try store.set(value, forKey: key) }
      try other.set(value, forKey: "l")
      let count = Locked(0)
      let isDone = ThreadGate()
      let isDue: @Sendable (SystemCallEvent) -> Bool = { _ in
        count.withLock { count in
          count += 1
          return count > number
        }
      }
      let plan = interrupting(isDue) { [value] in
        Self.start {
          #expect(throws: Never.self) {
            try other.removeAll()
            for key in ["k", "l"] { try other.set(value, forKey: key) }
          }
          isDone.open()
        }
      }
      try FaultPlan.$current.withValue(plan) { try Self.operations[which](store) }
      // An eviction in the background may begin late; without a limit it does nothing. Once this
      // lock is available, one that has begun has ended.
      store.sizeLimit = nil
      let hasEnded = try store.files.eviction.lock.withLock(timeout: .seconds(600)) { _ in true }
      try #require(hasEnded == true)
      if count.withLock({ $0 }) <= number { return }
      isDone.wait()
      let comment: Comment = "before call \(number)"
      // Before a call looks at the files because the ledger does not know.
      if let ledger = try store.files.openCache()?.ledger, !ledger.mayBeWrong {
        #expect(try ledger.totalSize.bytes == footprint(store), comment)
      }
      #expect(try store.totalSize == footprint(store), comment)
      #expect(try directory.cache().totalSize == store.totalSize, comment)
    }
  }

  /// The size of all entries on disk, according to their files.
  private func footprint(_ store: DiskCache.Store) throws -> Int {
    try store.keys().reduce(0) { sum, key in
      let size = try #require(try store.entry(key)).size
      let cache = try #require(try store.files.openCache())
      return sum + cache.footprint(size: size, sidecar: Sidecar.headerSize + key.utf8.count)
    }
  }

  @Test func aKeyLockExcludesOtherThreadsOfTheSameStore() throws {
    let cache = try directory.cache().files.openCacheForWriting()
    let name = try EntryName(key: "k", rules: cache.rules)
    let code = Locked<StorageError.Code?>(nil)
    let outcome = try cache.withKeyLock(name, timeout: .seconds(1)) {
      (_) throws(StorageError) -> DispatchTimeoutResult in
      // A file lock alone would not do, because all threads of a process share it.
      let isDone = DispatchSemaphore(value: 0)
      Thread.detachNewThread {
        do throws(StorageError) {
          _ = try cache.withKeyLock(name, timeout: .milliseconds(50)) { _ in }
        } catch {
          code.withLock { $0 = error.code }
        }
        isDone.signal()
      }
      return isDone.wait(timeout: .now() + 600)
    }
    #expect(outcome == .success)
    #expect(code.withLock { $0 } == .timedOut)
  }

  /// A process that has looked a moment ago would otherwise still read the directory that has just
  /// been moved away, after another one has found it gone.
  @Test func oldEntriesAreNotReadOnceTheCacheIsMovedAway() throws {
    for _ in 0..<5 {
      let (store, other) = (directory.cache(), directory.cache())
      try store.set(value, forKey: "k")
      #expect(try other.get("k") == value)
      let found = Locked<[Data?]>([])
      let plan = FaultPlan(
        decide: { _ in .proceed },
        observe: { event, _ in
          guard event.call == .rename else { return }
          FaultPlan.$current.withValue(nil) {
            found.withLock { $0.append(try? other.get("k")) }
          }
        })
      _ = try other.contains("k")
      try FaultPlan.$current.withValue(plan) { try store.removeAll() }
      #expect(found.withLock { $0 } == [nil])
    }
  }

  @Test func noticesAnEmptiedCacheAtOnce() throws {
    let (store, other) = (directory.cache(), directory.cache())
    // Repeated, because it is also noticed if the coarse clock ticks between the two calls.
    for number in 0..<20 {
      try store.set(number, forKey: "k")
      try other.removeAll()
      #expect(try store.model("k", type: Int.self) == nil)
      try store.set(number, forKey: "k")
      try other.removeAll()
      try store.set(number, forKey: "new")
      #expect(try other.model("new") == number)
    }
  }

  /// A reader has opened a cache of which a killed process had made the directory, but no ledger.
  @Test func noticesAtOnceThatACacheOpenedWithoutALedgerIsEmptied() throws {
    // Each round takes less than a tick of the clock after which files are compared in any case.
    for round in 0..<50 {
      let name = DiskCache.Name("\(round)", in: directory.url)
      let (reader, writer) = (directory.cache(name), directory.cache(name))
      try FileManager.default.createDirectory(
        atPath: directory.path + "/\(round)", withIntermediateDirectories: false)
      #expect(try reader.get("k") == nil)
      try writer.set(value, forKey: "k")
      try writer.removeAll()
      #expect(try reader.get("k") == nil, "round \(round)")
    }
  }

  @Test func readersDoNotWaitForAStoppedHolderOfTheLedgersLock() throws {
    try directory.cache().set(value, forKey: "k")
    try directory.cache().set(value, forKey: "over", expiry: .minutes(1))
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    try ledger.file.lock(bytes: CacheLedger.Byte.words, Wait(timeout: .seconds(1)))
    let reader = directory.cache()
    let calls = try systemCalls { () throws in
      for _ in 0..<3 { #expect(try reader.get("k") == value) }
    }
    #expect(calls.count { $0 == .lock } == 1)  // of the byte of this process
    // Calls that would change the ledger if they could: its time is old, and an entry has expired.
    let later = try anHourLater {
      try systemCalls { () throws in
        #expect(try reader.keys() == ["k"])
        #expect(try reader.count == 1)
        #expect(try reader.totalSize == footprint(reader))
      }
    }
    // A reader that waits tries again until it times out.
    #expect(later.count { $0 == .lock } < 100)
    ledger.file.unlock(bytes: CacheLedger.Byte.words)
    try reader.set(value, forKey: "l")
    #expect(try reader.totalSize == footprint(reader))
  }

  /// Nor do writers whose entries take no more space than before.
  @Test func openingACacheDoesNotWaitForAStoppedHolderOfTheLedgersLock() throws {
    try directory.cache().set(value, forKey: "k")
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    try ledger.file.lock(bytes: CacheLedger.Byte.words, Wait(timeout: .seconds(1)))
    defer { ledger.file.unlock(bytes: CacheLedger.Byte.words) }
    let writer = directory.cache()
    // In the ten seconds until it times out, it would try thousands of times.
    let calls = try systemCalls { try writer.set(Data(value.reversed()), forKey: "k") }
    #expect(calls.count { $0 == .lock } == 2)  // the byte of this process, and that of the key
    #expect(try writer.get("k") == value)
    // The ledger is to record the later time.
    try anHourLater { try directory.cache().set(value, forKey: "k") }
  }

  /// On a busy machine, a microsecond of another process may take that long.
  @Test func removingExpiredEntriesWaitsForTheLedgersLock() throws {
    let store = directory.cache()
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    // A call that is held up for as long as its timeout fails.
    try waitUntil("it does not wait long enough") {
      try store.set(value, forKey: "k", expiry: .minutes(1))
      try ledger.file.lock(bytes: CacheLedger.Byte.words, Wait(timeout: .seconds(1)))
      let start = ContinuousClock.now
      // The holder lets go while the call tries again and again.
      let plan = FaultPlan(decide: { event in
        if event.call == .lock, ContinuousClock.now - start > .milliseconds(400) {
          ledger.file.unlock(bytes: CacheLedger.Byte.words)
        }
        return .proceed
      })
      do {
        try FaultPlan.$current.withValue(plan) {
          try anHourLater { () throws in #expect(try store.removeExpired() == 1) }
        }
        return true
      } catch let error as StorageError where error.code == .timedOut {
        ledger.file.unlock(bytes: CacheLedger.Byte.words)
        return false
      }
    }
  }

  /// What cannot be recorded is marked, and found by looking at the entries.
  @Test func writersDoNotWaitForAStoppedHolderOfTheLedgersLock() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    try ledger.file.lock(bytes: CacheLedger.Byte.words, Wait(timeout: .seconds(1)))
    try store.set(value, forKey: "l")
    try store.set(value, forKey: "short-lived", expiry: .minutes(1))
    #expect(try store.totalSize == 3 * 8_192)
    try anHourLater { () throws in #expect(try Set(store.keys()) == ["k", "l"]) }
    ledger.file.unlock(bytes: CacheLedger.Byte.words)
    // The next write begins a count, unless the one that waited for the lock goes on now.
    try waitUntil("the entries are counted") {
      try store.set(value, forKey: "k")
      return !ledger.mayBeWrong
    }
    let size = ledger.totalSize
    #expect(size.bytes == 3 * 8_192 && size.isKnown)
    try anHourLater { () throws in
      #expect(try Set(store.keys()) == ["k", "l"])
      #expect(try store.removeExpired() == 1)
    }
  }

  @Test(arguments: [true, false])
  func anEntryUsedOrWrittenAfterItWasChosenIsNotEvicted(isUsed: Bool) throws {
    // As if the entries were stored an hour ago, because uses are recorded only after ten minutes.
    let hour = WallClock.now - 3_600 * WallClock.second
    var paths: [String] = []
    for number in 0..<10 {
      try directory.cache().set(value, forKey: "k\(number)")
      let path = try directory.cache().sidecar("k\(number)")
      paths.append(path)
      var sidecar = try Sidecar(Array(Data(contentsOf: URL(filePath: path))))
      sidecar.created = hour
      let file = try File(path, .readWrite)
      try sidecar.write(key: "k\(number)", to: file)
      let time = hour + Int64(number) * WallClock.second
      try file.setTimes(accessed: time, modified: time)
    }
    let (store, other) = (directory.cache(), directory.cache())
    let oldest = paths[0]
    let isSeen = Locked(false)
    let isChosen: @Sendable (SystemCallEvent) -> Bool = { event in
      isSeen.withLock { isSeen in
        if isSeen { return true }
        isSeen = event.call == .stat && event.path == oldest
        return false
      }
    }
    let plan = interrupting(isChosen) {
      if isUsed { _ = try other.get("k0") } else { try other.set(value, forKey: "k0") }
    }
    FaultPlan.$current.withValue(plan) { store.sizeLimit = 8 * 8_192 }
    try waitUntil("three entries are evicted") { try store.totalSize <= 7 * 8_192 }
    #expect(try Set(store.keys()) == ["k0", "k4", "k5", "k6", "k7", "k8", "k9"])
  }

  /// All stores of the process share the threads for work in the background.
  @Test func setsQueueASweepThatIsDueOnce() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let ledger = try #require(try store.files.openCacheForWriting().ledger)
    let path = try store.files.paths.directory
    let listings = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .list, event.path == path { _ = listings.increment() }
      return .proceed
    })
    // One of the four threads runs all jobs, one after the other.
    let (isQueued, hasEnded) = (ThreadGate(), ThreadGate())
    for gate in [hasEnded, hasEnded, hasEnded, isQueued] { BackgroundWork.run { gate.wait() } }
    let later = WallClock.now + 2 * 86_400 * WallClock.second
    try WallClock.$fixed.withValue(later) {
      try FaultPlan.$current.withValue(plan) {
        for _ in 0..<100 { try store.set(value, forKey: "k") }
      }
    }
    BackgroundWork.run { hasEnded.open() }
    isQueued.open()
    hasEnded.wait()
    #expect(ledger.lastSweep == later)
    #expect((1..<50).contains(listings.withLock { $0 }))
  }

  @Test func aLimitLoweredDuringAnEvictionIsKept() throws {
    let store = directory.cache()
    for number in 0..<20 { try store.set(value, forKey: "k\(number)") }
    let hasBegun = ThreadGate()
    let lower: @Sendable () -> Void = {
      store.sizeLimit = 5 * 8_192
      // Jobs begin in order: by then the second eviction has, and finds the first one running.
      BackgroundWork.run { hasBegun.open() }
      hasBegun.wait()
    }
    let plan = interrupting({ $0.call == .list }, lower)
    FaultPlan.$current.withValue(plan) { store.sizeLimit = 19 * 8_192 }
    try waitUntil("the second limit is kept") { try store.totalSize <= 5 * 8_192 }
  }

  /// An eviction of many entries takes long, and another process may have stopped with a lock.
  @Test func aSetDoesNotWaitForAnEvictionOrALock() throws {
    let failures = Failures()
    let (store, other) = (directory.cache(failures: failures), directory.cache())
    for number in 0..<20 { try store.set(value, forKey: "k\(number)") }
    let cache = try other.files.openCacheForWriting()
    // The oldest entry, which another process has locked, stays.
    let (open, locked) = (try store.files.openCache(), try EntryName(key: "k0", rules: cache.rules))
    _ = try cache.withKeyLock(locked, timeout: .seconds(600)) { _ throws(StorageError) in
      try open?.evict { 15 * 8_192 }
    }
    #expect(try store.contains("k0") && store.totalSize <= 15 * 8_192)
    let (hasBegun, mayGoOn) = (ThreadGate(), ThreadGate())
    let pause: @Sendable () -> Void = {
      hasBegun.open()
      mayGoOn.wait()
    }
    let size = try store.totalSize
    FaultPlan.$current.withValue(interrupting({ $0.call == .unlink }, pause)) {
      store.sizeLimit = 5 * 8_192
    }
    hasBegun.wait()
    try store.set(value, forKey: "new")
    #expect(try store.totalSize == size - 8_192, "it removes twice as much as it adds")
    mayGoOn.open()
    try waitUntil("the eviction goes on") { try store.totalSize <= 5 * 8_192 }
    #expect(failures.all.isEmpty)
  }

  @Test func aWriterKeepsItsPiecesWhenTheCacheIsEmptied() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let name = try EntryName(key: "k", rules: store.files.openCacheForWriting().rules)
    let writer = try store.engine.startWriting("k")
    let pieces = Array("pieces".utf8)
    try pieces.withUnsafeBytes { try writer.append($0) }
    try store.removeAll()
    let cache = try directory.cache().files.openCacheForWriting()
    try waitUntil("the pieces are deleted") { try cache.trash().isEmpty }
    // The writer opens the cache again; its file still has the token of the first time.
    try writer.finish(WriteOptions(expiry: .never, isDurable: false)) {
      commit throws(StorageError) in
      try cache.removeAbandonedFiles(
        cache.fileNames(inSubdirectory: name.directory), inSubdirectory: name.directory)
      try commit()
    }
    #expect(try store.get("k") == Data(pieces))
    #expect(try cache.fileNames(inSubdirectory: name.directory).count == 2)
  }

  /// The pieces are written again after the cache was emptied, from a file that was cut meanwhile.
  @Test func aWriterChecksItsPieces() throws {
    let store = directory.cache()
    let writer = try store.engine.startWriting("k")
    try Array("pieces".utf8).withUnsafeBytes { try writer.append($0) }
    let cache = try store.files.openCacheForWriting()
    let name = try EntryName(key: "k", rules: cache.rules)
    let temporary = try #require(cache.fileNames(inSubdirectory: name.directory).first)
    try #require(
      truncate(
        cache.directory.path(of: EntryName.directoryName(name.directory) + "/" + temporary), 3) == 0
    )
    try store.removeAll()
    expectFailure(.system(EIO)) {
      try writer.finish(WriteOptions(expiry: .never, isDurable: false)) {
        commit throws(StorageError) in try commit()
      }
    }
    #expect(try store.get("k") == nil)
  }

  /// A program may close all descriptors, as a daemon does.
  @Test func aWriterFinishesAlthoughItsDirectoryWasClosed() throws {
    let store = directory.cache()
    let writer = try store.engine.startWriting("k")
    let pieces = Array("pieces".utf8)
    try pieces.withUnsafeBytes { try writer.append($0) }
    close(try store.files.openCacheForWriting().directory.descriptor)
    try writer.finish(WriteOptions(expiry: .never, isDurable: false)) {
      commit throws(StorageError) in try commit()
    }
    #expect(try store.get("k") == Data(pieces))
  }

  private func record(_ expiry: Int64, in ledger: CacheLedger) throws {
    try ledger.beginChange(in: 7)
    try ledger.endChange(in: 7, adding: 0, expires: expiry, since: ledger.epoch)
  }

  @Test func aScanKeepsTheExpiryOfAnEntryStoredDuringAnotherScan() throws {
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    try record(1_000_000, in: ledger)
    // The entry is removed before the first scan lists the directory. After that, another one is
    // stored that expires at the same time, as with a date. A second scan starts and ends in the
    // meantime.
    let first = try ledger.beginScan(of: 7)
    try record(1_000_000, in: ledger)
    let second = try ledger.beginScan(of: 7)
    for (start, found) in [(second, Int64(1_000_000)), (first, .max)] {
      try ledger.endScan(of: 7, earliestExpiry: found, start: start, since: ledger.epoch)
    }
    #expect(ledger.earliestExpiry(in: 7) == 1_000_000)
  }

  @Test func aScanKeepsTheExpiryOfAnEntryStoredDuringIt() throws {
    let ledger = try #require(try directory.cache().files.openCacheForWriting().ledger)
    func end(_ start: UInt64, found: Int64) throws {
      try ledger.endScan(of: 7, earliestExpiry: found, start: start, since: ledger.epoch)
    }
    // The expiry that the scan replaces is earlier than the expiry of the entry stored during the
    // scan.
    try record(1_000_000, in: ledger)
    let start = try ledger.beginScan(of: 7)
    try record(2_000_000, in: ledger)
    try end(start, found: .max)
    #expect(ledger.earliestExpiry(in: 7) == 2_000_000)
    // A second scan, which has found more, ends before the first one.
    let first = try ledger.beginScan(of: 7)
    try record(1_000_000, in: ledger)
    let second = try ledger.beginScan(of: 7)
    try end(second, found: 1_000_000)
    try end(first, found: .max)
    #expect(ledger.earliestExpiry(in: 7) == 1_000_000)
  }
}
