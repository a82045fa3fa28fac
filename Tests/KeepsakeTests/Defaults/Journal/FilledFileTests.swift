import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Settings files that a program may write but not replace: their contents are written into them.
@Suite(
  .multiprocess, .threadPerTest,
  .enabled(if: getuid() == 0, "only root can act for other users and mount files"))
struct FilledFileTests {
  private let directory: TemporaryDirectory
  private let path: String
  private let failures = Failures()

  init() throws {
    // Not on a slow disk, whose syncs the other writers of a file wait for.
    directory = try TemporaryDirectory(isQuick: true)
    path = directory.file(TemporaryDirectory.journal).path
  }

  // MARK: Files of another user

  /// Makes settings that all users may write, in a directory of that mode.
  private func makeSettings(inDirectoryOfMode mode: mode_t, owner: uid_t) throws {
    let peer = try Peer.start(directory, "hazards")
    try #require(try peer.ask("set settings first kept") == "ok")
    try #require(peer.finish() == "")
    for path in [directory.path, path] { try #require(chown(path, owner, owner) == 0) }
    try #require(chmod(path, 0o666) == 0 && chmod(directory.path, mode) == 0)
  }

  /// Starts a program of a user who owns neither the file nor its directory.
  private func startProgram() throws -> Child {
    let peer = try Peer.start(directory, "hazards")
    try #require(try peer.ask("become 65534") == "ok")
    return peer
  }

  /// Sets `k` to a text of that many bytes; returns what the program has reported meanwhile.
  private func fill(_ count: Int, _ peer: Child) throws -> [String] {
    try peer.writeLine("fill settings k \(count)")
    var reports: [String] = []
    var line = peer.line()
    while let report = line, report.hasPrefix("report ") {
      reports.append(report)
      line = peer.line()
    }
    try #require(line == "ok")
    return reports
  }

  @Test func aFileInAStickyDirectoryStaysBounded() throws {
    try makeSettings(inDirectoryOfMode: 0o1777, owner: 1_234)
    let old = try #require(try FileSystem.status(path))
    let (peer, reader) = (try startProgram(), directory.store(failures: failures))
    var (count, size) = (0, 0)
    repeat {
      count += 1
      #expect(try fill(20_000 + count, peer) == [])
      #expect(try reader.string("first") == "kept", "update \(count)")
      size = try #require(try FileSystem.status(path)).size
      try #require(size < 200 << 20, "the file only grows")
      // A compaction begins at 1 MiB at the latest, and ends while the program goes on.
    } while count < 200 || size > 1 << 20
    try waitUntil("nothing is left beside it") {
      try directory.names() == [TemporaryDirectory.journal]
    }
    try waitUntil("the last value is read") {
      try reader.string("k")?.utf8.count == 20_000 + count
    }
    #expect(peer.finish() == "")
    let new = try #require(try FileSystem.status(path))
    #expect(new.isSameFile(as: old) && new.owner == 1_234 && new.mode == 0o666)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// The copy from which the file was being filled is of no use to others if only its user can read
  /// it.
  @Test func anotherUserFinishesWhatAKilledProgramBegan() throws {
    try makeSettings(inDirectoryOfMode: 0o1777, owner: 1_234)
    func isBeingFilled() throws -> Bool {
      try directory.names().contains { $0.contains(".next-") }
    }
    var attempts = 0
    repeat {
      attempts += 1
      try #require(attempts < 100, "no program is killed while it fills the file")
      let peer = try startProgram()
      for number in 0..<1_000 { try peer.writeLine("fill settings k \(20_000 + number)") }
      for _ in 0..<50_000 { if try isBeingFilled() { break } }
      peer.killAndWait()
    } while try !isBeingFilled()
    let writer = try Child(
      Peer.executable, [directory.path, "as-user", "1234", "1234", "set", "n", "1"])
    #expect(writer.finish() == "ok\n")
    let reader = directory.store(failures: failures)
    #expect(try reader.string("first") == "kept" && reader.int("n") == 1)
    #expect(try (20_000..<21_000).contains(reader.string("k")?.utf8.count ?? 0))
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  /// A failure to compact is reported, and the next one only when the file has doubled.
  @Test func aFileGrowsWhereNothingCanBeMade() throws {
    try makeSettings(inDirectoryOfMode: 0o755, owner: 0)
    let peer = try startProgram()
    var reports: [String] = []
    var count = 0
    while count < 200 || reports.isEmpty {
      count += 1
      try #require(count < 10_000, "nothing is reported")
      reports += try fill(20_000 + count, peer)
    }
    reports += peer.finish().split(separator: "\n").map(String.init)
    #expect(peer.exitStatus == 0)
    let isClear = reports.allSatisfy {
      $0.contains("compact failed: access denied") && $0.contains(directory.path)
    }
    #expect(isClear, "\(reports)")
    let size = try #require(try FileSystem.status(path)).size
    #expect(
      size > count * 20_000 && size >= LoadedJournal.smallestCompaction << (reports.count - 1))
    #expect(try directory.names() == [TemporaryDirectory.journal])
    let reader = directory.store(failures: failures)
    #expect(try reader.string("first") == "kept")
    #expect(try reader.string("k")?.utf8.count == 20_000 + count)
    #expect(failures.all.isEmpty, "\(failures.all)")
  }

  // MARK: Files that are mounted alone

  /// As in a container, whose programs are started again and again. Where nothing can be made
  /// beside the file, each of them finds the same damage.
  @Test(
    .enabled(if: OneAtATime.HazardTests.canMount, "a file cannot be mounted here"),
    arguments: [true, false])
  func aDamagedFileThatIsMountedAloneStaysBounded(_ canMakeFiles: Bool) throws {
    func makeStore() throws -> Defaults.Store {
      let store = directory.store(failures: failures)
      // A store of an earlier start would find the damage, too.
      try store.journal.lookOnlyWhenUsed()
      try keepFromBackgroundSync(store)
      return store
    }
    let keys = (0..<5).map { "k\($0)" }
    do {
      let store = try makeStore()
      for key in keys + ["spoiled"] { try store.set(1, forKey: key) }
    }
    let host = directory.file("host").path
    try FileSystem.rename(path, to: host)
    try directory.write([], to: TemporaryDirectory.journal)
    try #require(mount(host, path, nil, UInt(MS_BIND), nil) == 0)
    defer { umount2(path, Int32(MNT_DETACH)) }
    let size = try Bytes.read(host).count
    let plan = FaultPlan(decide: { event in
      !canMakeFiles && event.path.hasSuffix(".tmp") ? .fail(EROFS) : .proceed
    })
    for start in 1...5 {
      let last = try #require(Bytes.read(host).ranges(of: Array("spoiled".utf8)).last)
      try Bytes.write(UInt8(ascii: "x"), at: last.lowerBound, of: host)
      let store = try makeStore()
      try FaultPlan.$current.withValue(plan) {
        try anHourLater { try store.set(start, forKey: "spoiled") }
      }
      for key in keys { #expect(try store.int(key) == 1, "start \(start)") }
      #expect(try store.int("spoiled") == start)
      #expect(failures.all.count == start, "\(failures.all)")
    }
    #expect(failures.all.allSatisfy { $0.code == .damaged }, "\(failures.all)")
    let copies = try FileSystem.copies(path + ".damaged").map { FileSystem.name(of: $0) }
    #expect(copies.count == (canMakeFiles ? 3 : 0))
    #expect(try directory.names() == ["host", TemporaryDirectory.journal] + copies.sorted())
    #expect(try Bytes.read(host).count <= size + (canMakeFiles ? 0 : 5 * 50))
    #expect(try Bytes.read(host) == Bytes.read(path))
  }
}
