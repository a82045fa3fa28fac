import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct ExpiryTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test func totalSizeIsRightAfterTheClockIsSetBack() throws {
    let store = directory.cache()
    for number in 0..<5 { try store.set(Data(count: 3_000), forKey: "k\(number)") }
    let size = try store.totalSize
    #expect(size == 5 * 8_192)
    try after(seconds: -2 * 86_400) { () throws in
      #expect(try store.totalSize == size)
      try store.removeExpired()
      #expect(try store.totalSize == size && directory.cache().totalSize == size)
    }
  }

  @Test func aClockPastTheLastTimeThatFitsIsHandled() throws {
    let store = directory.cache()
    try store.set("old", forKey: "old", expiry: .days(1))
    // In the year 2262.
    try WallClock.$fixed.withValue(.max) {
      for number in 0..<8 { try store.set(number, forKey: "k\(number)", expiry: .never) }
      try store.set("late", forKey: "late", expiry: .days(1))
      let next = directory.cache()
      _ = try next.removeExpired()
      #expect(try next.model("k1") == 1 && !next.keys().contains("old") && next.totalSize > 0)
    }
    #expect(try directory.cache().model("k1") == 1)
    #expect(try directory.cache().totalSize > 0)
  }

  /// Makes an entry older by moving all its times, as if the clock had advanced.
  private func age(_ key: String, by seconds: Int64) throws {
    let store = directory.cache()
    let (payload, path) = (try store.payload(key), try store.sidecar(key))
    let shift = seconds * WallClock.second
    var sidecar = try Sidecar(Bytes.read(path))
    sidecar.created -= shift
    sidecar.modified -= shift
    if case .at(let time) = sidecar.expiry { sidecar.expiry = .at(time - shift) }
    let times = try #require(try FileSystem.status(payload, withTimes: true))
    let used = try #require(try FileSystem.status(path, withTimes: true)).modified
    try File(payload, .readWrite).setTimes(
      accessed: times.accessed - shift, modified: times.modified - shift)
    let file = try File(path, .readWrite)
    try sidecar.write(key: key, to: file)
    try file.setTimes(accessed: used - shift, modified: used - shift)
    // The ledger has the times from before.
    try store.files.openCache()?.ledger?.invalidate()
  }

  /// Whether each call finds the entry.
  private func found(_ key: String, _ store: DiskCache.Store) throws -> [Bool] {
    [
      try store.contains(key), try store.entry(key) != nil, try store.fileURL(key) != nil,
      try store.keys().contains(key), try store.get(key) != nil, try store.totalSize > 0,
    ]
  }

  private let allFound = Array(repeating: true, count: 6)
  private let noneFound = Array(repeating: false, count: 6)

  @Test(arguments: [
    DiskCache.Expiry.seconds(0), .seconds(-1), .minutes(-0.0), .hours(-.infinity), .days(.nan),
    .idle(.seconds(0)), .idle(.days(-1)), .idle(.days(Int.min)), .date(.distantPast), .date(.now),
    .date(Date(timeIntervalSince1970: -.infinity)), .date(Date(timeIntervalSince1970: .nan)),
    .after(.zero), .after(.seconds(Int64.min)), .idle(.nanoseconds(-1)),
    .after(.nanoseconds(0.4)), .after(.seconds(Int64.min) * 9), .seconds(Int64.min),
  ])
  func expiryInThePastRemovesTheEntry(expiry: DiskCache.Expiry) throws {
    let store = directory.cache()
    try store.set("old", forKey: "k")
    try store.set("new", forKey: "k", expiry: expiry)
    #expect(try found("k", store) == noneFound)
    try store.set("new", forKey: "other", expiry: expiry)
    #expect(try store.keys() == [])
  }

  @Test(arguments: [
    DiskCache.Expiry.never, .seconds(.infinity), .days(1e300), .hours(.greatestFiniteMagnitude),
    .idle(.days(Int.max)), .idle(.minutes(UInt64.max)), .date(.distantFuture),
    .date(Date(timeIntervalSince1970: .infinity)), .after(.seconds(Int64.max)),
    .after(.seconds(Int64.max) * 9), .idle(.seconds(Int64.max) * 9), .days(Int64.max),
  ])
  func expiryTooLongToCountNeverComes(expiry: DiskCache.Expiry) throws {
    let store = directory.cache()
    try store.set("v", forKey: "k", expiry: expiry)
    #expect(try store.entry("k")?.expires == nil)
    try age("k", by: 100 * 365 * 86_400)
    #expect(try found("k", directory.cache()) == allFound)
    #expect(try directory.cache().removeExpired() == 0)
  }

  @Test(arguments: [
    (DiskCache.Expiry.seconds(90), 90.0), (.minutes(1.5), 90), (.hours(2), 7_200),
    (.days(7), 604_800), (.idle(.seconds(90)), 90), (.idle(.minutes(30)), 1_800),
    (.idle(.hours(2)), 7_200), (.idle(.days(1)), 86_400),
    (.after(.milliseconds(90_500)), 90.5), (.after(.minutes(2)), 120),
  ])
  func expiredEntryIsMissingForAllCalls(expiry: DiskCache.Expiry, seconds: Double) throws {
    try expectExpired(expiry, after: seconds)
  }

  @Test func entryThatExpiresAtADateIsMissingForAllCalls() throws {
    try expectExpired(.date(.now + 3_600), after: 3_600)
  }

  private func expectExpired(_ expiry: DiskCache.Expiry, after seconds: Double) throws {
    let before = Date.now
    try directory.cache().set("v", forKey: "k", expiry: expiry)
    let after = Date.now
    let entry = try #require(try directory.cache().entry("k"))
    let expires = try #require(entry.expires)
    #expect((before + seconds - 1...after + seconds + 1).contains(expires))
    #expect((before - 1...after + 1).contains(entry.created))
    #expect(entry.size == 1)

    try age("k", by: Int64(seconds) / 2)
    #expect(try found("k", directory.cache()) == allFound)
    // An idle entry was just used, so it expires its full time later.
    if case .idle = expiry.rule {
      try age("k", by: Int64(seconds))
    } else {
      try age("k", by: Int64(seconds) / 2 + 1)
    }
    // Here totalSize is the first call that finds the entry expired.
    #expect(try directory.cache().totalSize == 0)
    #expect(try found("k", directory.cache()) == noneFound)
  }

  @Test(arguments: 0..<5)
  func eachCallAloneFindsThatAnEntryHasExpired(call: Int) throws {
    try directory.cache().set("v", forKey: "k", expiry: .days(7))
    try age("k", by: 8 * 86_400)
    let store = directory.cache()
    switch call {
    case 0: #expect(try store.get("k") == nil)
    case 1: #expect(try store.contains("k") == false)
    case 2: #expect(try store.fileURL("k") == nil)
    case 3: #expect(try store.keys() == [])
    default: #expect(try store.removeExpired() == 1)
    }
    #expect(try directory.cache().totalSize == 0)
  }

  @Test func entryExpiresWhileItIsInUse() throws {
    let store = directory.cache()
    try store.set("v", forKey: "k", expiry: .minutes(10))
    try store.set("v", forKey: "date", expiry: .date(.now.addingTimeInterval(600)))
    #expect(try store.get("k") != nil && store.get("date") != nil)
    try after(seconds: 601) { () throws in
      #expect(try found("k", store) == noneFound)
      #expect(try found("date", store) == noneFound)
    }
    #expect(store.statistics.hits == 2)
  }

  @Test func readsInAnyProcessKeepAnIdleEntry() throws {
    let (store, other) = (directory.cache(), directory.cache())
    try store.set("v", forKey: "k", expiry: .idle(.minutes(5)))
    #expect(try other.get("k") != nil)
    let path = try store.sidecar("k")
    // Uses have the time of the kernel's clock, which does not follow the test's.
    func setTimeOfUse() throws {
      try File(path, .readWrite).setTimes(accessed: WallClock.now, modified: WallClock.now)
    }
    try setTimeOfUse()
    for minutes in 1...10 {
      let before = try FileSystem.status(path, withTimes: true)?.modified
      try after(seconds: 60 * minutes) { () throws in
        #expect(try store.get("k") != nil)
        #expect(try FileSystem.status(path, withTimes: true)?.modified != before)
        try setTimeOfUse()
      }
    }
    // This store has not read the entry for 14 minutes, but sees that the other one has.
    try after(seconds: 840) { () throws in #expect(try other.get("k") == Data("v".utf8)) }
    try after(seconds: 1_200) { () throws in
      #expect(try other.get("k") == nil && store.get("k") == nil)
    }
  }

  /// Runs `body` as if that much time had passed.
  private func after(seconds: Int, _ body: () throws -> Void) rethrows {
    try WallClock.$fixed.withValue(
      WallClock.now + Int64(seconds) * WallClock.second, operation: body)
  }

  @Test(arguments: [DiskCache.Expiry.minutes(10), .idle(.minutes(10))])
  func entryExpiresAfterTheClockIsSetBack(expiry: DiskCache.Expiry) throws {
    try directory.cache().set("v", forKey: "k", expiry: expiry)
    // Time synchronization sets clocks back by seconds; that makes no difference.
    try age("k", by: -30)
    #expect(try found("k", directory.cache()) == allFound)
    if case .idle = expiry.rule { try age("k", by: -3_600) } else { try age("k", by: -3_570) }
    #expect(try found("k", directory.cache()) == noneFound)
    #expect(try directory.cache().totalSize == 0)
  }

  /// Sets note the time, also in a process that has the cache open for long.
  @Test func listingsNoticeThatTheClockIsSetBack() throws {
    let store = directory.cache()
    try store.set("v", forKey: "k")
    try anHourLater { try store.set("v", forKey: "short", expiry: .minutes(10)) }
    #expect(try store.keys() == ["k"])
  }

  @Test func removesExpiredEntriesAfterTheClockIsSetBack() throws {
    let store = directory.cache()
    try store.set("v", forKey: "a", expiry: .minutes(10))
    try store.set("v", forKey: "b", expiry: .idle(.minutes(10)))
    try store.set("v", forKey: "c")
    try age("a", by: -86_400)
    try age("b", by: -86_400)
    try age("c", by: -86_400)
    #expect(try directory.cache().removeExpired() == 2)
    #expect(try directory.cache().keys() == ["c"])
  }

  @Test func sweepOpensOnlyEntriesThatMayHaveExpired() throws {
    let store = directory.cache()
    for number in 0..<50 {
      let expiry: DiskCache.Expiry =
        [.never, .days(7), .idle(.hours(1)), .date(.now + 3_600)][number % 4]
      try store.set(number, forKey: "k\(number)", expiry: expiry)
    }
    try store.set("v", forKey: "old", expiry: .days(1))
    try age("old", by: 2 * 86_400)
    var count = 0
    let calls = try systemCalls { count = try store.removeExpired() }
    #expect(count == 1)
    #expect(calls.count { $0 == .open } <= 4, "the sidecars of the one that has expired")
  }

  @Test func takesIntegersAndDescribesItself() {
    let count: UInt8 = 2
    #expect(
      DiskCache.Expiry.days(count) == .hours(48)
        && DiskCache.Expiry.minutes(count) == .seconds(120.0))
    #expect(DiskCache.Expiry.idle(.hours(count)) == .idle(.minutes(120)))
    #expect("\(DiskCache.Expiry.minutes(5))" == ".seconds(300.0)")
    #expect("\(DiskCache.Expiry.idle(.seconds(1)))" == ".idle(.seconds(1.0))")
    #expect("\(DiskCache.Expiry.never)" == ".never")
  }

  @Test func hasPassedTable() {
    let second = WallClock.second
    let now = 1_000 * second
    func hasPassed(_ expiry: StoredExpiry, _ created: Int64, used: Int64 = 0) -> Bool {
      expiry.hasPassed(created: created, lastUsed: used, now: now)
    }
    #expect(!hasPassed(.never, .max) && !hasPassed(.never, .min))
    #expect(hasPassed(.at(now), 0) && !hasPassed(.at(now + 1), .max))
    #expect(hasPassed(.after(10 * second), now - 10 * second))
    #expect(!hasPassed(.after(10 * second), now - 10 * second + 1))
    // Dates in the future count as the work of time synchronization up to a minute, and up to the
    // entry's own lifetime.
    #expect(!hasPassed(.after(10 * second), now + 10 * second))
    #expect(hasPassed(.after(10 * second), now + 10 * second + 1))
    #expect(!hasPassed(.after(600 * second), now + 60 * second))
    #expect(hasPassed(.after(600 * second), now + 60 * second + 1))
    #expect(hasPassed(.after(.max), .max) && !hasPassed(.after(.max), now - 1))
    #expect(!hasPassed(.idle(10 * second), 0, used: now - 9 * second))
    #expect(hasPassed(.idle(10 * second), now, used: now - 10 * second))
    #expect(hasPassed(.idle(.max), 0, used: .max) && hasPassed(.after(1), .min))
  }
}
