import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension OneAtATime {
  /// Several processes that use the same files, and processes that are killed.
  @Suite(.serialized) struct FolderProcessTests {
    private let home: TemporaryDirectory
    private var directory: Folder { home.files }

    init() throws { home = try TemporaryDirectory(isQuick: true) }

    /// Calls `body` on several threads, beside two processes that save and read; it returns what is
    /// wrong. A busy machine may need longer than the time until that is enough.
    private func expectNoFault(
      milliseconds: Int, threads: Int, until isEnough: @escaping @Sendable () -> Bool = { true },
      body: @escaping @Sendable (_ thread: Int, _ number: Int) throws -> String?
    ) async throws {
      let peers = try (0..<2).map {
        try Peer.start(home, "files-stress", "\(100 + $0)", "\(milliseconds)")
      }
      let faults = Locked<[String]>([])
      let end = ContinuousClock.now + .milliseconds(milliseconds)
      await onThreads(threads) { thread in
        var number = 0
        while ContinuousClock.now < end
          || !isEnough() && ContinuousClock.now < end + .seconds(300)
        {
          number += 1
          do {
            if let fault = try body(thread, number) { faults.withLock { $0.append(fault) } }
          } catch {
            faults.withLock { $0.append("\(error)") }
          }
        }
      }
      #expect(peers.map { $0.finish() } == ["", ""])
      #expect(faults.withLock { $0 }.prefix(5) == [])
    }

    @Test func readersSeeWholeFilesDuringConcurrentSaves() async throws {
      try directory.save(
        SelfCheckingValue(key: 0, writer: 0, number: 0, size: 100).bytes, as: "d/f")
      let reads = Locked(0)
      let directory = directory
      try await expectNoFault(
        milliseconds: Coverage.count(sample: 500, complete: 2_000), threads: 4,
        until: { reads.withLock { $0 > 100 } },
        body: { thread, number in
          if thread < 2 {
            let value = SelfCheckingValue(
              key: 0, writer: thread, number: number, size: .random(in: 32...100_000))
            try directory.save(value.bytes, as: "d/f")
            return nil
          }
          let data: Data = try directory.load("d/f")
          _ = reads.increment()
          if SelfCheckingValue(data, key: 0) == nil { return "\(data.count) bytes, not a value" }
          return try directory.list("d") == ["f"] ? nil : "another file"
        })
      #expect(reads.withLock { $0 } > 100)
      #expect(try home.leftoverFiles() == [])
    }

    @Test func killedWriterLeavesTheOldOrTheNewFile() throws {
      let kills = 60
      var last = 0
      var leftoverFiles = 0
      for _ in 0..<kills {
        let peer = try Peer.start(home, "files-acknowledge", "\(last)")
        let first = peer.line().flatMap { Int($0) } ?? last
        waitForARandomMoment(upTo: .milliseconds(4))
        kill(peer.identifier, SIGKILL)
        let said = peer.finish().split(separator: "\n").compactMap { Int($0) }
        let acknowledged = said.last ?? first
        let data: Data = try directory.load("d/f")
        let value = try #require(SelfCheckingValue(data, key: 0))
        #expect([acknowledged, acknowledged + 1].contains(value.number))
        #expect(try directory.list("d") == ["f"])
        leftoverFiles += try home.leftoverFiles().count
        last = value.number
        // A recent file stays, because its writer may not have locked it yet.
        let young = try home.leftoverFiles()
        AbandonedFiles.sweep(try DirectoryHandle(home.path + "/d"))
        #expect(try home.leftoverFiles() == young)
        for name in young { try home.age(name, seconds: 4_000) }
        AbandonedFiles.sweep(try DirectoryHandle(home.path + "/d"))
        #expect(try home.leftoverFiles() == [])
      }
      #expect(leftoverFiles > 0, "no writer was killed in the middle")
    }

    @Test func aProcessThatKeepsRunningSweepsEachHour() throws {
      let now = WallClock.now
      func save(atMinute minute: Int64) throws {
        try WallClock.$fixed.withValue(now + minute * 60 * WallClock.second) {
          try directory.save("x", as: "d/f")
        }
      }
      try save(atMinute: 0)
      let name = "d/" + TemporaryFile.makeName()
      try home.write([1], to: name)
      try home.age(name, seconds: 4_000)
      try save(atMinute: 59)
      #expect(try home.leftoverFiles() == [name])
      try save(atMinute: 60)
      #expect(try home.leftoverFiles() == [])
      try home.write([1], to: name)
      try home.age(name, seconds: 8_000)
      // The clock was set back.
      try save(atMinute: -60)
      #expect(try home.leftoverFiles() == [])
    }

    @Test func oneOfSeveralProcessesCreatesEachFile() throws {
      let count = Coverage.count(sample: 300, complete: 3_000)
      let peers = try (0..<3).map { try Peer.start(home, "files-create", "\($0)", "\(count)") }
      var winners: [Int: [Int]] = [:]
      for (writer, peer) in peers.enumerated() {
        for line in peer.finish().split(separator: "\n") {
          winners[try #require(Int(line), "\(line)"), default: []].append(writer)
        }
      }
      #expect(winners.count == count && winners.values.allSatisfy { $0.count == 1 })
      for (number, writers) in winners {
        let data: Data = try directory.load("d/\(number)")
        let value = try #require(SelfCheckingValue(data, key: 0))
        #expect(value.number == number && [value.writer] == writers)
      }
      #expect(try directory.list("d").count == count && home.leftoverFiles() == [])
      let shares = (0..<3).map { writer in winners.values.count { $0 == [writer] } }
      print("proof: new files: \(count) names, created by three processes: \(shares)")
    }

    @Test func nextProcessRemovesFilesOfAKilledWriter() throws {
      try home.makeDirectory("d")
      for name in [".keepsake-1.tmp", ".keepsake-own", ".keepsake-x", "x.tmp"] {
        try home.write([1], to: "d/" + name)
        try home.age("d/" + name, seconds: 4_000)
      }
      try home.makeDirectory("d/.keepsake-2.tmp/e")
      try home.write([1], to: "d/.keepsake-2.tmp/e/f")
      try home.age("d/.keepsake-2.tmp", seconds: 4_000)
      try home.link("d/.keepsake-3.tmp", to: "..")
      try home.age("d/.keepsake-3.tmp", seconds: 4_000)
      try home.write([1], to: "d/.keepsake-4.tmp")
      #expect(try Peer.start(home, "files-acknowledge", "0").line() == "1")
      let names = try FileManager.default.contentsOfDirectory(atPath: home.path + "/d")
      let kept: Set = [".keepsake-4.tmp", ".keepsake-own", ".keepsake-x", "x.tmp", "f"]
      #expect(kept.isSubset(of: names))
      for number in 1...3 { #expect(!names.contains(".keepsake-\(number).tmp")) }
    }

    /// A writer that is killed when its file has the mode of the one that it replaces.
    @Test func readOnlyFileOfAKilledWriterIsRemoved() throws {
      let name = "own/.keepsake-1.tmp"
      try home.makeDirectory("own")
      try home.write([1], to: name)
      try home.setMode(0o400, name)
      try home.age(name, seconds: 4_000)
      let peer = try Peer.start(home, "hazards")
      if getuid() == 0 {
        // Root may open it for writing.
        for path in ["", "/own", "/" + name] {
          try #require(chown(home.path + path, 65_534, 65_534) == 0)
        }
        #expect(try peer.ask("become 65534") == "ok")
      }
      #expect(try peer.ask("set file k v") == "ok")
      #expect(try home.leftoverFiles() == [])
      peer.finish()
    }

    @Test func runningWritersFileIsNotSwept() throws {
      let peer = try Peer.start(home, "files-hold")
      #expect(peer.line() == "ready")
      let names = try home.leftoverFiles()
      try #require(names.count == 1)
      try home.age(names[0], seconds: 100_000)
      AbandonedFiles.sweep(try DirectoryHandle(home.path + "/d"))
      try directory.clear()
      #expect(try home.leftoverFiles() == names)
      #expect(try peer.ask("go on") == "done")
      #expect(try home.bytes(of: "d/f") == [1, 2])
    }

    @Test func clearingDuringConcurrentSavesSucceeds() async throws {
      let directory = directory
      let milliseconds = Coverage.count(sample: 500, complete: 1_500)
      try await expectNoFault(milliseconds: milliseconds, threads: 3) { thread, number in
        if thread == 0 {
          try directory.clear()
          sched_yield()
          return nil
        }
        let way = thread == 1 ? "d/f" : "d/e/\(number % 3)/f"
        let value = SelfCheckingValue(
          key: 0, writer: thread, number: number, size: .random(in: 32...10_000))
        try directory.save(value.bytes, as: way)
        let data: Data? = try directory.load(way)
        return data.map { SelfCheckingValue($0, key: 0) == nil ? "a part" : nil } ?? nil
      }
      try directory.clear()
      #expect(try directory.list(recursively: true, includingHidden: true) == [])
    }

    @Test func writerWithoutPermissionGetsAnError() throws {
      guard getuid() == 0 else { return }
      try home.setMode(0o700)
      try directory.save("x", as: "d/f")
      try home.setMode(0o711)
      let answer = try Peer.start(home, "files-as-nobody").finish()
      let lines = answer.split(separator: "\n")
      #expect(lines.count == 4 && lines.allSatisfy { $0.contains("access denied") }, "\(answer)")
      #expect(lines.allSatisfy { $0.contains(home.path) && $0.contains("mode") }, "\(answer)")
      #expect(try directory.load("d/f") as String == "x" && home.leftoverFiles() == [])
    }
  }
}
