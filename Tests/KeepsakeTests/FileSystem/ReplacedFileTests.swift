import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

// Swift's module of the C library lacks <sys/xattr.h>.
@_silgen_name("setxattr") private func setxattr(
  _ path: UnsafePointer<CChar>, _ name: UnsafePointer<CChar>, _ value: UnsafeRawPointer?,
  _ size: Int, _ flags: CInt
) -> CInt
@_silgen_name("getxattr") private func getxattr(
  _ path: UnsafePointer<CChar>, _ name: UnsafePointer<CChar>, _ value: UnsafeMutableRawPointer?,
  _ size: Int
) -> Int

/// What takes a file's place is accessible to the same users as that file, or to fewer.
@Suite(.singleThreaded) struct ReplacedFileTests {
  /// A call that replaces a file.
  enum Replacement: CaseIterable {
    case save, saveChunks, copy, adopt, compaction, removeAll, restore, repair
  }

  private let directory: TemporaryDirectory
  private let failures = Failures()

  init() throws { directory = try TemporaryDirectory() }

  /// Makes the file that will be replaced, and returns its path.
  private func makeFile(_ replacement: Replacement) throws -> String {
    switch replacement {
    case .save, .saveChunks, .copy, .adopt:
      try directory.files.save("old", as: "d/a")
      return directory.file("d/a").path
    case .compaction, .removeAll, .restore, .repair:
      let store = directory.store()
      try store.set(1, forKey: "a")
      if replacement == .restore { try store.backUp(to: directory.file("backup").path) }
      return directory.file(TemporaryDirectory.journal).path
    }
  }

  private func replace(_ replacement: Replacement, _ path: String) async throws {
    switch replacement {
    case .save: try directory.files.save("new", as: "d/a")
    case .saveChunks:
      let chunks = FolderNameTests.chunks([Array("new".utf8)])
      try await directory.files.save(chunks: chunks, as: "d/a")
    case .copy:
      try directory.write(Array("new".utf8), to: "source")
      try directory.setMode(0o666, "source")
      try directory.files.copy("source", to: "d/a")
    case .adopt:
      try directory.write(Array("new".utf8), to: "incoming")
      try directory.files.adopt(directory.file("incoming"), as: "d/a")
    case .compaction:
      let store = directory.store()
      _ = try store.keys()
      try store.journal.compact()
    case .removeAll: try directory.store().removeAll()
    case .restore:
      _ = try directory.store().prepareRestore(from: directory.file("backup").path).commit()
    case .repair:
      let bytes = try Bytes.read(path)
      try Bytes.write(
        bytes[JournalFormat.headerSize + 3] ^ 1, at: JournalFormat.headerSize + 3, of: path)
      waitForTick()
      try anHourLater { try directory.store().set(2, forKey: "b") }
    }
  }

  /// Replaces a file of that mode, and returns the status of the one that took its place.
  private func status(
    after replacement: Replacement, of mode: mode_t, owner: uid_t? = nil, group: gid_t? = nil,
    list: [UInt8]? = nil
  ) async throws -> FileStatus {
    let path = try makeFile(replacement)
    if let owner, let group { try #require(chown(path, owner, group) == 0) }
    try #require(chmod(path, mode) == 0)
    if let list { try #require(setxattr(path, Self.accessList, list, list.count, 0) == 0) }
    let old = try #require(try FileSystem.status(path))
    try await replace(replacement, path)
    let new = try #require(try FileSystem.status(path))
    #expect(!new.isSameFile(as: old))
    return new
  }

  @Test(arguments: Replacement.allCases, [0o600, 0o640, 0o604, 0o666])
  func aFileKeepsTheModeOfTheOneItReplaces(_ replacement: Replacement, _ mode: mode_t) async throws
  {
    let new = try await status(after: replacement, of: mode)
    #expect(new.mode == UInt32(mode))
  }

  @Test(.enabled(if: geteuid() == 0), arguments: Replacement.allCases)
  func rootKeepsTheOwnerAndTheGroup(_ replacement: Replacement) async throws {
    let new = try await status(after: replacement, of: 0o640, owner: 65_534, group: 1_234)
    #expect(new.owner == 65_534 && new.group == 1_234 && new.mode == 0o640)
  }

  /// Whoever may not set the group gives its members nothing, nor the others more than they had as
  /// members.
  @Test(
    .enabled(if: geteuid() == 0), arguments: Replacement.allCases,
    [(0o640, 0o600), (0o660, 0o600), (0o644, 0o604), (0o604, 0o600), (0o600, 0o600)])
  func aGroupThatCannotBeKeptLosesItsAccess(
    _ replacement: Replacement, _ modes: (mode_t, mode_t)
  ) async throws {
    let plan = FaultPlan { $0.call == .chown ? .fail(EPERM) : .proceed }
    let new = try await FaultPlan.$current.withValue(plan) {
      try await status(after: replacement, of: modes.0, owner: geteuid(), group: 1_234)
    }
    #expect(new.group != 1_234 && new.mode == UInt32(modes.1))
  }

  /// A call that brings a file which everyone may read and write.
  enum Arrival: CaseIterable {
    case move, moveFromElsewhere, copyFromElsewhere, adoptFromElsewhere
  }

  /// From another file system, if this machine has two.
  @Test(arguments: Arrival.allCases, [0o600, 0o640, 0o604])
  func aFileThatArrivesIsNeverWiderThanTheOneItReplaces(
    _ arrival: Arrival, _ mode: mode_t
  ) throws {
    let source = try arrival == .move ? directory : TemporaryDirectory(isQuick: true)
    try source.write(Array("new".utf8), to: "source")
    try source.setMode(0o666, "source")
    let files = directory.files
    try files.save("old", as: "d/a")
    // The members of this group, and not those of the group of the new file.
    if geteuid() == 0 { try #require(chown(directory.file("d/a").path, 0, 1_234) == 0) }
    try directory.setMode(mode, "d/a")
    let old = try #require(try directory.status("d/a"))
    switch arrival {
    case .move, .moveFromElsewhere: try source.files.move("source", to: "d/a", in: files)
    case .copyFromElsewhere: try source.files.copy("source", to: "d/a", in: files)
    case .adoptFromElsewhere: try files.adopt(source.file("source"), as: "d/a")
    }
    let new = try #require(try directory.status("d/a"))
    #expect(try directory.text("d/a") == "new" && !new.isSameFile(as: old))
    #expect(new.mode & ~old.mode == 0)
    #expect(new.group == old.group || new.mode & 0o070 == 0)
  }

  /// In a folder that is shared by a group, another user's file may be moved, but not changed.
  @Test(
    arguments: [
      (.chmod, EPERM, .accessDenied), (.rename, EIO, .system(EIO)),
    ] as [(SystemCall, Int32, StorageError.Code)])
  func aFileThatIsNotMovedKeepsItsMode(
    _ call: SystemCall, _ errorCode: Int32, _ code: StorageError.Code
  ) throws {
    for (name, mode) in [("a", 0o660), ("b", 0o600)] as [(String, mode_t)] {
      try directory.files.save(name, as: name)
      try directory.setMode(mode, name)
    }
    let before = try directory.tree()
    let plan = FaultPlan { $0.call == call ? .fail(errorCode) : .proceed }
    let error = FaultPlan.$current.withValue(plan) {
      expectFailure(code) { try directory.files.move("a", to: "b") }
    }
    #expect(error?.operation == "move")
    #expect(try directory.tree() == before)
  }

  /// A file on another file system may not get the group of its original.
  @Test(.enabled(if: TwoFileSystems.areHere && geteuid() == 0), arguments: [false, true])
  func aMoveToAnotherFileSystemKeepsTheGroupOrItsAccess(_ isAllowed: Bool) throws {
    let two = try TwoFileSystems()
    try two.disk.files.save("x", as: "d/x")
    try #require(chown(two.disk.file("d/x").path, 0, 1_234) == 0)
    try two.disk.setMode(0o640, "d/x")
    let plan = FaultPlan { $0.call == .chown && !isAllowed ? .fail(EPERM) : .proceed }
    try FaultPlan.$current.withValue(plan) {
      try two.disk.files.move("d", to: "d", in: two.memory.files)
    }
    let moved = try #require(try two.memory.status("d/x"))
    #expect((moved.group, moved.mode) == (isAllowed ? (1_234, 0o640) : (getegid(), 0o600)))
  }

  // MARK: Access-control lists

  private static let accessList = "system.posix_acl_access"

  /// The user 65534 may read and write, and the file's group nothing: the mode shows the mask,
  /// 0660.
  private static let list: [UInt8] = {
    func entry(_ tag: UInt8, _ permissions: UInt8, _ id: UInt32 = .max) -> [UInt8] {
      [tag, 0, permissions, 0] + withUnsafeBytes(of: id.littleEndian) { Array($0) }
    }
    return [2, 0, 0, 0] + entry(0x01, 6) + entry(0x02, 6, 65_534) + entry(0x04, 0)
      + entry(0x10, 6) + entry(0x20, 0)
  }()

  private func hasList(_ path: String) -> Bool { getxattr(path, Self.accessList, nil, 0) > 0 }

  @Test(arguments: [Replacement.save, .compaction])
  func aFileKeepsTheAccessControlList(_ replacement: Replacement) async throws {
    let new = try await status(after: replacement, of: 0o600, list: Self.list)
    let file = replacement == .save ? "d/a" : TemporaryDirectory.journal
    #expect(new.mode == 0o660 && hasList(directory.file(file).path))
  }

  @Test(arguments: [Replacement.save, .compaction])
  func aListThatCannotBeKeptLeavesNoAccess(_ replacement: Replacement) async throws {
    let plan = FaultPlan { $0.call == .accessList ? .fail(ENOSPC) : .proceed }
    let new = try await FaultPlan.$current.withValue(plan) {
      try await status(after: replacement, of: 0o600, list: Self.list)
    }
    #expect(new.mode == 0o600)
  }

  private func setList(_ name: String) throws {
    try #require(
      setxattr(directory.path + "/" + name, Self.accessList, Self.list, Self.list.count, 0) == 0)
  }

  /// Unless the other file has the same list, which may deny what the mode of this one grants.
  @Test(arguments: [["a"], ["b"], ["a", "b"]])
  func aListIsNotComparedByItsMode(_ listed: [String]) throws {
    for name in ["a", "b"] {
      try directory.files.save(name, as: name)
      try directory.setMode(0o660, name)
    }
    for name in listed { try setList(name) }
    try directory.files.move("a", to: "b")
    #expect(try directory.text("b") == "a")
    #expect(try directory.status("b")?.mode == (listed.count == 2 ? 0o660 : 0o600))
  }

  @Test(.enabled(if: TwoFileSystems.areHere), arguments: [false, true])
  func aListOnAnotherFileSystemIsKeptOrGrantsNothing(_ isPossible: Bool) throws {
    let memory = try TemporaryDirectory(isQuick: true)
    try directory.files.save("x", as: "x")
    try setList("x")
    let plan = FaultPlan { $0.call == .accessList && !isPossible ? .fail(ENOSPC) : .proceed }
    try FaultPlan.$current.withValue(plan) {
      try directory.files.move("x", to: "x", in: memory.files)
    }
    #expect(try memory.status("x")?.mode == (isPossible ? 0o660 : 0o600))
    #expect(hasList(memory.path + "/x") == isPossible)
  }

  @Test(arguments: [Replacement.save, .compaction])
  func aListThatTheDirectoryGivesIsDropped(_ replacement: Replacement) async throws {
    let path = try makeFile(replacement)
    try #require(
      setxattr(
        FileSystem.parent(of: path), "system.posix_acl_default", Self.list, Self.list.count, 0)
        == 0)
    let new = try await status(after: replacement, of: 0o640)
    #expect(new.mode == 0o640 && !hasList(path))
  }

  /// The mode of a group that has no other members shows what the list allows to others.
  @Test(.enabled(if: geteuid() == 0)) func aDirectoryWithAListIsNotSafeBecauseOfItsGroup() throws {
    try #require(chmod(directory.path, 0o770) == 0)
    func found() throws -> String? {
      try FileSystem.unsafeDirectory(onTheWayTo: directory.path) { $0 == 0 }?.path
    }
    #expect(try found() == nil)
    try #require(setxattr(directory.path, Self.accessList, Self.list, Self.list.count, 0) == 0)
    #expect(try found() == directory.path)
  }

  @Test func permissionsThatChangeDuringASaveCount() async throws {
    let path = try makeFile(.saveChunks)
    try #require(chmod(path, 0o644) == 0)
    let count = Locked(0)
    let chunks = AsyncStream<Data> {
      let number = count.increment()
      if number == 2 { #expect(chmod(path, 0o600) == 0) }
      return number < 4 ? Data("new".utf8) : nil
    }
    try await directory.files.save(chunks: chunks, as: "d/a")
    #expect(try FileSystem.status(path)?.mode == 0o600)
  }

  // MARK: Links

  @Test func aFolderNeitherReadsNorReplacesALink() async throws {
    let files = directory.files
    try files.save("old", as: "d/a")
    try directory.write(Array("theirs".utf8), to: "theirs")
    try directory.link("d/b", to: directory.file("theirs").path)
    let chunks = AsyncStream<Data> { $0.finish() }
    let incoming = directory.file("incoming")
    try Data("new".utf8).write(to: incoming)
    let before = try directory.tree()
    let calls: [(String, () async throws -> Void)] = [
      ("load", { _ = try files.load("d/b") as Data }),
      ("save", { try files.save("new", as: "d/b") }),
      ("saveChunks", { try await files.save(chunks: chunks, as: "d/b") }),
      ("copy", { try files.copy("d/a", to: "d/b") }),
      ("move", { try files.move("d/a", to: "d/b") }),
      ("adopt", { try files.adopt(incoming, as: "d/b") }),
    ]
    for (name, call) in calls {
      let error = await #expect(throws: StorageError.self, "\(name)") { try await call() }
      #expect(error?.code == .accessDenied && error?.remedy.contains("link") == true, "\(name)")
      #expect(error?.path == directory.file("d/b").path, "\(name)")
    }
    #expect(try directory.tree() == before)
    // A link can be removed.
    try files.delete("d/b")
    try files.save("new", as: "d/b")
    #expect(try directory.bytes(of: "theirs") == Array("theirs".utf8))
  }

  // MARK: Mounts

  /// In a read-only container, nothing can be made beside an empty file that is mounted alone.
  @Test func anEmptyFileIsFilledWhereNothingCanBeMade() throws {
    try directory.write([], to: TemporaryDirectory.journal)
    let plan = FaultPlan { $0.path.hasSuffix(".tmp") ? .fail(EROFS) : .proceed }
    try FaultPlan.$current.withValue(plan) {
      try anHourLater { try directory.store().set(3, forKey: "c") }
    }
    #expect(try directory.store().keys() == ["c"])
    #expect(try directory.names() == [TemporaryDirectory.journal])
  }

  /// As a container gets one file of its host.
  @Test(.enabled(if: geteuid() == 0, "mounting needs root"))
  func aFileThatIsMountedAloneIsFilled() throws {
    try directory.write([], to: "host")
    let path = directory.file(TemporaryDirectory.journal).path
    func store() -> Defaults.Store { directory.store(failures: failures) }
    try directory.write([], to: TemporaryDirectory.journal)
    let host = directory.file("host").path
    guard mount(host, path, nil, UInt(MS_BIND), nil) == 0 else { return }
    defer { umount2(path, 2) }
    try anHourLater { try store().set(1, forKey: "a") }
    #expect(try store().int("a") == 1)
    try store().set(2, forKey: "b")
    #expect(try store().keys().sorted() == ["a", "b"])
    #expect(try directory.bytes(of: "host") == directory.bytes(of: TemporaryDirectory.journal))
    #expect(failures.all.isEmpty, "\(failures.all)")
    for number in 0..<100 { try store().set(number, forKey: "a") }
    let size = try directory.bytes(of: "host").count
    try store().journal.compact()
    #expect(try store().int("a") == 99 && store().int("b") == 2)
    #expect(try directory.bytes(of: "host").count < size)
    try store().removeAll()
    #expect(try store().keys() == [])
    let names = try directory.names()
    #expect(names == ["host", TemporaryDirectory.journal])
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// Another user's file in a sticky directory may be written, but not replaced.
  @Test func aFileThatMayNotBeReplacedIsFilled() throws {
    let store = directory.store(failures: failures)
    for number in 0..<100 { try store.set(number, forKey: "a") }
    let path = directory.file(TemporaryDirectory.journal).path
    let old = try #require(try FileSystem.status(path))
    let plan = FaultPlan(decide: { event in
      let isReplaced = event.path.hasSuffix("/" + TemporaryDirectory.journal)
      return isReplaced && [.exchange, .rename].contains(event.call) ? .fail(EPERM) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.journal.compact() }
    let new = try #require(try FileSystem.status(path))
    #expect(new.isSameFile(as: old) && new.size < old.size)
    #expect(try store.int("a") == 99 && directory.store().int("a") == 99)
    #expect(try directory.names() == [TemporaryDirectory.journal] && failures.all.isEmpty)
  }

  /// Also a program that starts in the meantime.
  @Test(arguments: [false, true])
  func readersOfAJournalThatIsFilledFindItsValues(isNew: Bool) throws {
    let writer = directory.store()
    try writer.set(1, forKey: "a")
    let path = directory.file(TemporaryDirectory.journal).path
    #expect(try FileSystem.link(path, to: directory.file("other").path) == true)
    for number in 0..<50 { try writer.set(number, forKey: "b") }
    let known = directory.store(failures: failures)
    #expect(try known.int("b") == 49)
    let found = Locked<[[Int]]>([])
    let plan = FaultPlan(decide: { _ in
      FaultPlan.$current.withValue(nil) {
        let reader = isNew ? directory.store(failures: failures) : known
        let values = try? [reader.int("a"), reader.int("b")]
        found.withLock { $0.append(values ?? []) }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) { try writer.journal.compact() }
    #expect(Set(found.withLock { $0 }) == [[1, 49]])
    #expect(try directory.names().count == 2)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// The new contents are as long as those that the reader knows.
  @Test func aReaderNoticesThatAJournalWasFilled() throws {
    let writer = directory.store()
    try writer.set(1, forKey: "a")
    let path = directory.file(TemporaryDirectory.journal).path
    #expect(try FileSystem.link(path, to: directory.file("other").path) == true)
    let reader = directory.store(failures: failures)
    #expect(try reader.int("a") == 1)
    try writer.set(2, forKey: "a")
    try directory.store(failures: failures).journal.compact()
    #expect(try reader.int("a") == 2)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  // MARK: Copies

  @Test func copiesOfDamagedFilesAreBounded() throws {
    let names = [
      "standard.jsonl.damaged-notes", "standard.jsonl.damaged-20240101", "x.damaged-1",
      "standard.jsonl.damaged-1763812800-2-3", "standard.jsonl.damaged-1763812800x",
    ]
    for name in names { try directory.write([1], to: name) }
    // A directory that a person has given such a name is none of ours.
    try directory.makeDirectory("standard.jsonl.damaged-1763812800")
    // The clock was set back since.
    try directory.write([1], to: "standard.jsonl.damaged-9999999999")
    let path = directory.file(TemporaryDirectory.journal).path
    func set(_ value: Int) throws {
      let store = directory.store(failures: failures)
      // In a later round, its watch and its sync would find the damage, too.
      try store.journal.lookOnlyWhenUsed()
      try anHourLater { try store.set(value, forKey: "a") }
      try store.synchronize()
    }
    try set(0)
    for round in 1...8 {
      try Bytes.write(UInt8(round), at: JournalFormat.headerSize + 3, of: path)
      waitForTick()
      try set(round)
      let copy = failures.all.last?.remedy.firstMatch(of: /\/\S+\.damaged-[0-9-]*[0-9]/)?.output
      #expect(try FileSystem.status(String(copy ?? "")) != nil, "\(failures.all)")
    }
    let copies = try FileSystem.copies(path + ".damaged").filter {
      try FileSystem.status($0)?.kind == .file
    }
    #expect(copies.count == 3, "\(copies)")
    let found = try Set(directory.names())
    #expect(found.isSuperset(of: names + ["standard.jsonl.damaged-1763812800"]))
    #expect(!found.contains("standard.jsonl.damaged-9999999999"), "the oldest by its time")
  }
}
