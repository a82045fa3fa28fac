import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Backups that are restored while programs use the settings.
@Suite(.singleThreaded, .ownThread) struct RestorationTests {
  static let journal = TemporaryDirectory.journal

  private let directory: TemporaryDirectory
  private let failures = Failures()

  init() throws { directory = try TemporaryDirectory() }

  /// Lets a file that is left alone count as finished.
  private static func later(_ body: () throws -> Void) throws {
    waitForTick()
    try WallClock.$fixed.withValue(WallClock.now + 10 * WallClock.second) { try body() }
  }

  /// A program may pause for this long, and has not finished.
  private static let pause = 19 * WallClock.second / 10

  /// What a program has written of a backup when it pauses.
  enum Part: String, CaseIterable {
    case nothing, partOfARecord, wholeRecords

    func bytes(of backup: [UInt8]) throws -> [UInt8] {
      if self == .nothing { return [] }
      let end = try #require(backup[(backup.count / 2)...].firstIndex(of: UInt8(ascii: "\n"))) + 1
      return Array(backup[..<(self == .wholeRecords ? end : end - 10)])
    }
  }

  private static func makeJournal(
    in directory: TemporaryDirectory, timeout: Duration = .milliseconds(50),
    _ failures: Failures = Failures()
  ) throws -> Journal {
    let location = try JournalPaths(
      directory: StoreDirectory(path: directory.path, isCallerOwned: false), name: "standard")
    return Journal(location: location, timeout: timeout, report: failures.append)
  }

  private static func overwrite(_ directory: TemporaryDirectory, with bytes: [UInt8]) throws {
    let file = try File(directory.file(journal).path, .readWrite)
    try #require(ftruncate(file.descriptor, 0) == 0)
    if !bytes.isEmpty { try file.overwrite(bytes.span.bytes, at: 0) }
  }

  @Test(arguments: ["", "notes of the user\n", "[\"keepsake\",\"1:01"])
  func knownValuesStayIfNothingReadsAsAJournal(_ content: String) throws {
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
    #expect(try Self.restoredFiles(in: directory).isEmpty)
    let kept = try directory.names().filter { $0.contains(".damaged-") }
    #expect(kept.count == (content.isEmpty ? 0 : 1))
    for name in kept { #expect(try directory.bytes(of: name) == Array(content.utf8)) }
  }

  @Test func whatWasKnownIsKeptIfTheRestoredFileIsIncomplete() throws {
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
  @Test(arguments: [Part.partOfARecord, .wholeRecords])
  func aReadDoesNotMakeAnUnfinishedFileCount(_ written: Part) throws {
    let journal = try Self.makeJournal(in: directory, failures)
    for key in 0..<10 { try journal.set(.int(Int64(key)), forKey: "k\(key)") }
    // A sync in the background would validate the file a second later, and by its own clock.
    try journal.synchronize()
    let backup = try directory.bytes(of: Self.journal)
    let part = try written.bytes(of: backup)
    try FileSystem.remove(journal.location.path)
    try journal.locked {}
    #expect(try journal.value(forKey: "k0") == nil)
    try directory.write(part, to: Self.journal)
    let file = try File(journal.location.path, .readWrite)
    let time = try file.status(withTimes: true).changed + Self.pause
    try WallClock.$fixed.withValue(time) { () throws in
      for _ in 0..<2 {
        expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
        #expect(try journal.value(forKey: "k0") == .int(0), "what is there can be read")
      }
    }
    let rest = Array(backup[part.count...])
    try file.overwrite(rest.span.bytes, at: part.count)
    #expect(try journal.value(forKey: "k9") == .int(9), "a read looks again")
    try Self.later { try journal.set(.int(2), forKey: "new") }
    for journal in try [journal, Self.makeJournal(in: directory, failures)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Whole records read as a complete journal.
  @Test(arguments: Part.allCases)
  func writersWaitForAProgramThatPauses(after written: Part) throws {
    let journal = try Self.makeJournal(in: directory, failures)
    for key in 0..<10 { try journal.set(.int(Int64(key)), forKey: "k\(key)") }
    try journal.synchronize()
    let backup = try directory.bytes(of: Self.journal)
    try journal.set(.int(1), forKey: "later")
    try journal.synchronize()
    let part = try written.bytes(of: backup)
    try Self.overwrite(directory, with: part)
    waitForTick()
    let file = try File(journal.location.path, .readWrite)
    let time = try file.status(withTimes: true).changed + Self.pause
    try WallClock.$fixed.withValue(time) { () throws in
      expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
      #expect(try journal.value(forKey: "later") == .int(1), "reading does not wait")
    }
    let rest = Array(backup[part.count...])
    try file.overwrite(rest.span.bytes, at: part.count)
    try Self.later { try journal.set(.int(2), forKey: "new") }
    for journal in try [journal, Self.makeJournal(in: directory, failures)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
      #expect(try journal.value(forKey: "later") == nil)
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Each check of the header in a tick gives the same answer as the first one.
  @Test func aReadDoesNotLetAWriterMissARestoredFile() throws {
    let other = try TemporaryDirectory()
    let journal = try Self.makeJournal(in: directory, timeout: .milliseconds(1))
    try journal.set(.int(1), forKey: "a")
    try journal.synchronize()
    try other.store().set(2, forKey: "b")
    try Self.overwrite(directory, with: other.bytes(of: Self.journal))
    waitForTick()
    let path = journal.location.path
    let changed = try #require(try FileSystem.status(path, withTimes: true)).changed
    try WallClock.$fixed.withValue(changed) { () throws in
      for _ in 0..<20 {
        _ = try journal.validate()
        expectFailure(.timedOut) { try journal.locked {} }
      }
    }
    #expect(try directory.bytes(of: Self.journal) == other.bytes(of: Self.journal))
  }

  /// The remedy of a thread that waits too long for another one must not blame that one.
  @Test func eachWriterThatWaitsSaysThatTheFileIsBeingReplaced() throws {
    let journal = try Self.makeJournal(in: directory)
    try journal.set(.int(1), forKey: "k")
    try journal.synchronize()
    try Self.overwrite(directory, with: [])
    waitForTick()
    let path = journal.location.path
    let emptied = try #require(try FileSystem.status(path, withTimes: true)).changed
    let lockCount = Locked(0)
    let reason = Locked("")
    let plan = FaultPlan { event in
      guard event.call == .lock else { return .proceed }
      let count = lockCount.increment()
      // The writer has waited once, and keeps the other threads of the process waiting.
      if count == 2 {
        let end = DispatchSemaphore(value: 0)
        Thread {
          do throws(StorageError) {
            try journal.set(.int(2), forKey: "k")
          } catch {
            reason.withLock { $0 = error.reason ?? "" }
          }
          end.signal()
        }.start()
        end.wait()
      }
      return .proceed
    }
    WallClock.$fixed.withValue(emptied) {
      FaultPlan.$current.withValue(plan) {
        expectFailure(.timedOut) { try journal.set(.int(3), forKey: "k") }
      }
    }
    #expect(reason.withLock { $0 }.contains("another program has been replacing the file"))
  }

  /// A program pauses for so long that the file counts as finished, and goes on right before the
  /// file is replaced or right after.
  @Test(arguments: Part.allCases, [SystemCall.exchange, .unlink])
  func whatIsWrittenTooLateIsKeptAndReported(after written: Part, at call: SystemCall) async throws
  {
    let store = directory.store(failures: failures)
    for key in 0..<10 { try store.set(key, forKey: "k\(key)") }
    let backup = try directory.bytes(of: Self.journal)
    let part = try written.bytes(of: backup)
    try Self.overwrite(directory, with: part)
    let file = try File(directory.file(Self.journal).path, .readWrite)
    try interrupt(before: call) {
      let rest = Array(backup[part.count...])
      try file.overwrite(rest.span.bytes, at: part.count)
      try Self.setTimeInTheFuture(of: file)
    } in: {
      try Journal.$lateWriteDelay.withValue(.milliseconds(1)) {
        try Self.later { try store.set(7, forKey: "new") }
      }
    }
    #expect(try store.int("new") == 7)
    try await eventually("nothing was kept") { try !Self.restoredFiles(in: directory).isEmpty }
    let kept = try #require(try Self.restoredFiles(in: directory).first)
    #expect(try directory.bytes(of: kept) == backup)
    try await eventually("nothing was reported") { !failures.all.isEmpty }
    #expect(failures.all.allSatisfy { $0.code == .damaged })
    // The other cases have two reports, of which the second one within a second is held back.
    if written == .wholeRecords {
      #expect(failures.all.count == 1 && failures.all.first?.remedy.contains(kept) == true)
    }
    #expect(try Self.restoredFiles(in: directory) == [kept])
  }

  /// Temporary files have a dot before such a name.
  private static func restoredFiles(in directory: TemporaryDirectory) throws -> [String] {
    try directory.names().filter { $0.hasPrefix("\(journal).restored-") }
  }

  /// As a program does that restores the times of a file from a machine with another clock.
  private static func setTimeInTheFuture(of file: File) throws {
    let time = timespec(tv_sec: 4_000_000_000, tv_nsec: 0)
    try #require(futimens(file.descriptor, [time, time]) == 0)
  }

  /// A compaction looks at the file when it begins, and puts the new one in place later.
  @Test(arguments: [Program.copy, .move])
  func whatIsRestoredDuringACompactionIsKeptAndReported(by program: Program) async throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    try interrupt(before: .exchange) {
      try program.restore(backup, to: directory.file(Self.journal).path)
    } in: {
      try store.journal.compact()
    }
    #expect(try store.int("a") == 1)
    let kept = try Self.restoredFiles(in: directory)
    #expect(try kept.map { try directory.bytes(of: $0) } == [backup])
    try await eventually("nothing was reported") { !failures.all.isEmpty }
    #expect(failures.all.map(\.code) == [.damaged])
    #expect(failures.all.first?.remedy.contains(kept.first ?? "none") == true)
  }

  /// The restored file keeps its temporary name if it can get no other.
  @Test(arguments: [SystemCall.stat, .read, .rename], [false, true])
  func whatIsRestoredDuringACompactionIsKeptIfACallFails(_ call: SystemCall, always: Bool)
    async throws
  {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try store.journal.synchronize()
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    let isRestored = Locked(false)
    let failureCount = Locked(0)
    let plan = FaultPlan { event in
      if event.call == .exchange {
        isRestored.withLock { $0 = true }
        #expect(throws: Never.self) {
          try Program.copy.restore(backup, to: directory.file(Self.journal).path)
        }
      }
      guard event.call == call, isRestored.withLock({ $0 }) else { return .proceed }
      let isFailing = failureCount.withLock { count in
        count += 1
        return always || count == 1
      }
      return isFailing ? .fail(EIO) : .proceed
    }
    try FaultPlan.$current.withValue(plan) { try store.journal.compact() }
    #expect(failureCount.withLock { $0 } > 0)
    #expect(try store.int("a") == 1)
    let kept = try directory.names().filter { try directory.bytes(of: $0) == backup }
    #expect(kept.count == 1)
    try await eventually("nothing was reported") { !failures.all.isEmpty }
    #expect(failures.all.map(\.code) == [.damaged])
    #expect(failures.all.first?.remedy.contains(kept.first ?? "none") == true)
    #expect(failures.all.first?.underlyingError != nil)
  }

  /// The exchange of names wakes the observer.
  @Test func anObserverThatLooksDuringACompactionSeesNoRestore() throws {
    let journal = try Self.makeJournal(in: directory, failures)
    try journal.set(.int(1), forKey: "a")
    try journal.synchronize()
    let isExchanged = Locked(false)
    let hasLooked = Locked(false)
    let plan = FaultPlan { event in
      if event.call == .exchange { isExchanged.withLock { $0 = true } }
      guard event.call != .exchange, isExchanged.withLock({ $0 }), hasLooked.withLock({ !$0 })
      else { return .proceed }
      hasLooked.withLock { $0 = true }
      #expect(throws: Never.self) { try journal.validate() }
      return .proceed
    }
    try FaultPlan.$current.withValue(plan) { try journal.compact() }
    #expect(hasLooked.withLock { $0 })
    #expect(try Self.restoredFiles(in: directory).isEmpty)
    #expect(try journal.value(forKey: "a") == .int(1))
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// A program deletes the file before it restores it, and the new one gets the name in between.
  @Test func aFileThatIsDeletedAndRestoredDuringACompactionIsKept() async throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    let calls = Locked<[SystemCall]>([])
    let plan = FaultPlan { event in
      let path = directory.file(Self.journal).path
      guard event.call == .exchange || event.call == .rename, event.path.hasSuffix("\0\(path)")
      else { return .proceed }
      let count = calls.withLock { calls in
        calls.append(event.call)
        return calls.count
      }
      #expect(throws: Never.self) {
        if count == 1 { try FileSystem.remove(path) }
        if count == 2 { try directory.write(backup, to: Self.journal) }
      }
      return .proceed
    }
    try FaultPlan.$current.withValue(plan) { try store.journal.compact() }
    #expect(calls.withLock { $0 } == [.exchange, .rename, .exchange])
    #expect(try store.int("a") == 1)
    let kept = try Self.restoredFiles(in: directory)
    #expect(try kept.map { try directory.bytes(of: $0) } == [backup])
    try await eventually("nothing was reported") { !failures.all.isEmpty }
    #expect(failures.all.map(\.code) == [.damaged])
  }

  /// The new file is no file that another program has begun to write.
  @Test func aSetAfterRestoringABackupWhereThereWasNoFileDoesNotWait() throws {
    let other = try TemporaryDirectory()
    try other.store().set(2, forKey: "b")
    let journal = try Self.makeJournal(in: directory)
    let restore = try journal.prepareRestore(from: other.file(Self.journal).path)
    #expect(try restore.commit() == nil)
    try journal.set(.int(1), forKey: "a")
    #expect(try journal.value(forKey: "b") == .int(2) && journal.value(forKey: "a") == .int(1))
  }

  /// A suite has no file yet, and a program begins to restore one.
  @Test(arguments: Part.allCases)
  func writersWaitForAFileThatAppears(after written: Part) throws {
    let other = try TemporaryDirectory()
    let journal = try Self.makeJournal(in: directory, failures)
    #expect(try journal.value(forKey: "k0") == nil)
    for key in 0..<10 { try other.store().set(key, forKey: "k\(key)") }
    let backup = try other.bytes(of: Self.journal)
    let part = try written.bytes(of: backup)
    try directory.write(part, to: Self.journal)
    let file = try File(journal.location.path, .readWrite)
    let time = try file.status(withTimes: true).changed + Self.pause
    WallClock.$fixed.withValue(time) {
      expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
    }
    try file.overwrite(Array(backup[part.count...]).span.bytes, at: part.count)
    try Self.later { try journal.set(.int(2), forKey: "new") }
    for journal in try [journal, Self.makeJournal(in: directory, failures)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// The part that was restored has everything that this process has read, and less than others
  /// have published.
  @Test func aProcessThatKnowsLessThanOthersWaitsForARestore() throws {
    let journals = try (0..<2).map { _ in try Self.makeJournal(in: directory, failures) }
    for key in 0..<10 {
      try journals[0].set(.int(Int64(key)), forKey: "k\(key)")
      if key == 1 { #expect(try journals[1].value(forKey: "k1") == .int(1)) }
    }
    try journals[0].synchronize()
    let backup = try directory.bytes(of: Self.journal)
    let part = try Part.wholeRecords.bytes(of: backup)
    let file = try File(journals[0].location.path, .readWrite)
    try #require(ftruncate(file.descriptor, part.count) == 0)
    waitForTick()
    let time = try file.status(withTimes: true).changed + Self.pause
    WallClock.$fixed.withValue(time) {
      expectFailure(.timedOut) { try journals[1].set(.int(1), forKey: "new") }
    }
    #expect(try directory.bytes(of: Self.journal) == part)
    try file.overwrite(Array(backup[part.count...]).span.bytes, at: part.count)
    try Self.later { try journals[1].set(.int(2), forKey: "new") }
    for journal in journals {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  @Test func aReportSaysThatOtherProcessesKnewMore() throws {
    let (store, other) = (directory.store(failures: failures), directory.store())
    // It would read what the other one has set.
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    #expect(try other.int("a") == 1)
    try other.set(2, forKey: "b")
    try Self.overwrite(directory, with: [])
    try Self.later { try store.set(3, forKey: "c") }
    #expect(try Set(directory.store().keys()) == ["a", "c"])
    #expect(
      failures.all.first?.remedy.contains("without those that other processes set last") == true,
      "\(failures.all)")
  }

  /// Programs that restore a directory may make a link before the file that it leads to.
  @Test func aLinkToNothingIsAnErrorAndNoEndlessLoop() throws {
    let store = directory.store()
    let path = directory.file(Self.journal).path
    try #require(symlink("missing", path) == 0)
    expectFailure(.notFound) { try store.set(1, forKey: "a") }
    expectFailure(.notFound) { _ = try store.update("a", default: 0) { $0 += 1 } }
    #expect(try FileSystem.status(path, followsLinks: false)?.isSymbolicLink == true)
  }

  @Test func noSyncOfADeletedDirectoryIsReported() throws {
    try Self.makeJournal(in: directory).set(.int(1), forKey: "a")
    // The file is not its own, so that it also syncs the directory.
    let journal = try Self.makeJournal(in: directory, failures)
    try journal.set(.int(2), forKey: "a")
    try FileManager.default.removeItem(atPath: directory.path)
    journal.synchronizeInBackground()
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Its files were closed because other stores needed descriptors.
  @Test func aRestoredFileIsLookedAtAgainAfterTheFilesWereClosed() throws {
    let other = try TemporaryDirectory()
    let journal = try Self.makeJournal(in: directory)
    try journal.set(.int(1), forKey: "a")
    try journal.synchronize()
    try other.store().set(2, forKey: "b")
    #expect(journal.file.withLock { $0.closeFiles() })
    try Program.move.restore(
      other.bytes(of: Self.journal), to: directory.file(Self.journal).path)
    let changed = try #require(
      try FileSystem.status(journal.location.path, withTimes: true)
    ).changed
    try WallClock.$fixed.withValue(changed) { () throws in
      #expect(try journal.validate() != nil)
    }
  }

  @Test func aCompactionDoesNotReplaceARestoredFile() throws {
    let other = try TemporaryDirectory()
    let store = directory.store()
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    // The file is restored while the compaction writes its own.
    try interrupt(before: .fdatasync) {
      // The header has been checked in this tick.
      try store.journal.validate()
      try Self.overwrite(directory, with: backup)
    } in: {
      try store.journal.compact()
    }
    try Self.later { () throws in
      for store in [directory.store(), store] { #expect(try store.int("b") == 2) }
      #expect(try !store.contains("a"))
    }
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
      case .redirect: try write(backup, to: path, O_TRUNC, pauses: true)
      case .move:
        let other = path + ".copy"
        try write(backup, to: other, O_CREAT)
        try #require(rename(other, path) == 0)
      case .tar, .slowTar:
        // A writer may make a new file in between.
        unlink(path)
        while try !write(backup, to: path, O_CREAT | O_EXCL, pauses: self == .slowTar) {
          unlink(path)
        }
      case .inPlace:
        try write(backup, to: path, 0)
        try #require(truncate(path, backup.count) == 0)
      }
    }

    @discardableResult
    private func write(
      _ bytes: [UInt8], to path: String, _ flags: Int32, pauses: Bool = false
    ) throws -> Bool {
      let descriptor = open(path, O_WRONLY | O_CLOEXEC | flags, 0o600)
      if descriptor < 0, errno == EEXIST { return false }
      try #require(descriptor >= 0)
      defer { close(descriptor) }
      let parts = pauses ? 3 : 1
      var rest = bytes[...]
      for part in 0..<parts {
        if pauses { waitForTick() }
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
  @Test func restoringBesideAWriterLosesNothing() async throws {
    let programs = Program.allCases
    // They wait for most of the time.
    try await forEach(in: programs, threads: programs.count, Self.restoreBesideAWriter)
  }

  private static func restoreBesideAWriter(_ program: Program) throws {
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
          waitForARandomMoment(upTo: .milliseconds(20))
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
        waitForARandomMoment(upTo: .milliseconds(1))
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
