import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A record counts for all processes from its publication on, whatever happens to its writer.
@Suite(.singleThreaded) struct PublicationTests {
  private static let journal = TemporaryDirectory.journal

  private static func pair() throws -> (TemporaryDirectory, store: Defaults.Store) {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.store()
    try store.set(1, forKey: "a")
    return (directory, store)
  }

  @Test func noReaderSeesARecordBeforeItsPublication() throws {
    let (directory, store) = try Self.pair()
    let reader = directory.store()
    #expect(try reader.int("a") == 1)
    for isRemoval in [false, true] {
      let before = try reader.int("a")
      try interrupt(before: .publish) {
        let seen = try [reader, directory.store(), reader].map { try $0.int("a") }
        #expect(seen == [before, before, before])
      } in: {
        if isRemoval { try store.removeAll() } else { try store.set(2, forKey: "a") }
      }
      for store in [reader, directory.store()] {
        #expect(try store.contains("a") != isRemoval)
      }
    }
  }

  /// The first read of a file, and each one after it was replaced, takes longer than a set.
  @Test func aReaderKeepsUpWithAWriterThatNeverPauses() throws {
    let (directory, store) = try Self.pair()
    let count = Locked(0)
    let isSetting = Locked(false)
    let plan = FaultPlan { event in
      guard event.call == .read, !isSetting.withLock({ $0 }) else { return .proceed }
      isSetting.withLock { $0 = true }
      defer { isSetting.withLock { $0 = false } }
      // After 100 reads it does not keep up.
      if count.increment() < 100 { #expect(throws: Never.self) { try store.set(2, forKey: "a") } }
      return .proceed
    }
    let reader = directory.store()
    let value = try FaultPlan.$current.withValue(plan) { try reader.int("a") }
    #expect(value == 1 || value == 2)
    #expect(count.withLock { $0 } < 10)
    #expect(try reader.int("a") == 2)
  }

  /// From one call on everything fails, as in a process that is killed there. That is no damage.
  @Test(arguments: ["set", "removeAll", "compact"])
  func allReadersAgreeAfterAKill(operation: String) throws {
    var outcomes: Set<Bool> = []
    let failures = Failures()
    for number in 0..<40 {
      let (directory, store) = try Self.pair()
      let running = directory.store(failures: failures)
      #expect(try running.int("a") == 1)
      let isKilled = killing(beforeCall: number) {
        switch operation {
        case "set": try? store.set(2, forKey: "a")
        case "removeAll": try? store.removeAll()
        default: try? store.journal.compact()
        }
      }
      let comment: Comment = "\(operation), \(number) calls"
      // Once a reader has seen the new value, no reader sees the old one.
      let seen = try [running, directory.store(), running, directory.store()].map {
        try $0.int("a")
      }
      #expect(Set(seen).count == 1, "\(comment): \(seen)")
      try directory.store(failures: failures).set(3, forKey: "b")
      for store in [running, directory.store(), store] {
        #expect(try store.int("a") == seen[0] && store.int("b") == 3, comment)
      }
      #expect(failures.all.isEmpty, "\(comment): \(failures.all)")
      outcomes.insert(seen[0] == 1)
      if !isKilled { break }
      try #require(number < 39)
    }
    #expect(outcomes.count == (operation == "compact" ? 1 : 2))
  }

  /// Another process changes values after a compaction has copied them.
  @Test(arguments: [false, true]) func aCompactionKeepsWhatChangedMeanwhile(all: Bool) throws {
    let (directory, store) = try Self.pair()
    try store.set(2, forKey: "b")
    let other = directory.store()
    try interrupt(before: .lock) {
      if all { try other.removeAll() } else { try other.remove("a") }
      try other.set(3, forKey: "c")
    } in: {
      try store.journal.compact()
    }
    for store in [store, other, directory.store()] {
      #expect(try store.keys().sorted() == (all ? ["c"] : ["b", "c"]))
      #expect(try store.int("c") == 3)
    }
  }

  /// What a killed writer left, of any length, never counts, and the next writer cuts it off.
  @Test func theRestOfAKilledWriterIsCutOff() throws {
    let (origin, store) = try Self.pair()
    let start = try origin.bytes(of: Self.journal)
    try store.set("longer than the next value", forKey: "a")
    let record = try origin.bytes(of: Self.journal).dropFirst(start.count)
    let (whole, alone) = try Self.pair()
    try alone.set(3, forKey: "b")
    let size = try whole.bytes(of: Self.journal).count
    for count in 1...record.count {
      let directory = try TemporaryDirectory(isQuick: true)
      try directory.write(start + record.prefix(count), to: Self.journal)
      let failures = Failures()
      let stores = (0..<3).map { _ in directory.store(failures: failures) }
      #expect(try stores[0].int("a") == 1 && directory.store().int("a") == 1)
      try stores[1].set(3, forKey: "b")
      for store in stores {
        #expect(try store.int("a") == 1 && store.int("b") == 3, "\(count) bytes")
      }
      #expect(try directory.bytes(of: Self.journal).count == size, "\(count) bytes")
      #expect(failures.all.isEmpty, "\(failures.all)")
    }
  }

  /// Another writer was killed, or its disk was full, while this one stood still.
  @Test func aSetAfterTheFailedSetOfAnotherWriterIsKept() throws {
    let (directory, store) = try Self.pair()
    let failures = Failures()
    let other = directory.store()
    try other.set(2, forKey: "a")
    for round in 0..<40 {
      let isFull = Locked(false)
      let plan = FaultPlan(
        decide: { event in
          if event.call == .truncate { return .fail(EIO) }
          guard event.call == .write else { return .proceed }
          return isFull.withLock { isFull in
            defer { isFull = true }
            return isFull ? .fail(ENOSPC) : .proceed
          }
        },
        shorten: { _ in 9 })
      try store.set(round, forKey: "a")
      FaultPlan.$current.withValue(plan) {
        expectFailure(.diskFull) { try other.set("long enough", forKey: "b") }
      }
      try store.set(round, forKey: "c")
      let reader = directory.store(failures: failures)
      #expect(try reader.int("c") == round && reader.int("a") == round)
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  @Test func unknownFileSystemsAreWrittenWithSystemCalls() throws {
    let (directory, store) = try Self.pair()
    let unknown = FaultPlan { $0.call == .space ? .fail(ENOSYS) : .proceed }
    let other = directory.store()
    for number in 0..<5 {
      try FaultPlan.$current.withValue(unknown) { try other.set(number, forKey: "a") }
      #expect(try store.int("a") == number)
      try store.set(number, forKey: "b")
      #expect(try other.int("b") == number)
    }
  }

  // MARK: One file by two paths

  enum Way: CaseIterable { case symbolicLink, hardLink }

  /// A second directory whose journal is the same file.
  private static func secondPath(to directory: TemporaryDirectory, _ way: Way) throws
    -> TemporaryDirectory
  {
    let second = try TemporaryDirectory(isQuick: true)
    let file = directory.file(journal)
    switch way {
    case .symbolicLink: try second.link(journal, to: file.path)
    case .hardLink: try FileManager.default.linkItem(at: file, to: second.file(journal))
    }
    return second
  }

  @Test(arguments: Way.allCases) func twoPathsToOneFileLoseNothing(_ way: Way) throws {
    let (directory, store) = try Self.pair()
    let second = try Self.secondPath(to: directory, way)
    let other = second.store()
    let count = Coverage.count(sample: 300, complete: 20_000)
    let isDone = startThread {
      do { for _ in 0..<count { try other.update("n", default: 0) { $0 += 1 } } } catch {
        Issue.record(error)
      }
    }
    for number in 0..<count {
      try store.update("n", default: 0) { $0 += 1 }
      if number % 100 == 0 { try store.journal.compact() }
    }
    isDone.wait()
    for store in [store, other, directory.store(), second.store()] {
      #expect(try store.int("n") == 2 * count && store.int("a") == 1)
    }
    try other.removeAll()
    #expect(try store.keys() == [] && directory.store().keys() == [])
    #expect(try directory.names() == [Self.journal] && second.names() == [Self.journal])
  }

  /// A container has one file of its host, and both write.
  @Test(.enabled(if: OneAtATime.HazardTests.canMount, "a file cannot be mounted here"))
  func processesOnBothSidesOfAMountLoseNothing() throws {
    let (directory, store) = try Self.pair()
    let second = try TemporaryDirectory(isQuick: true)
    try second.write([], to: Self.journal)
    let (host, path) = (directory.file(Self.journal).path, second.file(Self.journal).path)
    try #require(mount(host, path, nil, UInt(MS_BIND), nil) == 0)
    defer { umount2(path, Int32(MNT_DETACH)) }
    let count = Coverage.count(sample: 300, complete: 5_000)
    let peers = try [directory, second].map {
      try Child(Peer.executable, [$0.path, "increment", "n", "\(count)"], mergesErrors: true)
    }
    let inside = second.store()
    for number in 0..<count {
      try inside.update("n", default: 0) { $0 += 1 }
      if number % 100 == 0 { try inside.journal.compact() }
    }
    for peer in peers { #expect(peer.finish() == "" && peer.exitStatus == 0) }
    for store in [store, inside, directory.store(), second.store()] {
      #expect(try store.int("n") == 3 * count && store.int("a") == 1)
    }
  }

  /// As programs do that manage dot-files.
  @Test func aLinkThatIsPointedElsewhereIsFollowed() throws {
    let (directory, store) = try Self.pair()
    let second = try Self.secondPath(to: directory, .symbolicLink)
    let third = try TemporaryDirectory(isQuick: true)
    try third.store().set(3, forKey: "a")
    let follower = second.store()
    #expect(try follower.int("a") == 1)
    try follower.set(4, forKey: "b")
    try second.link("new", to: third.file(Self.journal).path)
    try FileSystem.rename(second.file("new").path, to: second.file(Self.journal).path)
    try follower.set(5, forKey: "c")
    #expect(try follower.int("a") == 3 && !follower.contains("b"))
    #expect(try third.store().int("c") == 5 && !store.contains("c") && store.int("b") == 4)
  }

  /// Each later read would read the whole file again.
  @Test func aReadFinishesWhatAKilledWriterBegan() throws {
    let (directory, _) = try Self.pair()
    try File(directory.file(Self.journal).path, .readWrite)
      .overwrite(JournalWord.replaced.bytes.span.bytes, at: JournalWord.offset)
    let reader = directory.store()
    try anHourLater { () throws in
      for _ in 0..<2 { #expect(try reader.int("a") == 1) }
      #expect(systemCalls { #expect(throws: Never.self) { try reader.keys() } } == [])
    }
  }

  /// The contents are written into the file. A process that is killed meanwhile leaves a copy.
  @Test func aFileWithTwoNamesIsCompactedInPlace() throws {
    for number in 0..<60 {
      let (directory, store) = try Self.pair()
      let second = try Self.secondPath(to: directory, .hardLink)
      for number in 0..<20 { try store.set(number, forKey: "b") }
      let inode = try #require(try FileSystem.status(directory.file(Self.journal).path)).inode
      let size = try directory.bytes(of: Self.journal).count
      let isKilled = killing(beforeCall: number) { try? store.journal.compact() }
      // The next writer has no space to finish that.
      let plan = FaultPlan(decide: {
        $0.call == .open && $0.path.hasSuffix(".tmp") ? .fail(ENOSPC) : .proceed
      })
      FaultPlan.$current.withValue(plan) {
        _ = try? anHourLater { try directory.store().set(1, forKey: "d") }
      }
      for store in [directory.store(), second.store()] {
        try anHourLater { try store.set(1, forKey: "c") }
        #expect(try store.int("a") == 1 && store.int("b") == 19, "\(number) calls")
      }
      #expect(
        try FileSystem.status(directory.file(Self.journal).path)?.inode == inode,
        "\(number) calls")
      if isKilled { continue }
      #expect(try directory.bytes(of: Self.journal).count < size)
      #expect(try directory.names() == [Self.journal])
      return
    }
    Issue.record("the compaction never ended")
  }

  /// Nor is the copy gone before another one counts. A program that starts finds all values.
  @Test func whatAKilledWriterHasLeftSurvivesTheNextKill() throws {
    var combinations = 0
    for first in 0..<200 {
      var hasEnded = false
      for second in stride(from: first % 5, to: 200, by: 5) where !hasEnded {
        let (directory, store) = try Self.pair()
        try #require(
          try FileSystem.link(directory.file(Self.journal).path, to: directory.file("other").path)
            == true)
        for number in 0..<20 { try store.set(number, forKey: "b") }
        guard killing(beforeCall: first, { try? store.journal.compact() }) else {
          #expect(combinations > 30)
          return
        }
        // Without a copy, the file is complete.
        guard try directory.names().contains(where: { $0.contains(".next-") }) else { break }
        combinations += 1
        hasEnded = !killing(beforeCall: second) {
          _ = try? anHourLater { try directory.store().set(1, forKey: "c") }
        }
        let reader = directory.store()
        #expect(try reader.int("a") == 1 && reader.int("b") == 19, "\(first), \(second)")
        try anHourLater { try directory.store().set(2, forKey: "c") }
        #expect(try reader.int("b") == 19 && reader.int("c") == 2, "\(first), \(second)")
      }
    }
    Issue.record("the compaction never ended")
  }
}

extension OneAtATime {
  /// Journals that are truncated while processes read their words.
  @Suite struct TruncatedJournalTests {
    /// Faults of others go to the handler that the program had, or end it.
    @Test(arguments: [
      ("own", "1 1 2 ok", Int32(0)), ("own foreign", "handled 2", 3),
      ("plain foreign", "handled", 3),
      ("none foreign", "", 128 + SIGBUS), ("none sent", "", 128 + SIGBUS),
      ("ignored sent", "ok", 0),
      ("ignored foreign", "", 128 + SIGBUS), ("once foreign", "handled 2", 128 + SIGBUS),
    ])
    func otherFaultsAreNotCaught(_ request: String, output: String, status: Int32) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let words = request.split(separator: " ").map(String.init)
      let peer = try Child(Peer.executable, [directory.path, "bus-error"] + words)
      let lines = peer.finish().split(separator: "\n").filter { !$0.hasPrefix("error ") }
        .joined(separator: " ")
      #expect(lines == output, "\(request)")
      #expect(peer.exitStatus == status, "\(request)")
    }
  }
}
