import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A record counts for all processes from its publication on, whatever happens to its writer.
@Suite(.singleThreaded) struct PublicationTests {
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
    let count = Locked(0)
    for isRemoval in [false, true] {
      let before = try reader.int("a")
      // Publishing begins at the first byte of the lock file; the mark is behind it.
      let plan = FaultPlan { event in
        guard event.call == .publish, event.offset == 0,
          count.withLock({ $0 == (isRemoval ? 1 : 0) })
        else { return .proceed }
        count.withLock { $0 += 1 }
        FaultPlan.$current.withValue(nil) {
          do {
            let seen = try [reader, directory.store(), reader].map { try $0.int("a") }
            #expect(seen == [before, before, before])
          } catch {
            Issue.record(error)
          }
        }
        return .proceed
      }
      try FaultPlan.$current.withValue(plan) {
        if isRemoval { try store.removeAll() } else { try store.set(2, forKey: "a") }
      }
      for store in [reader, directory.store()] {
        #expect(try store.contains("a") != isRemoval)
      }
    }
    #expect(count.withLock { $0 } == 2)
  }

  /// From one call on everything fails, as in a process that is killed there.
  @Test(arguments: ["set", "removeAll", "compact"])
  func allReadersAgreeAfterAKill(operation: String) throws {
    var outcomes: Set<Bool> = []
    for number in 0..<40 {
      let (directory, store) = try Self.pair()
      let running = directory.store()
      #expect(try running.int("a") == 1)
      waitForTick()
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
      let last = seen[3]
      #expect(seen[0] == 1 || seen.allSatisfy { $0 == last }, "\(comment): \(seen)")
      #expect(seen[1] == last && seen[2] == last, "\(comment): \(seen)")
      try anHourLater { try directory.store().set(3, forKey: "b") }
      for store in [running, directory.store(), store] {
        #expect(try store.int("a") == last && store.int("b") == 3, comment)
      }
      outcomes.insert(last == 1)
      if !isKilled { break }
      try #require(number < 39)
    }
    #expect(outcomes.count == (operation == "compact" ? 1 : 2))
  }

  /// A killed writer leaves the mark. Without it, a set within the same tick would go to the file
  /// that the killed writer has replaced.
  @Test func setAfterAKilledReplacementFindsTheNewFile() throws {
    let (directory, store) = try Self.pair()
    let victim = directory.store()
    try victim.set(2, forKey: "a")
    for round in 0..<20 {
      let isOver = Locked(false)
      let plan = FaultPlan { event in
        if event.call == .publish, event.offset == 0 { isOver.withLock { $0 = true } }
        return isOver.withLock { $0 } ? .fail(EIO) : .proceed
      }
      try store.set(round, forKey: "a")
      FaultPlan.$current.withValue(plan) { try? victim.journal.compact() }
      try anHourLater { try store.set(round, forKey: "b") }
      #expect(try directory.store().int("b") == round)
    }
  }

  /// The mark tells the other writers of a part of a record: the word stays the same, and within a
  /// tick they do not look at the file.
  @Test func setAfterTheFailedSetOfAnotherWriterIsKept() throws {
    let (directory, store) = try Self.pair()
    let failures = Failures()
    let other = directory.store()
    try other.set(2, forKey: "a")
    for round in 0..<40 {
      let isFull = Locked(false)
      let plan = FaultPlan(
        decide: { event in
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

  // MARK: Writers that are killed

  /// What a writer leaves that is killed at one point.
  private struct Remains {
    let point: String
    var journal: [UInt8]
    var lock: [UInt8]

    init(_ point: String, _ directory: TemporaryDirectory) throws {
      self.point = point
      journal = try directory.bytes(of: TemporaryDirectory.journal)
      lock = try directory.bytes(of: ".standard.lock")
    }
  }

  /// What a set leaves at each point: before and after each system call and each store of a word,
  /// and within the record.
  private static func remains(
    of store: Defaults.Store, in directory: TemporaryDirectory
  ) throws -> [Remains] {
    let all = Locked<[Remains]>([])
    let plan = FaultPlan { event in
      guard let before = try? Remains("before \(event.call)", directory) else { return .proceed }
      all.withLock { all in
        all.append(before)
        guard event.call == .write else { return }
        for count in [1, event.bytes.count / 2, event.bytes.count - 1] {
          var part = before
          part.journal += event.bytes.prefix(count)
          all.append(part)
        }
      }
      return .proceed
    }
    try FaultPlan.$current.withValue(plan) { try store.set(2, forKey: "a") }
    let end = try Remains("the end", directory)
    var marked = end
    marked.lock[8] = 1
    return all.withLock { $0 } + [marked, end]
  }

  /// Killed before its mark, between mark, write and publication, between the two words that
  /// publish, and after them.
  @Test func readersAndWritersAgreeOnWhatAKilledWriterLeft() throws {
    let (origin, store) = try Self.pair()
    let start = try Remains("start", origin)
    let remains = try Self.remains(of: store, in: origin)
    try #require(remains.count >= 8 && remains.contains { $0.lock[8] == 1 })
    let record = remains[remains.count - 1].journal.count - start.journal.count
    for (number, state) in remains.enumerated() {
      let comment: Comment = "\(number): \(state.point)"
      let directory = try TemporaryDirectory(isQuick: true)
      try directory.write(start.journal, to: TemporaryDirectory.journal)
      try directory.write(start.lock, to: ".standard.lock")
      let (reader, writer) = (directory.store(), directory.store())
      #expect(try reader.int("a") == 1)
      // Takes the lock and looks at the files, so that another set within this tick does not.
      try writer.remove("c")
      let added = Array(state.journal.dropFirst(start.journal.count))
      let journal = try File(directory.file(TemporaryDirectory.journal).path, .append)
      if !added.isEmpty { try journal.writeAll(added) }
      let words = Array(state.lock.prefix(16))
      try File(directory.file(".standard.lock").path, .readWrite).overwrite(words.span.bytes, at: 0)
      let seen = try [reader, directory.store(), reader, directory.store()].map { try $0.int("a") }
      let isWhole = added.count >= record - 2
      #expect(seen[1...].allSatisfy { $0 == (isWhole ? 2 : 1) }, "\(comment): \(seen)")
      try writer.set(3, forKey: "b")
      for store in [reader, writer, directory.store()] {
        #expect(try [store.int("a"), store.int("b")] == [seen[3], 3], comment)
      }
      let lock = try directory.bytes(of: ".standard.lock")
      #expect(lock[8..<16].allSatisfy { $0 == 0 }, "\(comment): the mark is left")
    }
  }

  // MARK: Versions

  /// A lock file of an older version, which has one word and no mark.
  private static func makeOld(_ directory: TemporaryDirectory) throws {
    let path = directory.file(".standard.lock")
    let word = try directory.bytes(of: ".standard.lock").prefix(8)
    try FileManager.default.removeItem(at: path)
    try Data(word).write(to: path)
  }

  @Test func lockFileOfAnOlderVersionGetsAMark() throws {
    let (directory, _) = try Self.pair()
    try Self.makeOld(directory)
    let store = directory.store()
    #expect(try store.int("a") == 1)
    try store.set(2, forKey: "a")
    let bytes = try directory.bytes(of: ".standard.lock")
    #expect(bytes.count == 4_096 && bytes[16..<24].elementsEqual("keepsake".utf8))
    #expect(try directory.store().int("a") == 2)
  }

  /// An older version counts replaced files in the word, and knows no mark.
  @Test func setsOfAnOlderVersionAreSeen() throws {
    let (directory, store) = try Self.pair()
    let path = directory.file(TemporaryDirectory.journal).path
    let lock = try File(directory.file(".standard.lock").path, .readWrite)
    func publish(_ epoch: UInt64, _ size: Int) throws {
      try lock.overwrite([epoch << 40 | UInt64(size)].span.bytes, at: 0)
    }
    func append(_ value: Int, _ key: String, id: UInt64) throws -> Int {
      var record: [UInt8] = []
      JournalFormat.append(.int(Int64(value)), key: key, seed: id, to: &record)
      try File(path, .append).writeAll(record)
      return try #require(try FileSystem.status(path)).size
    }
    var id = try store.journal.file.withLock { $0.seed }
    for round in 0..<5 {
      try publish(id >> 40, try append(round, "a", id: id))
      #expect(try store.int("a") == round && directory.store().int("a") == round)
      try store.set(round, forKey: "b")
      #expect(try store.int("a") == round && directory.store().int("b") == round)
      // It replaces the file, and the upper bits of the word are not the id's.
      id = UInt64.random(in: .min ... .max)
      try FileSystem.replace(path, with: JournalFormat.header(id: id), mode: 0o600, durable: false)
      try publish(7 + UInt64(round), try append(round, "c", id: id))
      #expect(try store.int("c") == round && !store.contains("b"))
      try store.set(round, forKey: "d")
      #expect(try store.int("c") == round && directory.store().int("d") == round)
    }
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
    let fresh = try TemporaryDirectory(isQuick: true)
    try FaultPlan.$current.withValue(unknown) { try fresh.store().set(1, forKey: "a") }
    let words = try fresh.bytes(of: ".standard.lock")
    #expect(words.count == 4_096 && words[8...].allSatisfy { $0 == 0 })
  }

  // MARK: Lock files that a restore touches

  /// Neither an older word nor a lock file without one hides records.
  @Test func restoredLockFileHidesNothing() throws {
    let (directory, store) = try Self.pair()
    let path = directory.file(".standard.lock").path
    let backup = try directory.bytes(of: ".standard.lock")
    for (number, content) in [backup, Array(backup.prefix(8)), [], [0, 0, 0], backup].enumerated() {
      try store.set(number, forKey: "a")
      let reader = directory.store()
      #expect(try reader.int("a") == number)
      let file = try File(path, .readWrite)
      try #require(ftruncate(file.descriptor, 0) == 0)
      if !content.isEmpty { try file.overwrite(content.span.bytes, at: 0) }
      for store in [directory.store(), store, reader] {
        #expect(try store.int("a") == number, "content \(number)")
      }
      try reader.set(number, forKey: "b")
      #expect(try store.int("b") == number && directory.store().int("b") == number)
    }
    let final = try directory.bytes(of: ".standard.lock")
    #expect(final.count == 4_096 && final[16..<24].elementsEqual("keepsake".utf8))
  }
}

extension OneAtATime {
  /// Lock files that are truncated while processes read their words.
  @Suite struct TruncatedLockFileTests {
    @Test func readersAndWritersSurviveTruncatedLockFiles() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let (store, reader) = (directory.store(), directory.store())
      try store.set(0, forKey: "k")
      let backup = try directory.bytes(of: ".standard.lock")
      let isOver = Locked(false)
      let reads = Locked(0)
      let end = startThread {
        var last = 0
        while !isOver.withLock({ $0 }) {
          do {
            let value = try reader.int("k")
            if value < last { Issue.record("\(value) after \(last)") }
            last = value
          } catch {
            Issue.record(error)
          }
          reads.withLock { $0 += 1 }
        }
      }
      // The first of two reads may have begun before.
      func waitForARead() throws {
        let count = reads.withLock { $0 }
        waitUntil("there is a read") { reads.withLock { $0 } > count + 1 }
      }
      let file = try File(directory.file(".standard.lock").path, .readWrite)
      for number in 1...Coverage.count(sample: 20, complete: 200) {
        try store.set(number, forKey: "k")
        try #require(ftruncate(file.descriptor, 0) == 0)
        if number % 3 > 0 {
          try waitForARead()
          try file.overwrite(backup.span.bytes, at: 0)
        }
        if number % 2 == 0 { try waitForARead() }
        if number % 5 == 0 {
          // Set again, because a word that was restored may hide the last value for a moment.
          try store.set(number, forKey: "k")
          try eventuallyEqual(number) { try reader.int("k") }
        }
      }
      let last = Coverage.count(sample: 20, complete: 200)
      try store.set(last, forKey: "k")
      try eventuallyEqual(last) { try reader.int("k") }
      isOver.withLock { $0 = true }
      end.wait()
      #expect(try directory.store().int("k") == last)
    }

    private func eventuallyEqual(_ value: Int, _ read: () throws -> Int) throws {
      try waitUntil("\(value) is read") { try read() == value }
    }

    /// Faults of others go to the handler that the program had, or end it.
    @Test(arguments: [
      ("own", "1 2 ok", Int32(0)), ("own foreign", "handled 2", 3), ("plain foreign", "handled", 3),
      ("none foreign", "", 128 + SIGBUS), ("none sent", "", 128 + SIGBUS),
      ("ignored sent", "ok", 0),
      ("ignored foreign", "", 128 + SIGBUS), ("once foreign", "handled 2", 128 + SIGBUS),
    ])
    func otherFaultsAreNotCaught(_ request: String, output: String, status: Int32) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let words = request.split(separator: " ").map(String.init)
      let peer = try Child(Peer.executable, [directory.path, "bus-error"] + words)
      let lines = peer.finish().split(separator: "\n").joined(separator: " ")
      #expect(lines == output, "\(request)")
      #expect(peer.exitStatus == status, "\(request)")
    }
  }
}
