import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Entries whose files another program, or a failing disk, has changed, moved or removed.
@Suite(.proofThread, .singleThreaded) struct CacheDamageTests {
  private let directory: TemporaryDirectory
  private let value = Data((0..<300).map { UInt8($0 & 255) })

  init() throws { directory = try TemporaryDirectory() }

  /// Expects a miss that is counted once, removes the files, and does not prevent a new entry.
  private func expectMiss(_ comment: Comment, damaged: Int = 1) throws {
    let failures = Failures()
    let store = directory.cache(failures: failures)
    #expect(try store.get("k") == nil, comment)
    #expect(store.statistics.misses == 1, comment)
    #expect(store.statistics.damaged == damaged, comment)
    if damaged > 0 { #expect(try entryFiles() == [], comment) }
    try store.set(value, forKey: "k")
    #expect(try store.get("k") == value && directory.cache().get("k") == value, comment)
    #expect(failures.all.isEmpty, comment)
  }

  private func entryFiles() throws -> [String] {
    let path = directory.path + "/caches/standard"
    return try FileManager.default.subpathsOfDirectory(atPath: path).filter {
      $0.contains("/")
    }
  }

  /// Changes a file without changing its times, as a failing disk does.
  private func overwrite(_ path: String, with bytes: [UInt8]) throws {
    let times = try #require(try FileSystem.status(path, withTimes: true))
    try Bytes.write(bytes, to: path)
    try File(path, .readWrite).setTimes(accessed: times.accessed, modified: times.modified)
  }

  @Test func anyChangedByteOfARecordThatThereIsNoValueIsAMiss() throws {
    let options = WriteOptions(expiry: .after(86_400 * WallClock.second), isDurable: false)
    func find() throws -> FoundEntry {
      try directory.cache().engine.find("k", noValue: true, tags: false).found
    }
    try directory.cache().engine.writeNoValue(forKey: "k", options, hook: commitDirectly)
    guard case .noValue = try find() else {
      Issue.record("there is no record")
      return
    }
    let name = try #require(try entryFiles().first)
    let path = directory.path + "/caches/standard/" + name
    let original = try Bytes.read(path)
    for position in original.indices {
      let flipped = [1, 0x80].map { Bytes.put(original[position] ^ $0, at: position, in: original) }
      for damaged in flipped + [Array(original[..<position])] {
        try Data(damaged).write(to: URL(filePath: path))
        guard case .missing = try find() else {
          Issue.record("byte \(position) does not matter")
          continue
        }
        #expect(try directory.cache().get("k") == nil, "byte \(position)")
      }
    }
    try directory.cache().set(value, forKey: "k")
    #expect(try directory.cache().get("k") == value)
  }

  @Test func aPayloadOrASidecarAloneIsAMiss() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    try FileManager.default.removeItem(atPath: store.sidecar("k"))
    try expectMiss("no sidecar")
    try FileManager.default.removeItem(atPath: directory.cache().payload("k"))
    #expect(try directory.cache().contains("k") == false)
    try expectMiss("no payload", damaged: 0)
    try FileManager.default.removeItem(atPath: directory.cache().payload("k"))
    #expect(try directory.cache().removeExpired() == 0)
    #expect(try entryFiles() == [], "a sweep removes the other one")
    #expect(try directory.cache().totalSize == 0)
  }

  @Test func filesOfAnotherEntryAreAMiss() throws {
    let store = directory.cache()
    let other = Data(value.reversed())
    // All payloads and all sidecars have the same length.
    for (payloads, sidecars) in [(true, false), (false, true), (true, true)] {
      try store.set(value, forKey: "k")
      try store.set(other, forKey: "l")
      let (k, l) = (try store.payload("k"), try store.payload("l"))
      for suffix in (payloads ? [""] : []) + (sidecars ? [Sidecar.suffix] : []) {
        #expect(try FileSystem.exchange(k + suffix, with: l + suffix))
      }
      #expect(try directory.cache().get("k") == nil && directory.cache().get("l") == nil)
    }
  }

  @Test func aPayloadAndASidecarOfDifferentWritesAreAMiss() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let path = try store.payload("k")
    let old = directory.path + "/old"
    try FileManager.default.copyItem(atPath: path, toPath: old)
    for _ in 0..<2 { try store.set(Data(value.reversed()), forKey: "k") }
    try FileSystem.rename(old, to: path)
    try expectMiss("old payload")
    // A new payload with an old sidecar.
    let sidecar = try Bytes.read(path + Sidecar.suffix)
    try store.set(Data(value.reversed()), forKey: "k")
    try overwrite(path + Sidecar.suffix, with: sidecar)
    try expectMiss("old sidecar")
  }

  private static let callsWithoutPayload: [@Sendable (DiskCache.Store) throws -> Bool] = [
    { try $0.contains("k") }, { try $0.entry("k") != nil }, { try $0.fileURL("k") != nil },
  ]

  @Test(arguments: callsWithoutPayload.indices)
  func callsThatDoNotReadThePayloadNoticeAnOlderOne(call: Int) throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let path = try store.payload("k")
    let old = directory.path + "/old"
    try FileSystem.rename(path, to: old)
    for _ in 0..<2 { try store.set(Data(value.reversed()), forKey: "k") }
    try FileSystem.rename(old, to: path)
    let next = directory.cache()
    #expect(try !Self.callsWithoutPayload[call](next))
    #expect(next.statistics.damaged == 1)
  }

  @Test func payloadsOfAKeyHaveDifferentTimes() throws {
    let store = directory.cache()
    // Inodes, sizes and the times that the file system sets may be equal.
    for expiry in [DiskCache.Expiry.never, .days(1)] {
      var times: Set<Int64> = []
      for _ in 0..<20 {
        try store.set(value, forKey: "k", expiry: expiry)
        let status = try #require(try FileSystem.status(store.payload("k"), withTimes: true))
        times.insert(status.modified)
      }
      #expect(times.count == 20)
      // The last bit tells whether the entry can expire.
      #expect(times.allSatisfy { ($0 % 2 == 0) == (expiry != .never) })
    }
  }

  /// Some file systems keep times to 100 ns, which one file must tell.
  @Test func noTimeOfAPayloadIsOneThatACoarseFileSystemKeeps() {
    for expires in [Int64.max, 5] {
      for random in 0..<200 {
        let times = PayloadTimes(created: 0, expires: expires, random: UInt64(random))
        #expect(times.modified % 100 != 0 && (0..<WallClock.second).contains(times.modified))
      }
      let last = PayloadTimes(created: 0, expires: expires, random: .max)
      #expect((0..<WallClock.second).contains(last.modified))
    }
  }

  @Test func aChangedPayloadIsAMissForAStoreThatHasReadIt() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    #expect(try store.get("k") == value)
    let path = try store.payload("k")
    // The file system's clock is coarse, too.
    waitForTick()
    try overwrite(path, with: value.reversed())
    #expect(try store.get("k") == nil && store.statistics.damaged == 1)
  }

  @Test func verifiedEntryMatchesOnlyTheSameFile() throws {
    try directory.write(Array(value), to: "file")
    let path = directory.file("file").path
    let status = try #require(try FileSystem.status(path, withTimes: true))
    for changed in 0..<6 {
      func other(_ which: Int) -> Int { which == changed ? 1 : 0 }
      let entry = VerifiedEntry(
        inode: status.inode + UInt64(other(1)), size: status.size + other(2),
        modified: status.modified + Int64(other(3)), changed: status.changed + Int64(other(4)),
        keyID: 7 + other(5), created: 0, lastUsed: 0, lastRecordedUse: 0, expiry: .never,
        kind: .data, hasDetails: false, isPayloadVerified: true)
      #expect(entry.matches(status, keyID: 7) == (changed == 0), "\(changed)")
    }
  }

  @Test(arguments: [false, true])
  func aLargePayloadIsNotReadWholeByACallThatReturnsNoValue(isDamaged: Bool) throws {
    let large = Data(count: 3 << 20)
    for call in Self.callsWithoutPayload {
      try directory.cache().set(large, forKey: "k")
      let file = try File(directory.cache().payload("k"), .readWrite)
      if isDamaged { try file.overwrite([UInt8(1)].span.bytes, at: 2 << 20) }
      try file.setTimes(accessed: 0, modified: 0)
      let store = directory.cache()
      let sizes = try readSizes { () throws in #expect(try call(store) != isDamaged) }
      #expect(sizes.max() == 1 << 20)
      #expect(store.statistics.damaged == (isDamaged ? 1 : 0))
      #expect(try directory.cache().get("k") == (isDamaged ? nil : large))
    }
  }

  @Test func damageThatAPassFindsIsNotLookedForAgain() async throws {
    let store = directory.cache()
    try store.set(Data(count: 3 << 20), forKey: "k")
    let path = try store.payload("k")
    var bytes = [UInt8](repeating: 0, count: 3 << 20)
    bytes[7] = 1
    try overwrite(path, with: bytes)
    let next = directory.cache()
    let chunks = try #require(try next.chunks("k"))
    let count = Locked(0)
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, result in
        guard event.call == .read, event.path == path, case .success(let size) = result else {
          return
        }
        count.withLock { $0 += size }
      })
    let error = await #expect(throws: StorageError.self) {
      try await FaultPlan.$current.withValue(plan) { for try await _ in chunks {} }
    }
    #expect(error?.code == .damaged && next.statistics.damaged == 1)
    #expect(count.withLock { $0 } == 3 << 20)
    #expect(try entryFiles() == [])
  }

  /// As in a copy that was made without the nanoseconds.
  @Test func aPayloadWithOtherTimesIsValidAndGetsThemBack() throws {
    try directory.cache().set(value, forKey: "k", expiry: .days(1))
    let path = try directory.cache().payload("k")
    let times = try #require(try FileSystem.status(path, withTimes: true))
    let calls = Self.callsWithoutPayload + [{ try $0.get("k") != nil }]
    // Another user may not set them.
    let plan = FaultPlan(decide: { $0.call == .times ? .fail(EPERM) : .proceed })
    for (number, call) in calls.enumerated() {
      try File(path, .readWrite).setTimes(accessed: 0, modified: 0)
      let store = directory.cache()
      try FaultPlan.$current.withValue(plan) { () throws in
        #expect(try call(store), "\(number)")
      }
      #expect(try call(store) && directory.cache().get("k") == value, "\(number)")
      let found = try #require(try FileSystem.status(path, withTimes: true))
      #expect(found.modified == times.modified && found.accessed == times.accessed, "\(number)")
      let calls = try systemCalls { _ = try call(store) }
      #expect(!calls.contains(.lock) && store.statistics.damaged == 0, "\(number)")
    }
  }

  /// A program that cleans up has deleted it.
  @Test func aRecordThatThereIsNoValueIsRemovedWithoutALedger() throws {
    let options = WriteOptions(expiry: .after(86_400 * WallClock.second), isDurable: false)
    try directory.cache().engine.writeNoValue(forKey: "k", options, hook: commitDirectly)
    try FileSystem.unlink(directory.file("caches/.standard.ledger").path)
    try directory.cache().remove("k")
    #expect(try entryFiles() == [])
  }

  @Test func anEntryOfANewerVersionIsAnErrorAndIsKept() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let path = try store.sidecar("k")
    try aSecondAgo { try store.set(value, forKey: "k", expiry: .seconds(0.01)) }
    try store.set(value, forKey: "other")
    let sidecar = try Sidecar.summed(Bytes.put(UInt8(2), at: 3, in: Bytes.read(path)))
    try overwrite(path, with: sidecar)
    let error = expectFailure(.unsupportedVersion) { _ = try directory.cache().get("k") }
    #expect(error?.key == "k" && error?.path == path)
    // Sweeps, listings and evictions continue past it.
    let next = directory.cache()
    #expect(try next.removeExpired() == 0 && next.keys().sorted() == ["k", "other"])
    #expect(try next.totalSize == 16_384)
    #expect(try Bytes.read(path) == sidecar)
    next.sizeLimit = 8_192
    try waitUntil("an entry is evicted") { try next.totalSize <= 8_192 }
    try directory.cache().set(value, forKey: "k")
    #expect(try directory.cache().get("k") == value, "what is set now is this version's")
  }

  @Test func aSidecarWithAnotherSignatureIsAMiss() throws {
    try directory.cache().set(value, forKey: "k")
    let path = try directory.cache().sidecar("k")
    let sidecar = try Bytes.put(UInt8(ascii: "C"), at: 2, in: Bytes.read(path))
    try overwrite(path, with: Sidecar.summed(sidecar))
    try expectMiss("signature")
  }

  @Test(arguments: [Int64.min, .max, -1, 0])
  func anyTimeInASidecarIsHandled(time: Int64) throws {
    let store = directory.cache()
    for rule: UInt8 in 0...4 {
      for offset in [16, 24, 40, 48] {
        try store.set(value, forKey: "k")
        let path = try store.sidecar("k")
        let sidecar = try Bytes.put(rule, at: 5, in: Bytes.read(path))
        try overwrite(path, with: Sidecar.summed(Bytes.put(time, at: offset, in: sidecar)))
        // Some of the times are valid. What matters is that no call traps.
        let next = directory.cache()
        #expect(try [nil, value].contains(next.get("k")))
        _ = try (next.keys(), next.entry("k"), next.totalSize, next.removeExpired())
      }
    }
  }

  /// The size of an entry on disk is taken from its sidecar even if that is damaged.
  @Test(arguments: [0x7FFF_FFFF_FFFF_F000, 0x7FFF_FFFF_FFFF_E000, Int.max, 1 << 48])
  func anySizeInADamagedSidecarIsHandled(size: Int) throws {
    for keyLength: UInt32 in [1, .max] {
      for isRemoved in [true, false] {
        let store = directory.cache()
        try store.set(value, forKey: "k")
        let (payload, path) = (try store.payload("k"), try store.sidecar("k"))
        let sidecar = try Bytes.put(UInt64(size), at: 16, in: Bytes.read(path))
        try overwrite(path, with: Bytes.put(keyLength, at: 56, in: sidecar))
        if isRemoved {
          try FileManager.default.removeItem(atPath: payload)
          try directory.cache().remove("k")
        } else {
          try directory.cache().set(value, forKey: "k")
          #expect(try directory.cache().get("k") == value)
        }
        try directory.cache().removeExpired()
      }
    }
    let store = directory.cache()
    #expect(try store.totalSize == store.keys().count * 8_192)
  }

  @Test(arguments: [0, 8, 4_096, 8_231])
  func truncatedLedgerIsRecreated(length: off_t) throws {
    let store = directory.cache()
    for number in 0..<20 { try store.set(value, forKey: "k\(number)") }
    #expect(truncate(directory.file("caches/.standard.ledger").path, length) == 0)
    waitForTick()
    try store.set(value, forKey: "k0")
    #expect(try store.totalSize == 20 * 8_192 && directory.cache().totalSize == 20 * 8_192)
  }

  @Test func filesThatACleanerRemovesAreRecreated() throws {
    let store = directory.cache()
    let path = directory.path + "/caches/standard"
    for removed in [
      "caches/standard", "caches/standard/CACHEDIR.TAG", "caches/.standard.ledger", "caches",
    ] {
      for number in 0..<20 { try store.set(value, forKey: "k\(number)") }
      _ = try store.get("k0")
      try FileSystem.remove(directory.file(removed).path)
      try store.set(value, forKey: "new")
      #expect(try store.get("new") == value, "without \(removed)")
      #expect(try directory.cache().get("new") == value)
      for store in [store, directory.cache()] {
        let (size, count) = try (store.totalSize, store.keys().count)
        #expect(size == count * 8_192, "without \(removed)")
      }
    }
    // The tag is written by the next process that opens the cache for writing.
    #expect(try FileSystem.status(path + "/CACHEDIR.TAG") != nil)
  }

  @Test func aDirectoryThatIsReplacedByACopyIsNoticed() throws {
    let store = directory.cache()
    try store.set(value, forKey: "k")
    let path = directory.path + "/caches/standard"
    // As when a backup is restored, except that the lock file is still there.
    try FileManager.default.moveItem(atPath: path, toPath: directory.path + "/old")
    try FileManager.default.copyItem(atPath: directory.path + "/old", toPath: path)
    waitForTick()
    let other = directory.cache()
    try other.set(value, forKey: "theirs")
    try store.set(value, forKey: "ours")
    #expect(try store.get("theirs") == value && other.get("ours") == value)
  }
}
