import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Backups that are restored while programs use the settings.
@Suite(.singleThreaded, .ownThread) struct RestorationTests {
  private static let journal = TemporaryDirectory.journal
  private static let previous = "\(journal).previous"

  private let directory: TemporaryDirectory
  private let failures = Failures()

  init() throws { directory = try TemporaryDirectory() }

  /// Lets a file that is left alone count as finished.
  private static func later(_ body: () throws -> Void) throws {
    try WallClock.$fixed.withValue(WallClock.now + 10 * WallClock.second) { try body() }
  }

  /// The time at which a program that pauses has not finished yet.
  private static func beforeTheEndOfThePause(of path: String) throws -> Int64 {
    let status = try #require(try FileSystem.status(path, withTimes: true))
    return status.changed + 19 * WallClock.second / 10
  }

  /// What a program has written of a backup when it pauses.
  enum Part: String, CaseIterable {
    case nothing, partOfARecord, wholeRecords

    func bytes(of backup: [UInt8]) throws -> [UInt8] {
      if self == .nothing { return [] }
      let end = try #require(backup[(backup.count / 2)...].firstIndex(of: UInt8(ascii: "\n"))) + 1
      return Array(backup[..<(self == .wholeRecords ? end : end - 10)])
    }
  }

  private func makeJournal(_ failures: Failures = Failures()) -> Journal {
    let journal = directory.journal(report: failures.append)
    journal.lookOnlyWhenUsed()
    return journal
  }

  private func overwrite(with bytes: [UInt8]) throws {
    try Bytes.write(bytes, to: directory.file(Self.journal).path)
  }

  private func append(_ bytes: some Sequence<UInt8>, at position: Int) throws {
    try File(directory.file(Self.journal).path, .readWrite)
      .overwrite(Array(bytes).span.bytes, at: position)
  }

  /// A store of the values that were kept.
  private func keptValues() throws -> Defaults.Store {
    let copy = try TemporaryDirectory(isQuick: true)
    try copy.write(directory.bytes(of: Self.previous), to: Self.journal)
    return copy.store()
  }

  private func keptKeys() throws -> Set<String> { try Set(keptValues().keys()) }

  private func expectKept(_ keys: Set<String>) throws {
    waitUntil("the loss is reported") {
      failures.all.contains { $0.path?.hasSuffix("previous") == true }
    }
    #expect(try keptKeys() == keys)
    #expect(
      failures.all.allSatisfy { $0.code == .damaged && $0.severity == .warning },
      "\(failures.all)")
  }

  // MARK: Files that are not whole

  /// Deleting the file removes all settings, but a program that empties it may be about to write.
  @Test func anEmptiedFileHasNoValuesOnceItHasSettled() throws {
    let store = directory.store(failures: failures)
    let reader = directory.store()
    for store in [store, reader] { try store.journal.lookOnlyWhenUsed() }
    for key in 0..<3 { try store.set(key, forKey: "k\(key)") }
    // As in `aReadDoesNotMakeAnUnfinishedFileCount`.
    try store.synchronize()
    #expect(try reader.int("k2") == 2)
    try overwrite(with: [])
    try WallClock.$fixed.withValue(
      Self.beforeTheEndOfThePause(of: directory.file(Self.journal).path)
    ) { () throws in
      #expect(try reader.int("k2") == 2 && store.int("k2") == 2)
    }
    try Self.later { try store.set(7, forKey: "new") }
    for store in [store, reader, directory.store()] { #expect(try store.keys() == ["new"]) }
    try expectKept(["k0", "k1", "k2"])
  }

  /// Of all running processes, only one that does not write knew the values.
  @Test func aReaderKeepsTheValuesOfAnEmptiedFile() throws {
    let other = try TemporaryDirectory(isQuick: true)
    for key in 0..<3 { try other.store().set(key, forKey: "k\(key)") }
    try directory.write(other.bytes(of: Self.journal), to: Self.journal)
    let reader = directory.store(failures: failures)
    try reader.journal.lookOnlyWhenUsed()
    #expect(try reader.int("k2") == 2)
    try overwrite(with: [])
    try Self.later {
      try directory.store().set(7, forKey: "new")
      #expect(try reader.keys() == ["new"])
    }
    try expectKept(["k0", "k1", "k2"])
  }

  /// As with `: > file`. The program that writes next knows none of the values.
  @Test(.multiprocess) func aFollowerKeepsTheValuesOfAnEmptiedFile() throws {
    let follower = try Peer.start(directory, "hazards")
    for request in ["set settings a old", "set settings k first", "follow k"] {
      try #require(try follower.ask(request) == "ok")
    }
    let path = directory.file(Self.journal).path
    let shell = try Child("/bin/sh", ["-c", ": > \"$0\"", path], mergesErrors: true)
    #expect(shell.finish() == "")
    let writer = try Peer.start(directory, "hazards")
    #expect(try writer.ask("set settings k second") == "ok")
    #expect(writer.finish() == "")
    var (reports, isChanged): ([String], Bool) = ([], false)
    while !isChanged || reports.isEmpty {
      let line = try #require(follower.line())
      if line.hasPrefix("report ") { reports.append(line) }
      if line == "changed second" { isChanged = true }
    }
    let kept = try keptValues()
    #expect(try Set(kept.keys()) == ["a", "k"])
    #expect(try kept.string("a") == "old" && kept.string("k") == "first")
    #expect(try follower.ask("get settings a") == "nil")
    #expect(try follower.ask("get settings k") == "second")
    #expect(follower.finish() == "")
    #expect(reports.count == 1 && reports[0].contains(directory.file(Self.previous).path))
    #expect(try directory.names() == [Self.journal, Self.previous])
  }

  @Test func aForeignFileIsAnErrorOnceItHasSettled() throws {
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    let notes = Array("notes of the user\n".utf8)
    try overwrite(with: notes)
    try Self.later {
      expectFailure(.damaged) { try store.set(2, forKey: "b") }
      expectFailure(.damaged) { _ = try store.int("a") }
    }
    #expect(try directory.bytes(of: Self.journal) == notes)
    try expectKept(["a"])
  }

  @Test func whatWasKnownIsKeptIfTheRestoredFileIsIncomplete() throws {
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try store.set(2, forKey: "b")
    let backup = try directory.bytes(of: Self.journal)
    try store.set(3, forKey: "c")
    try overwrite(with: Array(backup.dropLast(10)))
    try Self.later { try store.set(4, forKey: "d") }
    #expect(try Set(directory.store().keys()) == ["a", "d"])
    try expectKept(["a", "b", "c"])
    #expect(failures.all.count == 2, "the damage and the loss: \(failures.all)")
  }

  /// The file is deleted before it is restored, so that the one that reads it knows no values.
  @Test(arguments: [Part.partOfARecord, .wholeRecords])
  func aReadDoesNotMakeAnUnfinishedFileCount(_ written: Part) throws {
    let journal = makeJournal(failures)
    for key in 0..<10 { try journal.set(.int(Int64(key)), forKey: "k\(key)") }
    // A sync in the background would validate the file a second later, and by its own clock.
    try journal.synchronize()
    let backup = try directory.bytes(of: Self.journal)
    let part = try written.bytes(of: backup)
    try FileSystem.remove(journal.location.path)
    try journal.validate()
    #expect(try journal.value(forKey: "k0") == nil)
    try directory.write(part, to: Self.journal)
    try WallClock.$fixed.withValue(Self.beforeTheEndOfThePause(of: journal.location.path)) {
      () throws in
      for _ in 0..<2 {
        expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
        #expect(try journal.value(forKey: "k0") == .int(0), "what is there can be read")
      }
    }
    try append(backup[part.count...], at: part.count)
    #expect(try journal.value(forKey: "k9") == .int(9), "a read looks again")
    try journal.set(.int(2), forKey: "new")
    for journal in [journal, makeJournal(failures)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// A file that grows is complete as soon as it has the length that it says.
  @Test(arguments: Part.allCases)
  func writersWaitForAProgramThatPauses(after written: Part) throws {
    let journal = makeJournal(failures)
    for key in 0..<10 { try journal.set(.int(Int64(key)), forKey: "k\(key)") }
    let backup = try directory.bytes(of: Self.journal)
    try journal.set(.int(1), forKey: "later")
    try journal.synchronize()
    let part = try written.bytes(of: backup)
    try overwrite(with: part)
    try WallClock.$fixed.withValue(Self.beforeTheEndOfThePause(of: journal.location.path)) {
      () throws in
      expectFailure(.timedOut) { try journal.set(.int(1), forKey: "new") }
      #expect(try journal.value(forKey: "later") == .int(1), "reading does not wait")
    }
    try append(backup[part.count...], at: part.count)
    try journal.set(.int(2), forKey: "new")
    for journal in [journal, makeJournal(failures)] {
      for key in 0..<10 { #expect(try journal.value(forKey: "k\(key)") == .int(Int64(key))) }
      #expect(try journal.value(forKey: "new") == .int(2))
      #expect(try journal.value(forKey: "later") == nil)
    }
    waitUntil("the loss is reported") { !failures.all.isEmpty }
    #expect(try keptKeys().contains("later"))
  }

  /// The remedy of a thread that waits too long for another one must not blame that one.
  @Test func eachWriterThatWaitsSaysThatTheFileIsBeingReplaced() throws {
    let journal = makeJournal()
    try journal.set(.int(1), forKey: "k")
    try journal.synchronize()
    try overwrite(with: [])
    let path = journal.location.path
    let emptied = try #require(try FileSystem.status(path, withTimes: true)).changed
    let reason = Locked<String?>(nil)
    // On a busy machine, a writer may reach its timeout before it has waited once.
    waitUntil("no writer waits") {
      let lockCount = Locked(0)
      let plan = FaultPlan { event in
        guard event.call == .lock else { return .proceed }
        // The writer has waited once, and keeps the other threads of the process waiting.
        if lockCount.increment() == 3 {
          startThread {
            do throws(StorageError) {
              try journal.set(.int(2), forKey: "k")
            } catch {
              reason.withLock { $0 = error.reason }
            }
          }.wait()
        }
        return .proceed
      }
      WallClock.$fixed.withValue(emptied) {
        FaultPlan.$current.withValue(plan) {
          expectFailure(.timedOut) { try journal.set(.int(3), forKey: "k") }
        }
      }
      return lockCount.withLock { $0 } >= 3
    }
    let found = reason.withLock { $0 }
    #expect(found?.contains("another program has been replacing the file") == true)
  }

  /// A file that cannot hold a header, such as one that is mounted into a container.
  @Test func anEmptyFileCanBeSet() throws {
    try directory.write([], to: Self.journal)
    try Self.later { try directory.store(failures: failures).set(1, forKey: "a") }
    #expect(try directory.store().int("a") == 1)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  // MARK: Whole files

  /// The file has the same inode, the same length and other contents.
  @Test func aRestoredFileOfEqualLengthIsNoticed() throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(111, forKey: "a")
    try other.store().set(222, forKey: "a")
    try append(other.bytes(of: Self.journal), at: 0)
    #expect(try store.int("a") == 222)
    try store.set(3, forKey: "b")
    for store in [store, directory.store()] {
      #expect(try store.int("a") == 222 && store.int("b") == 3)
    }
    try expectKept(["a"])
  }

  /// As a backup of another machine that is copied over the open file.
  @Test func aLongerFileWithAnotherIDIsNoticed() throws {
    let other = try TemporaryDirectory()
    let (store, foreign) = (directory.store(failures: failures), other.store())
    try store.set(1, forKey: "a")
    for number in 0..<20 { try foreign.set(number, forKey: "k\(number)") }
    try append(other.bytes(of: Self.journal), at: 0)
    try Self.later { try store.set(3, forKey: "b") }
    for store in [store, directory.store()] {
      #expect(try store.keys().count == 21 && store.int("k19") == 19 && store.int("b") == 3)
    }
    try expectKept(["a"])
  }

  /// The restored file has the id of the old one, so words of the old one would fit it.
  @Test(arguments: Program.allCases, [false, true])
  func aRestoredFileIsWrittenAnew(by program: Program, isReadBefore: Bool) throws {
    let (store, idle) = (directory.store(failures: failures), directory.store())
    try store.set(1, forKey: "a")
    let backup = try directory.bytes(of: Self.journal)
    try store.set(2, forKey: "b")
    #expect(try idle.int("b") == 2)
    try program.restore(backup, to: directory.file(Self.journal).path)
    if isReadBefore {
      waitUntil("the restored file is noticed") { (try? store.contains("b")) == false }
    }
    try Self.later { try store.set(3, forKey: "c") }
    let id = try store.journal.loaded.withLock { $0.id }
    let header = backup.withUnsafeBytes { JournalFormat.header(of: $0) }
    #expect(header != .valid(id: id, isIntact: true), "the file has the id of the old one")
    try expectKept(["a", "b"])
    try idle.set(4, forKey: "d")
    #expect(try !idle.contains("b") && idle.int("c") == 3)
    #expect(try store.int("d") == 4)
  }

  /// The new file is no file that another program has begun to write.
  @Test func aSetAfterRestoringABackupWhereThereWasNoFileDoesNotWait() throws {
    let other = try TemporaryDirectory()
    try other.store().set(2, forKey: "b")
    let journal = makeJournal()
    let restore = try journal.prepareRestore(from: other.file(Self.journal).path)
    #expect(try restore.commit() == nil)
    try journal.set(.int(1), forKey: "a")
    #expect(try journal.value(forKey: "b") == .int(2) && journal.value(forKey: "a") == .int(1))
  }

  // MARK: Programs that restore at the same moment

  /// A compaction looks at the file when it begins, and puts the new one in place later.
  @Test(arguments: [SystemCall.fdatasync, .exchange])
  func aCompactionDoesNotReplaceARestoredFile(_ call: SystemCall) throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    try interrupt(before: call) {
      try Program.move.restore(backup, to: directory.file(Self.journal).path)
    } in: {
      try store.journal.compact()
    }
    #expect(try directory.bytes(of: Self.journal) == backup)
    try store.set(3, forKey: "c")
    for store in [directory.store(), store] { #expect(try Set(store.keys()) == ["b", "c"]) }
    try expectKept(["a"])
    #expect(try directory.names().allSatisfy { !$0.hasSuffix(".tmp") })
  }

  /// While the compaction syncs what was set in the meantime, under the lock.
  @Test func aCompactionDoesNotBringBackADeletedFile() throws {
    let (store, other) = (directory.store(failures: failures), directory.store())
    for store in [store, other] { try keepFromBackgroundSync(store) }
    try store.set(1, forKey: "a")
    try interrupt(before: .fdatasync) {
      try other.set(2, forKey: "b")
    } in: {
      try interrupt(before: .fdatasync, number: 2) {
        try FileSystem.remove(directory.file(Self.journal).path)
      } in: {
        try store.journal.compact()
      }
    }
    #expect(try directory.names() == [])
    for store in [store, other] { #expect(try store.keys() == []) }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// A program deletes the file before it restores it, and the new one gets the name in between.
  @Test func aFileThatIsDeletedAndRestoredDuringACompactionStays() throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    let count = Locked(0)
    let plan = FaultPlan { event in
      let path = directory.file(Self.journal).path
      guard event.call == .exchange || event.call == .rename, event.path.hasSuffix("\0\(path)")
      else { return .proceed }
      #expect(throws: Never.self) {
        switch count.increment() {
        case 1: try FileSystem.remove(path)
        case 2: try directory.write(backup, to: Self.journal)
        default: break
        }
      }
      return .proceed
    }
    try FaultPlan.$current.withValue(plan) { try store.journal.compact() }
    #expect(try store.int("b") == 2 && directory.bytes(of: Self.journal) == backup)
  }

  /// A read finds no file or fails after a compaction has copied the values.
  @Test(arguments: [false, true])
  func aCompactionKeepsWhatAReadHasMissed(isAway: Bool) throws {
    let store = directory.store(failures: failures)
    let journal = try store.journal
    journal.lookOnlyWhenUsed()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    let (path, away) = (journal.location.path, directory.path + "/away")
    try interrupt(before: .fdatasync) {
      if isAway {
        try FileSystem.rename(path, to: away)
        try journal.validate()
        try FileSystem.rename(away, to: path)
      } else {
        let plan = FaultPlan(decide: { $0.call == .stat ? .fail(EIO) : .proceed })
        FaultPlan.$current.withValue(plan) {
          expectFailure(.system(EIO)) { try journal.validate() }
        }
      }
      try store.set(2, forKey: "b")
    } in: {
      try journal.compact()
    }
    for store in [store, directory.store()] { #expect(try Set(store.keys()) == ["a", "b"]) }
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// A read has found another file, which was there for a moment.
  @Test func anUpdateReadsTheFileThatItWrites() throws {
    let other = try TemporaryDirectory()
    try other.store().set(5, forKey: "n")
    let journal = makeJournal(failures)
    try journal.set(.int(1), forKey: "n")
    let (path, away) = (journal.location.path, directory.path + "/away")
    try FileSystem.rename(path, to: away)
    try directory.write(other.bytes(of: Self.journal), to: Self.journal)
    try Self.later { try journal.validate() }
    #expect(try journal.value(forKey: "n") == .int(5))
    try FileSystem.rename(away, to: path)
    var old: StoredValue?
    try journal.update("n") {
      old = $0
      return .some(.int(2))
    }
    #expect(old == .int(1))
    #expect(try directory.store().int("n") == 2)
    waitUntil("both losses are reported") { failures.all.count == 2 }
  }

  /// For the other readers of the old file, the new one then is a writer's.
  @Test func aWriterThatFindsARestoredFileKeepsWhatOthersHaveSet() throws {
    let other = try TemporaryDirectory()
    try other.store().set(7, forKey: "z")
    let (store, setter) = (directory.store(failures: failures), directory.store())
    for store in [store, setter] { try store.journal.lookOnlyWhenUsed() }
    try store.set(1, forKey: "a")
    try setter.set(2, forKey: "b")
    try Program.move.restore(
      other.bytes(of: Self.journal), to: directory.file(Self.journal).path)
    try Self.later { try store.set(3, forKey: "c") }
    #expect(try Set(setter.keys()) == ["c", "z"])
    try expectKept(["a", "b"])
  }

  /// The file of the other program has the name of the compaction's by then.
  @Test(arguments: [EIO, EACCES])
  func aRestoredFileThatCannotBeExchangedBackIsKept(_ code: Int32) throws {
    let other = try TemporaryDirectory()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    let backup = try other.bytes(of: Self.journal)
    let count = Locked(0)
    let plan = FaultPlan { event in
      guard event.call == .exchange else { return .proceed }
      if count.increment() > 1 { return .fail(code) }
      #expect(throws: Never.self) {
        try Program.move.restore(backup, to: directory.file(Self.journal).path)
      }
      return .proceed
    }
    FaultPlan.$current.withValue(plan) {
      #expect(throws: StorageError.self) { try store.journal.compact() }
    }
    let kept = try #require(try directory.names().first { $0.contains(".replaced-") })
    #expect(try directory.bytes(of: kept) == backup && directory.store().int("a") == 1)
  }

  // MARK: Others

  /// Another program has moved it away for a moment.
  @Test(arguments: [false, true]) func aJournalThatIsPutBackIsTheSame(isUsed: Bool) throws {
    let (store, reader) = (directory.store(failures: failures), directory.store(failures: failures))
    // A watch that begins while the other file has the path would adopt it.
    for store in [store, reader] { try store.journal.lookOnlyWhenUsed() }
    try store.set(1, forKey: "a")
    #expect(try reader.int("a") == 1)
    let (path, away) = (directory.file(Self.journal).path, directory.path + "/away")
    let other = try TemporaryDirectory()
    try other.store().set(2, forKey: "b")
    for _ in 0..<3 {
      try FileSystem.rename(path, to: away)
      try directory.write(other.bytes(of: Self.journal), to: Self.journal)
      // A read looks only at the file that is open.
      if isUsed { #expect(try reader.keys() == ["a"] && reader.int("a") == 1) }
      try FileSystem.rename(away, to: path)
      #expect(try reader.int("a") == 1 && reader.keys() == ["a"])
    }
    try store.set(3, forKey: "a")
    #expect(try reader.int("a") == 3 && directory.store().int("a") == 3)
    #expect(try directory.names() == [Self.journal])
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Programs that restore a directory may make a link before the file that it leads to.
  @Test func aLinkToNothingIsAnErrorAndNoEndlessLoop() throws {
    let store = directory.store()
    let path = directory.file(Self.journal).path
    for target in ["missing/file", "link"] {
      try directory.link(Self.journal, to: target)
      if target == "link" { try directory.link(target, to: "missing") }
      expectFailure(.notFound) { try store.set(1, forKey: "a") }
      expectFailure(.notFound) { _ = try store.update("a", default: 0) { $0 += 1 } }
      #expect(try FileSystem.status(path, followsLinks: false)?.isSymbolicLink == true)
      try FileSystem.unlink(path)
    }
  }

  @Test func noSyncOfADeletedDirectoryIsReported() throws {
    try makeJournal().set(.int(1), forKey: "a")
    // The file is not its own, so that it also syncs the directory.
    let journal = makeJournal(failures)
    try journal.set(.int(2), forKey: "a")
    try FileManager.default.removeItem(atPath: directory.path)
    journal.synchronizeInBackground()
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  // MARK: Programs that restore

  enum Program: String, CaseIterable {
    case copy = "cp"
    case redirect = "slow redirect"
    case move = "mv"
    case tar
    case slowTar = "slow tar"
    case inPlace = "rsync --inplace"

    /// Puts `backup` in place of a file, in the steps of the program.
    func restore(_ backup: [UInt8], to path: String) throws {
      switch self {
      case .copy: try write(backup, to: path, O_TRUNC)
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
        try #require(truncate(path, off_t(backup.count)) == 0)
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
    let roundCount = Coverage.count(sample: 2, complete: 40)
    var (round, spoiledCount) = (0, 0)
    while round < roundCount, spoiledCount < 10 {
      let reportCount = failures.all.count
      try store.removeAll()
      try store.set(round, forKey: "number")
      // It knows the journal before the restore begins.
      let reader = directory.store()
      #expect(try reader.int("number") == round)
      let isDone = Locked(false)
      let isStalled = Locked(false)
      let end = startThread {
        do {
          waitForARandomMoment(upTo: .milliseconds(20))
          let start = ContinuousClock.now
          try program.restore(backup, to: directory.file(Self.journal).path)
          isStalled.withLock { $0 = ContinuousClock.now - start > .seconds(1) }
        } catch {
          Issue.record(error)
        }
        isDone.withLock { $0 = true }
      }
      while !isDone.withLock({ $0 }) {
        try store.set(round, forKey: "number")
        _ = try reader.int("number")
        waitForARandomMoment(upTo: .milliseconds(1))
      }
      end.wait()
      let isOverwritten = try isOverwritten(directory.bytes(of: Self.journal), backup)
      try store.set(round, forKey: "after")
      let isWhole = try store.string("text") == text && store.int("k19") == 19
      // On a busy machine, a program can pause for so long that it seems to have finished, and it
      // can write in place right before a writer's write, which then damages what it has written
      // or says that the journal is the writer's.
      if isStalled.withLock({ $0 }) || isOverwritten
        || !isWhole && failures.all.count > reportCount
      {
        spoiledCount += 1
        continue
      }
      let other = directory.store()
      #expect(try isWhole && store.int("after") == round, "\(program), \(round)")
      #expect(try other.string("text") == text && other.int("k19") == 19, "\(program), \(round)")
      #expect(try other.int("after") == round, "\(program), \(round)")
      // The next set of a reader looks at the path.
      try reader.set(round, forKey: "reader")
      #expect(try reader.string("text") == text && store.int("reader") == round, "\(program)")
      round += 1
    }
    #expect(round == roundCount, "\(program): each round is spoiled: \(failures.all)")
    // What was set in the moment in which the file was replaced may lie in the restored file.
    #expect(failures.all.allSatisfy { $0.code == .damaged }, "\(program): \(failures.all)")
  }

  /// Whether a writer that did not know of the backup has written into its bytes.
  private static func isOverwritten(_ bytes: [UInt8], _ backup: [UInt8]) -> Bool {
    guard bytes.count >= backup.count,
      case .valid(let id, _) = backup.withUnsafeBytes({ JournalFormat.header(of: $0) })
    else { return true }
    let word = JournalWord.offset..<JournalWord.offset + JournalWord.size
    let bits = bytes.withUnsafeBytes {
      $0.loadUnaligned(fromByteOffset: word.lowerBound, as: UInt64.self)
    }
    return JournalWord(bits: bits).end(of: id) == nil
      || bytes[..<word.lowerBound] != backup[..<word.lowerBound]
      || bytes[word.upperBound..<backup.count] != backup[word.upperBound...]
  }
}
