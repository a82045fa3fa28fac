import Foundation
import Testing

@testable import Keepsake

/// Backups that are restored while programs use the settings.
@Suite(.singleThreaded) struct RestorationTests {
  static let journal = TemporaryDirectory.journal

  /// Lets a file that was left alone for a tenth of a second, or for two, count as finished.
  private static func later(_ body: () throws -> Void) throws {
    waitForTick()
    try WallClock.$fixed.withValue(WallClock.now + 10 * WallClock.second) { try body() }
  }

  private static func overwrite(_ directory: TemporaryDirectory, with bytes: [UInt8]) throws {
    let file = try File(directory.file(journal).path, .readWrite)
    try #require(ftruncate(file.descriptor, 0) == 0)
    if !bytes.isEmpty { try file.overwrite(bytes.span.bytes, at: 0) }
  }

  @Test(arguments: ["", "notes of the user\n", "[\"keepsake\",\"1:01"])
  func knownValuesStayIfNothingReadsAsAJournal(_ content: String) throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.store(failures: failures)
    let reader = directory.store()
    for key in 0..<3 { try store.set(key, forKey: "k\(key)") }
    #expect(try reader.int("k2") == 2)
    try Self.overwrite(directory, with: Array(content.utf8))
    try Self.later {
      #expect(try reader.int("k2") == 2 && store.int("k2") == 2)
      try store.set(7, forKey: "new")
    }
    for store in [store, reader, directory.store()] {
      #expect(try (0..<3).map { try store.int("k\($0)") } == [0, 1, 2])
      #expect(try store.int("new") == 7)
    }
    #expect(failures.all.map(\.code) == [.damaged])
    let kept = try directory.names().filter { $0.contains(".damaged-") }
    #expect(kept.count == (content.isEmpty ? 0 : 1))
    for name in kept { #expect(try directory.bytes(of: name) == Array(content.utf8)) }
  }

  @Test func writersWaitUntilAnEmptyFileIsRestored() throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.store(failures: failures)
    try store.set("from the backup", forKey: "text")
    let backup = try directory.bytes(of: Self.journal)
    for number in 0..<50 { try store.set(number, forKey: "number") }
    try Self.overwrite(directory, with: [])
    waitForTick()
    let path = directory.file(Self.journal).path
    let emptied = try #require(try FileSystem.status(path, withTimes: true)).changed
    let lockCount = Locked(0)
    let plan = FaultPlan(decide: { event in
      guard event.call == .lock else { return .proceed }
      let count = lockCount.withLock { count in
        count += 1
        return count
      }
      // The writer has found an empty file twice.
      if count == 3 {
        #expect(throws: Never.self) { try Self.overwrite(directory, with: backup) }
      }
      return .proceed
    })
    // The clock stands one second before the file was emptied, and only the distance counts: it is
    // too short for a file that is no journal, and long enough for the restored one, however late
    // that comes.
    try WallClock.$fixed.withValue(emptied - WallClock.second) {
      #expect(try store.int("number") == 49, "reading does not wait")
      try FaultPlan.$current.withValue(plan) { try store.set(1, forKey: "new") }
    }
    #expect(lockCount.withLock { $0 } >= 3)
    for store in [store, directory.store()] {
      #expect(try store.string("text") == "from the backup")
      #expect(try store.int("number") == 0 && store.int("new") == 1)
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  @Test func whatWasKnownIsKeptIfTheRestoredFileIsIncomplete() throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try store.set(2, forKey: "b")
    let backup = try directory.bytes(of: Self.journal)
    try store.set(3, forKey: "c")
    try Self.overwrite(directory, with: Array(backup.dropLast(10)))
    try Self.later { try store.set(4, forKey: "d") }
    #expect(try Set(directory.store().keys()) == ["a", "d"])
    #expect(failures.all.map(\.code) == [.damaged])
    let kept = try #require(try directory.names().first { $0.contains(".previous-") })
    let other = try TemporaryDirectory()
    try other.write(directory.bytes(of: kept), to: Self.journal)
    #expect(try Set(other.store().keys()) == ["a", "b", "c"])
  }

  /// The file has the same inode, the same length and other contents.
  @Test func aRestoredFileOfEqualLengthIsNoticed() throws {
    let directory = try TemporaryDirectory()
    let other = try TemporaryDirectory()
    let store = directory.store()
    try store.set(111, forKey: "a")
    try other.store().set(222, forKey: "a")
    let file = try File(directory.file(Self.journal).path, .readWrite)
    let bytes = try other.bytes(of: Self.journal)
    try file.overwrite(bytes.span.bytes, at: 0)
    try Self.later { try store.set(3, forKey: "b") }
    for store in [store, directory.store()] {
      #expect(try store.int("a") == 222 && store.int("b") == 3)
    }
  }

  /// The restored file has the id of the old one, so words of the old one would fit it.
  @Test(arguments: [false, true]) func aRestoredFileIsWrittenAnew(isDeletedBefore: Bool) throws {
    let directory = try TemporaryDirectory()
    let (store, idle) = (directory.store(), directory.store())
    try store.set(1, forKey: "a")
    let backup = try directory.bytes(of: Self.journal)
    try store.set(2, forKey: "b")
    #expect(try idle.int("b") == 2)
    if isDeletedBefore {
      try FileSystem.remove(directory.file(Self.journal).path)
      try store.journal.locked {}
      try directory.write(backup, to: Self.journal)
    } else {
      try Self.overwrite(directory, with: backup)
    }
    try Self.later { try store.set(3, forKey: "c") }
    #expect(try !idle.contains("b") && idle.int("c") == 3)
  }

  /// The file is deleted before it is restored, so that the one that reads it knows no values.
  @Test(arguments: [true, false])
  func aReadDoesNotMakeAnUnfinishedFileCount(endsWithRecord: Bool) throws {
    let directory = try TemporaryDirectory()
    let location = try JournalPaths(
      directory: StoreDirectory(path: directory.path, isCallerOwned: false), name: "standard")
    let failures = Failures()
    let journal = Journal(
      location: location, timeout: .milliseconds(50), report: failures.append)
    for key in 0..<10 { try journal.set(.int(Int64(key)), forKey: "k\(key)") }
    // A sync in the background would validate the file a second later, and by its own clock.
    try journal.synchronize()
    let backup = try directory.bytes(of: Self.journal)
    let end = try #require(backup[(backup.count / 2)...].firstIndex(of: UInt8(ascii: "\n"))) + 1
    let part = Array(backup[..<(endsWithRecord ? end : end - 10)])
    try FileSystem.remove(location.path)
    try journal.locked {}
    #expect(try journal.value(forKey: "k0") == nil)
    try directory.write(part, to: Self.journal)
    let file = try File(location.path, .readWrite)
    try WallClock.$fixed.withValue(file.status(withTimes: true).changed) { () throws in
      for _ in 0..<2 {
        expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
        #expect(try journal.value(forKey: "k0") == .int(0), "what is there can be read")
      }
    }
    let rest = Array(backup[part.count...])
    try file.overwrite(rest.span.bytes, at: part.count)
    #expect(try journal.value(forKey: "k9") == .int(9), "a read looks again")
    try Self.later { try journal.set(.int(2), forKey: "new") }
    for journal in [journal, Journal(location: location, report: failures.append)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  @Test func aCompactionDoesNotReplaceARestoredFile() throws {
    let directory = try TemporaryDirectory()
    let other = try TemporaryDirectory()
    let store = directory.store()
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    // The file is restored while the compaction writes its own.
    let isRestored = Locked(false)
    let plan = FaultPlan { event in
      guard event.call == .fdatasync, isRestored.withLock({ !$0 }) else { return .proceed }
      isRestored.withLock { $0 = true }
      #expect(throws: Never.self) { try Self.overwrite(directory, with: backup) }
      return .proceed
    }
    try FaultPlan.$current.withValue(plan) { try store.journal.compact() }
    #expect(isRestored.withLock { $0 })
    for store in [directory.store(), store] { #expect(try store.int("b") == 2) }
    #expect(try !store.contains("a"))
  }

  // MARK: Programs that restore

  enum Program: String, CaseIterable {
    case copy = "cp"
    case redirect = "slow redirect"
    case copyAll = "cp -a"
    case move = "mv"
    case tar
    case slowTar = "slow tar"
    case inPlace = "rsync --inplace"

    /// Puts `backup` in place of a file, in the steps of the program.
    func restore(_ backup: [UInt8], to path: String) throws {
      switch self {
      case .copy, .copyAll: try write(backup, to: path, O_TRUNC)
      case .redirect: try write(backup, to: path, O_TRUNC, pause: 30_000)
      case .move:
        let other = path + ".copy"
        try write(backup, to: other, O_CREAT)
        try #require(rename(other, path) == 0)
      case .tar, .slowTar:
        // A writer may make a new file in between.
        unlink(path)
        while try !write(
          backup, to: path, O_CREAT | O_EXCL, pause: self == .tar ? 0 : 30_000)
        {
          unlink(path)
        }
      case .inPlace:
        try write(backup, to: path, 0)
        try #require(truncate(path, backup.count) == 0)
      }
    }

    @discardableResult
    private func write(
      _ bytes: [UInt8], to path: String, _ flags: Int32, pause: UInt32 = 0
    ) throws -> Bool {
      let descriptor = open(path, O_WRONLY | O_CLOEXEC | flags, 0o600)
      if descriptor < 0, errno == EEXIST { return false }
      try #require(descriptor >= 0)
      defer { close(descriptor) }
      let parts = pause > 0 ? 3 : 1
      var rest = bytes[...]
      for part in 0..<parts {
        if pause > 0 { usleep(pause) }
        let count = part == parts - 1 ? rest.count : bytes.count / parts
        let written = rest.prefix(count).withUnsafeBytes {
          Glibc.write(descriptor, $0.baseAddress, count)
        }
        try #require(written == count)
        rest = rest.dropFirst(count)
      }
      return true
    }
  }

  /// After each restore beside a writer and a reader, the values of the backup are there, and every
  /// later set.
  @Test(arguments: Program.allCases)
  func restoringBesideAWriterLosesNothing(_ program: Program) throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.store(failures: failures)
    let text = String(repeating: "from the backup ", count: 20)
    try store.set(text, forKey: "text")
    for number in 0..<20 { try store.set(number, forKey: "k\(number)") }
    let backup = try directory.bytes(of: Self.journal)
    let lockFile = try directory.bytes(of: ".standard.lock")
    for round in 0..<Coverage.count(sample: 2, complete: 40) {
      try store.removeAll()
      try store.set(round, forKey: "number")
      // It knows the journal before the restore begins.
      let reader = directory.store()
      #expect(try reader.int("number") == round)
      let isDone = Locked(false)
      let isStalled = Locked(false)
      let end = DispatchSemaphore(value: 0)
      Thread {
        do {
          usleep(.random(in: 0...20_000))
          let start = ContinuousClock.now
          try program.restore(backup, to: directory.file(Self.journal).path)
          if program == .copyAll {
            try program.restore(lockFile, to: directory.file(".standard.lock").path)
          }
          isStalled.withLock { $0 = ContinuousClock.now - start > .seconds(1) }
        } catch {
          Issue.record(error)
        }
        isDone.withLock { $0 = true }
        end.signal()
      }.start()
      while !isDone.withLock({ $0 }) {
        try store.set(round, forKey: "number")
        _ = try reader.int("number")
        usleep(500)
      }
      end.wait()
      // On a busy machine, a program can pause for so long that it seems to have finished.
      if isStalled.withLock({ $0 }) { continue }
      waitForTick()
      try store.set(round, forKey: "after")
      for store in [store, reader, directory.store()] {
        #expect(try store.string("text") == text, "\(program), \(round)")
        #expect(try store.int("k19") == 19 && store.int("after") == round, "\(program), \(round)")
      }
    }
    // What was set within the tick in which the file was replaced may lie in the restored file.
    #expect(failures.all.allSatisfy { $0.code == .damaged }, "\(program): \(failures.all)")
  }
}
