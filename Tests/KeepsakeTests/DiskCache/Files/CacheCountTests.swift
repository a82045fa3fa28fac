import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Sizes that the ledger may have wrong, and that the next process to open the cache counts again.
@Suite(.proofThread, .singleThreaded) struct CacheCountTests {
  private static let footprint = 8_192

  private let directory: TemporaryDirectory
  private let store: DiskCache.Store

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    store = directory.cache()
  }

  /// The size of all payloads and their sidecars.
  private func bytesTaken(_ directory: TemporaryDirectory) throws -> Int {
    let root = directory.path + "/caches/standard/"
    let names = try Set(FileManager.default.subpathsOfDirectory(atPath: root))
    return names.filter { names.contains($0 + Sidecar.suffix) }.reduce(0) { sum, name in
      let size = (try? FileSystem.status(root + name)?.size) ?? 0
      return sum + (size + 4_095) / 4_096 * 4_096 + 4_096
    }
  }

  /// Counts again as a process does that opens the cache.
  private func expectCounted(
    _ directory: TemporaryDirectory, missing: Int = 0, _ comment: Comment? = nil
  ) throws {
    let store = directory.cache()
    try store.files.openCache()?.countAgain()
    #expect(try store.totalSize == bytesTaken(directory) + missing, comment)
    // The count that began when the cache was opened may have found this one's.
    try waitUntil("the size is known") {
      try store.files.openCache()?.ledger?.mayBeWrong == false
    }
  }

  private static let noValue = WriteOptions(
    expiry: .after(86_400 * WallClock.second), isDurable: false)

  private static let changes: [(name: String, change: @Sendable (DiskCache.Store) throws -> Void)] =
    [
      ("set", { try $0.set(Data(count: 5_000), forKey: "new") }),
      ("durable set", { try $0.set(Data(count: 5_000), forKey: "k", durable: true) }),
      ("set over", { try $0.set(Data(count: 50_000), forKey: "k", expiry: .days(1)) }),
      ("remove", { try $0.remove("k") }),
      ("no value", { try $0.engine.writeNoValue(forKey: "k", noValue, hook: commitDirectly) }),
    ]

  /// Kills a process before each system call of a change in turn.
  @Test(arguments: changes.indices)
  func theNextProcessCountsWhatAKilledOneDidNot(which: Int) throws {
    for number in 0... {
      try #require(number < 60)
      let directory = try TemporaryDirectory(isQuick: true)
      for key in ["k", "l"] { try directory.cache().set(Data(count: 100), forKey: key) }
      let killed = directory.cache()
      let isKilled = killing(beforeCall: number) { try? Self.changes[which].change(killed) }
      // A record that there is no value has no payload.
      let hasNoValue = try which == 4 && !directory.cache().contains("k")
      try expectCounted(directory, missing: hasNoValue ? 4_096 : 0, "before call \(number)")
      if !isKilled { break }
    }
  }

  /// As on a file system that copies on write, without a free block.
  private func withFullLedger<R>(_ body: () throws -> R) rethrows -> R {
    let plan = FaultPlan(decide: { $0.call == .publish ? .fail(ENOSPC) : .proceed })
    return try FaultPlan.$current.withValue(plan, operation: body)
  }

  @Test func theNextProcessCountsWhatCouldNotBeRecorded() throws {
    for key in ["k", "l"] { try store.set("x", forKey: key) }
    try withFullLedger {
      try store.set(Data(count: 100_000), forKey: "k")
      try store.remove("l")
    }
    try expectCounted(directory)
  }

  /// Also one that only reads.
  @Test(arguments: [true, false])
  func openingCountsInTheBackground(reads: Bool) throws {
    try store.set("x", forKey: "k")
    try withFullLedger { try store.set(Data(count: 100_000), forKey: "k") }
    let ledger = try #require(try store.files.openCacheForWriting().ledger)
    #expect(ledger.mayBeWrong)
    let next = directory.cache()
    if reads { _ = try next.contains("l") } else { try next.set("x", forKey: "l") }
    // Not by `totalSize`, which looks at the files as long as it may be wrong.
    waitUntil("the cache is counted") { !ledger.mayBeWrong }
    #expect(try next.totalSize == bytesTaken(directory))
  }

  @Test func aRecordedChangeLeavesNoMark() throws {
    let ledger = try #require(try store.files.openCacheForWriting().ledger)
    for _ in 0..<2 {
      for (name, change) in Self.changes {
        try change(store)
        #expect(!ledger.mayBeWrong, "\(name)")
      }
      try aSecondAgo { try store.set(1, forKey: "over", expiry: .seconds(0.01)) }
      #expect(try store.get("over") == nil && !ledger.mayBeWrong)
    }
  }

  /// Removing what has expired would hide it from `removeExpired`.
  @Test func countingRemovesNothing() throws {
    try aSecondAgo { try store.set(1, forKey: "over", expiry: .seconds(0.01)) }
    let before = try FileManager.default.subpathsOfDirectory(atPath: directory.path).sorted()
    let cache = try store.files.openCacheForWriting()
    try cache.ledger?.beginChange(in: EntryName.directory(of: "over"))
    try cache.countAgain()
    #expect(try FileManager.default.subpathsOfDirectory(atPath: directory.path).sorted() == before)
    #expect(try store.removeExpired() == 1)
  }

  @Test func anUnknownSizeBecomesKnown() throws {
    try store.set("x", forKey: "k")
    let cache = try store.files.openCacheForWriting()
    let ledger = try #require(cache.ledger)
    let (directory, size) = (EntryName.directory(of: "k"), ledger.totalSize.bytes)
    for _ in 0..<3 {
      try ledger.beginChange(in: directory)
      try ledger.endChange(in: directory, adding: nil, since: cache.epoch)
      #expect(!ledger.totalSize.isKnown)
      try cache.countAgain()
      #expect(ledger.totalSize == (size, true))
    }
  }

  private static let failingChanges: [@Sendable (DiskCache.Store) throws -> Void] = [
    { try $0.set(Data(count: 5_000), forKey: "k") }, { try $0.remove("k") },
  ]

  /// Not only by the next process.
  @Test(arguments: failingChanges.indices)
  func aChangeThatFailsIsCountedAgain(which: Int) throws {
    try store.set("x", forKey: "k")
    let ledger = try #require(try store.files.openCacheForWriting().ledger)
    let plan = FaultPlan(decide: { [.exchange, .unlink].contains($0.call) ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.system(EIO)) { try Self.failingChanges[which](store) }
    }
    #expect(ledger.mayBeWrong)
    try store.set("x", forKey: "l")
    waitUntil("the cache is counted") { !ledger.mayBeWrong }
    #expect(try store.totalSize == bytesTaken(directory))
  }

  /// As it is where the ledger cannot be changed: each set would count again.
  @Test func aFailedCountIsNotTriedAgainForASecond() throws {
    try store.set("x", forKey: "k")
    let path = FileSystem.parent(of: try store.payload("k"))
    let attempts = Locked(0)
    let plan = FaultPlan { event in
      if event.call == .publish { return .fail(ENOSPC) }
      guard event.call == .list, event.path == path else { return .proceed }
      _ = attempts.increment()
      return .fail(EIO)
    }
    let now = WallClock.now
    var size = 0
    func set() throws {
      size = 10_000 - size
      try store.set(Data(count: size), forKey: "k")
    }
    try FaultPlan.$current.withValue(plan) {
      for time in [now, now + WallClock.second] {
        try WallClock.$fixed.withValue(time) {
          let before = attempts.withLock { $0 }
          // A job of the second before may take the first set's for its own.
          try waitUntil("the count has failed") {
            try set()
            return attempts.withLock { $0 } > before
          }
          let found = attempts.withLock { $0 }
          for _ in 0..<500 { try set() }
          // Jobs begin in order.
          let hasBegun = ThreadGate()
          BackgroundWork.run { hasBegun.open() }
          hasBegun.wait()
          #expect(attempts.withLock { $0 } == found)
        }
      }
    }
    try expectCounted(directory)
  }

  @Test func aRecordThatCannotBeReadIsCounted() throws {
    try store.set("x", forKey: "k")
    let key = neighbors(of: "k", 1)[0]
    try store.engine.writeNoValue(forKey: key, Self.noValue, hook: commitDirectly)
    let cache = try store.files.openCacheForWriting()
    let ledger = try #require(cache.ledger)
    let size = ledger.totalSize
    try ledger.beginChange(in: EntryName.directory(of: key))
    let name = try EntryName(key: key, rules: cache.rules)
    let path = cache.directory.path(of: name.sidecarPath)
    let plan = FaultPlan(decide: { $0.call == .open && $0.path == path ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) {
      let error = expectFailure(.system(EIO)) { try cache.countAgain() }
      #expect(error?.path == path)
    }
    #expect(!ledger.mayBeWrong && ledger.totalSize == size)
  }

  @Test func theLimitHoldsAgainAfterWhatCouldNotBeRecorded() throws {
    for number in 0..<10 { try store.set("x", forKey: "k\(number)") }
    try withFullLedger {
      for number in 10..<30 { try store.set("x", forKey: "k\(number)") }
    }
    let next = directory.cache()
    next.sizeLimit = 10 * Self.footprint
    try next.set("x", forKey: "last")
    try waitUntil("entries are evicted") { try next.keys().count <= 10 }
    #expect(try next.contains("last"))
  }

  /// A name in the subdirectory of another one.
  private func neighbors(of key: String, _ count: Int) -> [String] {
    let directory = EntryName.directory(of: key)
    var names: [String] = []
    for number in 0... {
      if names.count == count { break }
      if EntryName.directory(of: "n\(number)") == directory { names.append("n\(number)") }
    }
    return names
  }

  /// A process that has opened the cache, and whose writes hardly wait.
  private func makeBusyWriter() throws -> FileCache {
    let writer = FileCache(paths: try store.files.paths, timeout: .milliseconds(50)) { _ in }
    _ = try writer.openCacheForWriting()
    return writer
  }

  /// Runs `body`; each time that it is about to list the subdirectory of a key, `writer` writes
  /// another entry there, unless it has to wait for that.
  ///
  /// - Returns: Whether each of them was written.
  private func withBusyWriter(
    _ writer: FileCache, besides key: String, _ body: () throws -> Void
  ) throws -> [Bool] {
    let names = Locked(neighbors(of: key, 20))
    let outcomes = Locked<[Bool]>([])
    let path = FileSystem.parent(of: try store.payload(key))
    let payload = Payload(bytes: Data(count: 100), kind: .data)
    let isListing = Locked(false)
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, _ in
        let isList = event.call == .list && event.path == path
        let wasListing = isListing.withLock { isListing in
          defer { isListing = isList }
          return isListing
        }
        if !isList || wasListing { return }
        let name = names.withLock { $0.removeLast() }
        let isWritten = FaultPlan.$current.withValue(nil) {
          (try? writer.write(
            payload, forKey: name, WriteOptions(expiry: .never, isDurable: false),
            hook: commitDirectly)) != nil
        }
        outcomes.withLock { $0.append(isWritten) }
      })
    try FaultPlan.$current.withValue(plan, operation: body)
    return outcomes.withLock { $0 }
  }

  /// The writer waits for the last count.
  @Test func aSweepCountsBesideABusyWriter() throws {
    for key in ["k"] + neighbors(of: "k", 3) { try store.set("x", forKey: key) }
    // A system cleaner does not tell the ledger.
    for key in neighbors(of: "k", 3) {
      let payload = try store.payload(key)
      try FileSystem.unlink(payload)
      try FileSystem.unlink(payload + Sidecar.suffix)
    }
    let outcomes = try withBusyWriter(makeBusyWriter(), besides: "k") { try store.removeExpired() }
    #expect(outcomes == [true, true, true, false])
    #expect(try store.totalSize == bytesTaken(directory))
    #expect(try directory.cache().totalSize == bytesTaken(directory))
  }

  @Test func aCountBesideABusyWriterIsRight() throws {
    try store.set("x", forKey: "k")
    let cache = try store.files.openCacheForWriting()
    let ledger = try #require(cache.ledger)
    // Before the mark is made: opening a marked cache counts it.
    let writer = try makeBusyWriter()
    try withFullLedger { try store.set(Data(count: 100_000), forKey: "k") }
    let outcomes = try withBusyWriter(writer, besides: "k") { try cache.countAgain() }
    #expect(outcomes == [true, true, false] && !ledger.mayBeWrong)
    #expect(try store.totalSize == bytesTaken(directory))
  }

  /// A scan whose count cannot be finished leaves its mark to the next process.
  @Test func aSweepThatCannotCountLeavesAMark() throws {
    for key in ["k"] + neighbors(of: "k", 1) { try store.set("x", forKey: key) }
    let payload = try store.payload(neighbors(of: "k", 1)[0])
    try FileSystem.unlink(payload)
    try FileSystem.unlink(payload + Sidecar.suffix)
    let path = FileSystem.parent(of: payload)
    let other = directory.cache()
    let late = try #require(neighbors(of: "k", 2).last)
    let isListing = Locked(false)
    let listings = Locked(0)
    let plan = FaultPlan(decide: { event in
      let isList = event.call == .list && event.path == path
      let wasListing = isListing.withLock { isListing in
        defer { isListing = isList }
        return isListing
      }
      if !isList || wasListing { return .proceed }
      if listings.increment() > 1 { return .fail(EIO) }
      FaultPlan.$current.withValue(nil) {
        #expect(throws: Never.self) { try other.set("x", forKey: late) }
      }
      return .proceed
    })
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.system(EIO)) { try store.removeExpired() }
    }
    #expect(try store.files.openCache()?.ledger?.mayBeWrong == true)
    try expectCounted(directory)
  }
}
