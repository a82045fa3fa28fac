import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Damaged files, and files that users or other programs change, replace or delete.
@Suite(.proofThread, .singleThreaded) struct JournalDamageTests {
  static let journal = TemporaryDirectory.journal

  /// A journal in which k0 was set twice, and its expected values.
  static func sample() throws -> [UInt8] {
    let directory = try TemporaryDirectory()
    let store = directory.store()
    for key in 0..<5 { try store.set(key, forKey: "k\(key)") }
    try store.set(100, forKey: "k0")
    return try directory.bytes(of: journal)
  }

  /// Makes a journal whose only record is damaged.
  private static func makeDamagedJournal(in directory: TemporaryDirectory) throws {
    try directory.store().set(1, forKey: "a")
    var bytes = try directory.bytes(of: journal)
    bytes[JournalFormat.headerSize + 4] ^= 1
    try directory.write(bytes, to: journal)
  }

  static func values(_ store: Defaults.Store) throws -> [Int?] {
    try (0..<5).map { try store.get("k\($0)") }
  }

  @Test func flippedByteIsReportedOnceAndLosesOneRecord() throws {
    let sample = try Self.sample()
    for position in Coverage.cases(Array(sample.indices), every: 3, from: 1) {
      let directory = try TemporaryDirectory(isQuick: true)
      var bytes = sample
      bytes[position] ^= 0x01
      try directory.write(bytes, to: Self.journal)
      let failures = Failures()
      let values = try anHourLater { try Self.values(directory.store(failures: failures)) }
      let intact: [Int?] = [100, 1, 2, 3, 4]
      let wrong = values.indices.filter { values[$0] != intact[$0] }
      #expect(wrong.count <= 1, "byte \(position)")
      for index in wrong {
        // Missing, or the previous value.
        #expect(values[index] == nil || index == 0 && values[index] == 0, "byte \(position)")
      }
      #expect(failures.all.map(\.code) == [.damaged], "byte \(position): \(failures.all)")
      let aside = try directory.names().filter { $0.contains(".damaged-") }
      #expect(aside.count == 1, "byte \(position)")
      if let name = aside.first { #expect(try directory.bytes(of: name) == bytes) }

      // The file has been repaired, so the next store reports nothing.
      let again = Failures()
      #expect(try Self.values(directory.store(failures: again)) == values)
      #expect(again.all.isEmpty)
    }
  }

  /// As of a file that has a hole: memory for all of it could not be found.
  @Test func aFileOfAnySizeIsReadUpToItsWord() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "k")
    let path = directory.file(Self.journal).path
    #expect(truncate(path, 1 << 40) == 0)
    let store = directory.store()
    #expect(try store.int("k") == 1)
    let word = try File(path, .read).read(from: JournalWord.offset, count: JournalWord.size)
    try File(path, .readWrite).overwrite([0].span.bytes, at: JournalWord.offset)
    let other = directory.store()
    expectFailure(.misuse) { _ = try other.int("k") }
    expectFailure(.misuse) { try other.set(2, forKey: "k") }
    #expect(try FileSystem.status(path)?.size == 1 << 40)
    try File(path, .readWrite).overwrite(word.span.bytes, at: JournalWord.offset)
    try other.set(3, forKey: "k")
    #expect(try store.int("k") == 3)
    #expect(try #require(try FileSystem.status(path)).size < 1 << 20)
  }

  @Test func onlyTheStartOfAForeignFileIsRead() throws {
    let directory = try TemporaryDirectory()
    try directory.write(Array("a film".utf8), to: Self.journal)
    #expect(truncate(directory.file(Self.journal).path, 1 << 28) == 0)
    let store = directory.store()
    let count = Locked(0)
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, result in
        guard event.call == .read, case .success(let read) = result else { return }
        count.withLock { $0 += read }
      })
    anHourLater {
      FaultPlan.$current.withValue(plan) {
        expectFailure(.damaged) { _ = try store.int("k") }
        expectFailure(.damaged) { try store.set(1, forKey: "k") }
      }
    }
    #expect(count.withLock { $0 } < 1 << 12)
  }

  @Test func aTruncatedFileIsDamagedAndKeepsItsWholeRecords() throws {
    let sample = try Self.sample()
    for count in Coverage.cases(Array(sample.indices), every: 3) {
      let directory = try TemporaryDirectory(isQuick: true)
      try directory.write(Array(sample.prefix(count)), to: Self.journal)
      let failures = Failures()
      let store = directory.store(failures: failures)
      let values = try Self.values(store)
      for (index, value) in values.enumerated() {
        #expect(value == nil || value == index || index == 0 && value == 100, "length \(count)")
      }
      try anHourLater { try store.set(7, forKey: "new") }
      let reader = directory.store(failures: failures)
      #expect(try Self.values(reader) == values)
      #expect(try reader.int("new") == 7)
      // An empty file has no values.
      #expect(failures.all.map(\.code) == (count == 0 ? [] : [.damaged]), "length \(count)")
      #expect(try directory.names().contains { $0.contains("damaged") } == (count > 0))
    }
  }

  /// Beside it, nothing can be made at first.
  @Test(arguments: [1, 50, 89, nil]) func aFileWithoutAHeaderIsNotWrittenTo(_ count: Int?) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let sample = try Self.sample()
    let bytes = count.map { Array(sample.prefix($0)) } ?? sample.map { _ in 0 }
    try directory.write(bytes, to: Self.journal)
    let store = directory.store()
    try keepFromBackgroundSync(store)
    let plan = FaultPlan(decide: { event in
      event.path.hasSuffix(".tmp") ? .fail(EROFS) : .proceed
    })
    try anHourLater { () throws in
      FaultPlan.$current.withValue(plan) {
        for _ in 0..<2 { expectFailure(.damaged) { try store.set(1, forKey: "k") } }
      }
      #expect(try directory.bytes(of: Self.journal) == bytes)
      try store.set(2, forKey: "k")
    }
    #expect(try store.int("k") == 2 && directory.store().int("k") == 2)
    let copies = try directory.names().filter { $0.contains(".damaged-") }
    #expect(try copies.map { try directory.bytes(of: $0) } == [bytes])
  }

  /// A forked child may still have the old file open.
  @Test func aRepairReleasesTheLockOfTheOldFile() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.store()
    try store.set(1, forKey: "a")
    let old = try #require(try store.journal.writer.withLock { $0.handle }).file
    let word = JournalWord.offset
    try Bytes.write(directory.bytes(of: Self.journal)[word] ^ 1, at: word, of: old.path)
    try anHourLater { try store.set(2, forKey: "b") }
    #expect(try old.status().linkCount == 0)
    #expect(try File("/proc/self/fd/\(old.descriptor)", .read).tryLock())
  }

  /// The next record must not follow a hole.
  @Test func aWriterNoticesThatItsFileWasTruncated() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let failures = Failures()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try store.set(2, forKey: "b")
    let size = try directory.bytes(of: Self.journal).count
    try #require(truncate(directory.file(Self.journal).path, off_t(size - 3)) == 0)
    try anHourLater { try store.set(3, forKey: "c") }
    let reader = directory.store(failures: failures)
    #expect(try reader.int("a") == 1 && !reader.contains("b") && reader.int("c") == 3)
    #expect(failures.all.contains { $0.remedy.contains(".damaged-") }, "\(failures.all)")
  }

  @Test func compactionRepairsDamageFromTheTable() throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "a")
    try store.set(2, forKey: "b")
    let intact = try directory.bytes(of: Self.journal)
    for position in stride(from: 0, to: intact.count, by: 7) {
      let byte = try directory.bytes(of: Self.journal)[position]
      try Bytes.write(byte ^ 1, at: position, of: directory.file(Self.journal).path)
      try store.journal.compact()
      #expect(try [store.int("a"), store.int("b")] == [1, 2], "byte \(position)")
      let reader = directory.store(failures: failures)
      #expect(try [reader.int("a"), reader.int("b")] == [1, 2], "byte \(position)")
    }
    #expect(Set(failures.all.map(\.code)) == [.damaged])
    #expect(try directory.names().contains { $0.contains(".damaged-") })
  }

  @Test func storeStartsEmptyAfterItsFileIsDeleted() throws {
    let directory = try TemporaryDirectory()
    let store = directory.store()
    let reader = directory.store()
    try store.set(1, forKey: "a")
    #expect(try reader.int("a") == 1)
    try FileManager.default.removeItem(at: directory.file(Self.journal))
    _ = try reader.int("a")
    try store.set(2, forKey: "b")
    try reader.set(3, forKey: "c")
    for store in [store, reader, directory.store()] {
      #expect(try !store.contains("a"))
      #expect(try store.int("b") == 2)
    }
  }

  @Test func storeStartsEmptyAfterItsDirectoryIsDeleted() throws {
    let directory = try TemporaryDirectory()
    let inner = TemporaryDirectory("inner", in: directory)
    let store = inner.store()
    try store.set(1, forKey: "a")
    try FileManager.default.removeItem(at: inner.url)
    try store.set(2, forKey: "b")
    #expect(try store.keys() == ["b"])
    #expect(FileManager.default.fileExists(atPath: inner.file(Self.journal).path))
  }

  /// The new file is as long as the old one.
  @Test func storeReloadsAReplacedFile() throws {
    let directory = try TemporaryDirectory()
    let other = try TemporaryDirectory()
    let store = directory.store()
    try store.set(1, forKey: "a")
    try other.store().set(2, forKey: "b")
    try FileSystem.rename(other.file(Self.journal).path, to: directory.file(Self.journal).path)
    try anHourLater { try store.set(3, forKey: "c") }
    #expect(try Set(store.keys()) == ["b", "c"])
  }

  @Test func throwsWhenTheFileIsForeignAndLeavesIt() throws {
    let directory = try TemporaryDirectory()
    let text = Array("my own notes, nothing to do with settings\n".utf8)
    try directory.write(text, to: Self.journal)
    let store = directory.store()
    let error = anHourLater { expectFailure(.damaged) { try store.set(1, forKey: "a") } }
    #expect(error?.path == directory.file(Self.journal).path)
    #expect(throws: StorageError.self) { _ = try store.int("a") }
    #expect(try directory.bytes(of: Self.journal) == text)
  }

  @Test(arguments: [true, false])
  func throwsWhenADirectoryOrAPipeHasTheJournalsName(_ isDirectory: Bool) throws {
    let directory = try TemporaryDirectory()
    let path = directory.file(Self.journal).path
    try #require((isDirectory ? mkdir(path, 0o700) : mkfifo(path, 0o600)) == 0)
    let store = directory.store()
    for attempt in [{ try store.set(1, forKey: "a") }, { _ = try store.int("a") }] {
      let error = #expect(throws: StorageError.self) { try attempt() }
      #expect(error?.path == path && (isDirectory || error?.code == .damaged))
      #expect(error?.remedy.contains("ove the \(isDirectory ? "directory" : "file") away") == true)
    }
    #expect(try FileSystem.status(path)?.kind == (isDirectory ? .directory : .other))
  }

  @Test(arguments: [true, false])
  func setFollowsALinkToAMissingFile(_ isAbsolute: Bool) throws {
    let directory = try TemporaryDirectory()
    let target = isAbsolute ? directory.file("dotfiles.jsonl").path : "dotfiles.jsonl"
    try directory.link(Self.journal, to: target)
    try directory.store().set(1, forKey: "a")
    #expect(try directory.store().int("a") == 1)
    #expect(
      try FileSystem.linkTarget(directory.file(Self.journal).path).hasSuffix("dotfiles.jsonl"))
    #expect(try directory.bytes(of: "dotfiles.jsonl").count > JournalFormat.headerSize)
  }

  @Test func linkToTheJournalStaysALink() throws {
    let directory = try TemporaryDirectory()
    let dotfiles = try TemporaryDirectory()
    try dotfiles.store().set(1, forKey: "a")
    try directory.link(Self.journal, to: dotfiles.file(Self.journal).path)
    let store = directory.store()
    try store.set(2, forKey: "b")
    try store.removeAll()  // replaces the file
    try store.set(3, forKey: "c")
    #expect(
      try FileSystem.linkTarget(directory.file(Self.journal).path)
        == dotfiles.file(Self.journal).path)
    #expect(try dotfiles.store().keys() == ["c"])
  }

  /// A damaged word may say any length, or none.
  @Test func aDamagedWordHidesNothing() throws {
    for position in JournalWord.offset..<JournalWord.offset + JournalWord.size {
      let directory = try TemporaryDirectory(isQuick: true)
      let failures = Failures()
      let store = directory.store(failures: failures)
      try store.set(1, forKey: "a")
      let path = directory.file(Self.journal).path
      try Bytes.write(directory.bytes(of: Self.journal)[position] ^ 1, at: position, of: path)
      #expect(try store.int("a") == 1)
      try anHourLater { try store.set(2, forKey: "b") }
      for store in [store, directory.store()] {
        #expect(try store.int("a") == 1 && store.int("b") == 2)
      }
      #expect(failures.all.map(\.code) == [.damaged])
    }
  }

  @Test func damageUnderAReusedInodeNumberIsRepaired() throws {
    let directory = try TemporaryDirectory()
    try Self.makeDamagedJournal(in: directory)
    let journal = directory.file(Self.journal)
    try FileManager.default.linkItem(at: journal, to: directory.file("kept"))
    let failures = Failures()
    let store = directory.store(failures: failures)
    _ = try anHourLater { try store.keys() }
    #expect(failures.all.map(\.code) == [.damaged])
    try FileManager.default.removeItem(at: journal)
    try FileManager.default.moveItem(at: directory.file("kept"), to: journal)
    try anHourLater { try store.set(2, forKey: "b") }
    // The same bytes are kept once.
    #expect(try directory.names().filter { $0.contains(".damaged-") }.count == 1)
    #expect(try directory.store().int("b") == 2)
  }

  /// It may have the inode number of a deleted file whose damage was reported.
  @Test func damageOfALaterFileIsReported() throws {
    let directory = try TemporaryDirectory()
    try Self.makeDamagedJournal(in: directory)
    let (path, away) = (directory.file(Self.journal).path, directory.file("away").path)
    let failures = Failures()
    let store = directory.store(failures: failures)
    // The file cannot be replaced.
    let plan = FaultPlan(decide: { $0.path.hasSuffix(".tmp") ? .fail(EROFS) : .proceed })
    try ReportLimiter.$period.withValue(.zero) {
      try anHourLater {
        try FaultPlan.$current.withValue(plan) {
          for count in 1...2 {
            for _ in 0..<2 { #expect(try store.keys() == []) }
            #expect(failures.all.map(\.code) == Array(repeating: .damaged, count: count))
            try FileSystem.rename(path, to: away)
            try store.journal.validate()
            let size = try #require(try FileSystem.status(away)).size
            try #require(truncate(away, off_t(size - 1)) == 0)
            try FileSystem.rename(away, to: path)
          }
        }
      }
    }
  }

  @Test func failureHandlerMayWriteToTheDamagedSuite() throws {
    let directory = try TemporaryDirectory()
    try Self.makeDamagedJournal(in: directory)
    let handling = Locked<Defaults.Store?>(nil)
    let finder = DirectoryFinder(app: "test", chosen: .init(configuration: directory.url))
    let scope = StorageScope(finder: finder) { error in
      guard error.code == .damaged else { return }
      try? handling.withLock { $0 }?.set("damaged", forKey: "lastError")
    }
    defer { scope.close() }
    let store = scope.defaults(.standard)
    handling.withLock { $0 = store }
    defer { handling.withLock { $0 = nil } }
    try anHourLater { try store.set(2, forKey: "b") }
    #expect(try store.string("lastError") == "damaged")
  }
}
