import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

#if os(Linux)
extension OneAtATime {
  /// A process that follows settings sleeps until something changes, whatever the files are like.
  @Suite(.timeLimit(.minutes(20))) struct AtRestTests {
    enum Situation: CaseIterable {
      case untouched, emptied, cut, halfHeader, zeros, foreign, newerVersion, unfinishedRecord
      case damaged, restored, marked, deleted, replacedByDirectory, replacedByPipe
      case linkToNothing, mountedAlone

      static let possibleCases = allCases.filter { $0 != .mountedAlone || HazardTests.canMount }

      /// Whether a program that starts now can set values.
      var isWritable: Bool {
        switch self {
        case .foreign, .newerVersion, .replacedByDirectory, .replacedByPipe: false
        default: true
        }
      }

      func make(in directory: TemporaryDirectory) throws {
        let journal = try directory.bytes(of: TemporaryDirectory.journal)
        switch self {
        case .untouched: break
        case .emptied: try write([], directory)
        case .cut: try write(journal.dropLast(5), directory)
        case .halfHeader: try write(journal.prefix(40), directory)
        case .zeros: try write(Array(repeating: 0, count: journal.count), directory)
        case .foreign: try write(Array("theme=dark\n".utf8), directory)
        case .newerVersion:
          let header = String(decoding: journal.prefix(JournalFormat.headerSize), as: UTF8.self)
          try write(Array(header.replacing("\"1:", with: "\"9:").utf8), directory)
        case .unfinishedRecord: try write(journal + journal.suffix(20).dropLast(3), directory)
        case .damaged:
          var bytes = journal
          bytes[JournalFormat.headerSize + 5] ^= 1
          try write(bytes, directory)
        case .restored:
          let other = try TemporaryDirectory(isQuick: true)
          try other.store().set(1, forKey: "k")
          try write(other.bytes(of: TemporaryDirectory.journal), directory)
        case .deleted: try remove(TemporaryDirectory.journal, directory)
        case .replacedByDirectory:
          try remove(TemporaryDirectory.journal, directory)
          try directory.makeDirectory(TemporaryDirectory.journal)
        case .replacedByPipe:
          try remove(TemporaryDirectory.journal, directory)
          try #require(mkfifo(directory.file(TemporaryDirectory.journal).path, 0o600) == 0)
        case .linkToNothing:
          try remove(TemporaryDirectory.journal, directory)
          try directory.link(TemporaryDirectory.journal, to: "missing")
        case .mountedAlone:
          let (host, path) = (
            directory.file("host").path, directory.file(TemporaryDirectory.journal).path
          )
          try directory.write(journal, to: "host")
          try #require(mount(host, path, nil, UInt(MS_BIND), nil) == 0)
        case .marked:
          var bytes = journal
          bytes.replaceSubrange(
            JournalWord.offset..<JournalWord.offset + JournalWord.size,
            with: JournalWord.replaced.bytes)
          try write(bytes, directory)
        }
      }

      /// Writes over the file in place, as `cp` does.
      private func write(
        _ bytes: some Sequence<UInt8>, _ directory: TemporaryDirectory
      ) throws {
        let file = try File(directory.file(TemporaryDirectory.journal).path, .readWrite)
        try #require(ftruncate(file.descriptor, 0) == 0)
        try file.writeAll(Array(bytes))
      }

      private func remove(_ name: String, _ directory: TemporaryDirectory) throws {
        try FileManager.default.removeItem(at: directory.file(name))
      }
    }

    /// How often the main thread of a process and those of the library have been switched to.
    /// Nothing else in the system can make a thread run that waits for events.
    ///
    /// A thread of Dispatch wakes up once a second, so only every 16th time counts.
    private static func wakeUps(of process: pid_t) throws -> [String: Int] {
      let tasks = "/proc/\(process)/task"
      var counts: [String: Int] = [:]
      for thread in try FileManager.default.contentsOfDirectory(atPath: tasks) {
        // A thread that has ended has no status.
        guard let status = try? String(contentsOfFile: "\(tasks)/\(thread)/status", encoding: .utf8)
        else { continue }
        let count = status.split(separator: "\n").filter { $0.contains("_ctxt_switches:") }
          .compactMap { $0.split(separator: "\t").last.flatMap { Int($0) } }.reduce(0, +)
        counts[thread] = status.hasPrefix("Name:\tkeepsake-") ? count : count / 16
      }
      return counts
    }

    /// Expects processes to make no wake-ups for a while, at least once they have handled the last
    /// event, and once a restored file has settled. A busy machine takes longer for that.
    private static func expectSleep(of processes: [String: pid_t]) throws {
      var restless = processes
      for _ in 0..<100 where !restless.isEmpty {
        let before = try restless.mapValues(wakeUps)
        BackgroundThread.sleep(for: .milliseconds(1_200))
        let after = try restless.mapValues(wakeUps)
        restless = restless.filter { before[$0.key] != after[$0.key] }
      }
      #expect(restless.isEmpty)
    }

    /// All at the same time, each in a process of its own.
    @Test func followersSleepUntilSomethingChanges() throws {
      var followers: [(situation: Situation, TemporaryDirectory, Child)] = []
      defer {
        for (situation, directory, _) in followers where situation == .mountedAlone {
          umount2(directory.file(TemporaryDirectory.journal).path, Int32(MNT_DETACH))
        }
      }
      for situation in Situation.possibleCases {
        let directory = try TemporaryDirectory()
        let store = directory.store()
        for number in 1...3 { try store.set(number, forKey: "k\(number)") }
        followers.append((situation, directory, try Peer.start(directory, "follow", "k")))
      }
      for (situation, directory, follower) in followers {
        try #require(follower.line() == "ready")
        try situation.make(in: directory)
      }
      let processes = followers.map { ("\($0.situation)", $0.2.identifier) }
      try Self.expectSleep(of: Dictionary(uniqueKeysWithValues: processes))
      for (situation, directory, follower) in followers where situation.isWritable {
        try directory.store().set(7, forKey: "k")
        #expect(follower.prints("7"), "\(situation)")
      }
    }

    /// The writer was stopped before it published its record, and is killed later, so that the
    /// record never counts.
    @Test func aFollowerSleepsBesideTheRestOfAKilledWriter() throws {
      let directory = try TemporaryDirectory()
      try directory.store().set(1, forKey: "k")
      let follower = try Peer.start(directory, "follow", "k")
      try #require(follower.line() == "ready")
      let holder = try Peer.start(directory, "hold-lock", TemporaryDirectory.journal)
      try #require(holder.line() == "held")
      let file = try File(directory.file(TemporaryDirectory.journal).path, .readWrite)
      let end = try file.status().size
      let rest = Array("[\"0123456789abcdefj9\",\"k\",5]\n".utf8)
      try file.overwrite(rest.span.bytes, at: end)
      #expect(try directory.store().int("k") == 1, "the record is not published")
      holder.killAndWait()
      try Self.expectSleep(of: ["follower": follower.identifier])
      try directory.store().set(7, forKey: "k")
      #expect(follower.prints("7"))
    }

    /// It only watches where the path leads.
    @Test func aProcessThatOnlyReadsSleeps() throws {
      let directory = try TemporaryDirectory()
      try directory.store().set(1, forKey: "k")
      let reader = try Peer.start(directory, "serve")
      #expect(try reader.ask("get k") == "1")
      try Self.expectSleep(of: ["reader": reader.identifier])
      try directory.store().set(7, forKey: "k")
      #expect(try reader.ask("get k") == "7")
    }
  }
}

extension Child {
  /// Reads lines until it prints this one; false if it ends before.
  fileprivate func prints(_ text: String) -> Bool {
    while let line = line() { if line == text { return true } }
    return false
  }
}
#endif
