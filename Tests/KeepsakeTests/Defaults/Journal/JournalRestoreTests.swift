import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The settings that a restore replaces are kept, whatever fails and whenever the program is
/// killed.
@Suite(.ownThread, .singleThreaded) struct JournalRestoreTests {
  private static let journal = TemporaryDirectory.journal

  private struct Stage {
    let directory: TemporaryDirectory
    let backup: TemporaryDirectory

    init(_ app: Snapshot, _ backup: Snapshot) throws {
      directory = try TemporaryDirectory(copying: app)
      self.backup = try TemporaryDirectory(copying: backup)
    }

    func restore() throws -> String? {
      try directory.store().prepareRestore(from: backup.file("standard.jsonl").path).commit()
    }

    func values() throws -> [String: Int] { try Self.values(in: directory) }

    private static func values(in directory: TemporaryDirectory) throws -> [String: Int] {
      let store = directory.store()
      return try store.keys().reduce(into: [:]) { $0[$1] = try store.int($1) }
    }

    /// The values of all files that a restore kept.
    func keptValues() throws -> [[String: Int]] {
      try directory.names().filter { $0.contains(".jsonl.replaced-") }.map { name in
        let copy = try TemporaryDirectory(isQuick: true)
        try copy.write(directory.bytes(of: name), to: journal)
        return try Self.values(in: copy)
      }
    }
  }

  private static func makeSettings(_ values: [String: Int]) throws -> Snapshot {
    let directory = try TemporaryDirectory(isQuick: true)
    for (key, value) in values { try directory.store().set(value, forKey: key) }
    return try Snapshot(of: directory)
  }

  private static let old = ["a": 1, "b": 2]
  private static let new = ["c": 3]

  @Test func eachFailingCallKeepsTheOldValues() async throws {
    let (app, backup) = (try Self.makeSettings(Self.old), try Self.makeSettings(Self.new))
    let count = try await failingEachCall(
      every: 6, { (stage: Stage) in _ = try stage.restore() },
      on: {
        let stage = try Stage(app, backup)
        return (stage, [stage.directory])
      },
      check: { stage, _, call in
        let (values, kept) = (try stage.values(), try stage.keptValues())
        #expect(values == Self.old || values == Self.new, call.comment)
        #expect(values == Self.old || kept.contains(Self.old), call.comment)
        if call.failure == nil { #expect(values == Self.new, call.comment) }
        #expect(try stage.restore() != nil, call.comment)
        #expect(try stage.values() == Self.new, call.comment)
        #expect(try stage.keptValues().contains(Self.old), call.comment)
      })
    print("proof: faults, restore of settings: \(count) failing calls")
  }

  @Test func aKillKeepsTheOldValues() throws {
    let (app, backup) = (try Self.makeSettings(Self.old), try Self.makeSettings(Self.new))
    for number in 0... {
      try #require(number < 200)
      let stage = try Stage(app, backup)
      let isKilled = killing(beforeCall: number) { try? stage.restore() }
      try anHourLater {
        let values = try stage.values()
        #expect(values == Self.old || values == Self.new, "before call \(number)")
        // A writer in between, as a file with two names must not take its records.
        try stage.directory.store().set(9, forKey: "z")
        #expect(try stage.restore() != nil)
        #expect(try stage.values() == Self.new)
        let kept = try stage.keptValues()
        #expect(
          kept.contains { $0.merging(Self.old) { own, _ in own } == $0 },
          "before call \(number): \(kept)")
      }
      if !isKilled { break }
    }
  }

  /// A read has found no file for a moment.
  @Test func aRestoreKeepsWhatAReadHasMissed() throws {
    let stage = try Stage(Self.makeSettings(Self.old), Self.makeSettings(Self.new))
    let journal = stage.directory.journal()
    journal.lookOnlyWhenUsed()
    try journal.set(.int(4), forKey: "d")
    let restore = try journal.prepareRestore(from: stage.backup.file(Self.journal).path)
    let (path, away) = (journal.location.path, stage.directory.path + "/away")
    try FileSystem.rename(path, to: away)
    try journal.validate()
    try FileSystem.rename(away, to: path)
    #expect(try restore.commit() != nil)
    #expect(try stage.values() == Self.new)
    #expect(try stage.keptValues() == [["a": 1, "b": 2, "d": 4]])
  }

  /// The link stays, and its target is replaced; what it had is kept beside it.
  @Test func aLinkedFileIsReplacedBehindItsLink() throws {
    let stage = try Stage(Self.makeSettings(Self.old), Self.makeSettings(Self.new))
    let target = stage.directory.file("dotfiles/settings").path
    try stage.directory.makeDirectory("dotfiles")
    try FileSystem.rename(stage.directory.file(Self.journal).path, to: target)
    try stage.directory.link(Self.journal, to: target)
    let kept = try #require(try stage.restore())
    #expect(kept.hasPrefix(target + ".replaced-"))
    #expect(try stage.directory.status(Self.journal)?.isSymbolicLink == true)
    #expect(try stage.values() == Self.new)
    try stage.directory.write(Bytes.read(kept), to: "standard.jsonl.replaced-1")
    #expect(try stage.keptValues() == [Self.old])
  }

  /// As a container gets one file of its host: the file is filled, so that the host has the values.
  @Test(.enabled(if: OneAtATime.HazardTests.canMount, "a file cannot be mounted here"))
  func aFileThatIsMountedAloneIsRestoredInPlace() throws {
    let stage = try Stage(Self.makeSettings(Self.old), Self.makeSettings(Self.new))
    let (path, host) = (stage.directory.file(Self.journal).path, stage.directory.file("host").path)
    try FileSystem.rename(path, to: host)
    try stage.directory.write([], to: Self.journal)
    try #require(mount(host, path, nil, UInt(MS_BIND), nil) == 0)
    defer { umount2(path, Int32(MNT_DETACH)) }
    let reader = stage.directory.store()
    #expect(try reader.int("a") == 1)
    #expect(try stage.restore() != nil)
    #expect(try stage.values() == Self.new && stage.keptValues() == [Self.old])
    #expect(try reader.keys() == ["c"] && reader.int("c") == 3)
    #expect(try stage.directory.bytes(of: "host") == stage.directory.bytes(of: Self.journal))
    try stage.directory.store().set(4, forKey: "d")
    #expect(try reader.int("d") == 4)
  }
}
