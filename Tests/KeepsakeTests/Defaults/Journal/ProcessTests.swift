import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// Several processes at the same time, and processes that are killed.
  @Suite struct ProcessTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test func fourProcessesLoseNoKeys() throws {
      let peers = try (0..<4).map { try Peer.start(directory, "fill", "p\($0)-", "2000") }
      for peer in peers {
        _ = peer.finish()
        #expect(peer.exitStatus == 0)
      }
      let store = directory.store()
      #expect(try store.keys().count == 8_000)
      for peer in 0..<4 { #expect(try store.int("p\(peer)-1999") == 1999) }
    }

    @Test func fourProcessesCountExactly() throws {
      let peers = try (0..<4).map { _ in try Peer.start(directory, "increment", "count", "2000") }
      for peer in peers { _ = peer.finish() }
      #expect(try directory.store().int("count") == 8_000)
    }

    @Test func readSeesAnotherProcessesSetWhileAThirdCompacts() throws {
      let store = directory.store()
      try store.set(0, forKey: "seen")
      let writer = try Peer.start(directory, "serve")
      let reader = try Peer.start(directory, "serve")
      // Keeps overriding its records, so its process compacts in the background.
      let compactor = try Peer.start(directory, "acknowledge", "0")
      _ = compactor.line()
      var rewrites: Set<UInt64> = []
      let deadline = ContinuousClock.now + .seconds(600)
      var number = 0
      while number < 1_500 || rewrites.count < 2 && ContinuousClock.now < deadline {
        number += 1
        #expect(try writer.ask("set seen \(number)") == "ok")
        #expect(try reader.ask("get seen") == "\(number)")
        #expect(try store.int("seen") == number)
        rewrites.insert(try #require(try FileSystem.status(store.journal.location.path)).inode)
        _ = compactor.line()
      }
      compactor.killAndWait()
      #expect(rewrites.count > 1, "no compaction took place")
    }

    /// Kills a writer at random moments, including during compactions, and expects every value that
    /// it acknowledged. `KEEPSAKE_KILLS` makes the run longer.
    @Test func killLosesNothingAcknowledged() throws {
      let kills = Coverage.count("KEEPSAKE_KILLS", sample: 10, complete: 500)
      let failures = Failures()
      var last = 0
      var files: Set<UInt64> = []
      let path = directory.file(TemporaryDirectory.journal).path
      for number in 0..<kills {
        let peer = try Peer.start(directory, "acknowledge", String(last))
        // The first line says that the writer runs. Then it gets a random time, sometimes until a
        // compaction has replaced the file.
        if let line = peer.line() { last = max(last, Int(line) ?? 0) }
        let before = try FileSystem.status(path)?.inode
        let deadline = ContinuousClock.now + .seconds(5)
        while number % 20 == 0, try FileSystem.status(path)?.inode == before,
          ContinuousClock.now < deadline
        {
          if let line = peer.line() { last = max(last, Int(line) ?? 0) }
        }
        waitForARandomMoment(upTo: .milliseconds(Bool.random() ? 2 : 40))
        kill(peer.identifier, SIGKILL)
        let lines = peer.finish().split(separator: "\n")
        let acknowledged = max(last, lines.last.flatMap { Int($0) } ?? 0)

        let store = directory.store(failures: failures)
        for number in max(1, acknowledged - 49)...acknowledged {
          let text: String? = try store.get("key\(number % 50)")
          let kept = try #require(text?.split(separator: " ").first.flatMap { Int($0) })
          // The set that was interrupted may have succeeded.
          #expect(kept == number || kept == acknowledged + 1 && kept % 50 == number % 50)
        }
        last = acknowledged  // the next process repeats the interrupted set
        files.insert(try #require(try FileSystem.status(store.journal.location.path)).inode)
      }
      #expect(failures.all.isEmpty, "\(failures.all)")
      #expect(files.count > kills / 50, "compactions took part: \(files.count) files")
      // Only temporary files of killed compactions may be left, which are removed later.
      #expect(try directory.names().allSatisfy { !$0.contains("damaged") })
    }

    @Test func shortLivedProcessesCompact() throws {
      let store = directory.store()
      let text = String(repeating: "x", count: 70_000)
      try store.set(text, forKey: "text")
      try store.set(text, forKey: "text")  // now dead records dominate
      let path = try store.journal.location.path
      let before = try #require(try FileSystem.status(path))
      var after = before
      // A process that exits waits for its compaction for two seconds, in which a busy machine may
      // not finish it.
      for _ in 0..<20 where after.isSameFile(as: before) {
        #expect(try Peer.start(directory, "set", "text", "1").finish() == "ok\n")
        after = try #require(try FileSystem.status(path))
      }
      #expect(!after.isSameFile(as: before) && after.size < 1_000)
      #expect(try store.int("text") == 1)
    }

    @Test func temporaryFilesOfKilledCompactionsAreRemoved() throws {
      let (old, young) = (".standard.jsonl.abc.tmp", ".standard.jsonl.def.tmp")
      for name in [old, young] { try directory.write([1], to: name) }
      let store = directory.store()
      try directory.age(old, seconds: 3_600)
      try store.set(1, forKey: "a")
      // A restored backup may have an old time when it is replaced.
      #expect(try directory.names().contains(old))
      try directory.age(young, seconds: -3_600)
      try anHourLater { try store.journal.compact() }
      #expect(try directory.names() == [young, TemporaryDirectory.journal])
    }

    /// The other thread does not exist in the child, which must not wait for a lock that it held.
    @Test(.forksBesideThreads) func forkedChildWritesWhileAThreadOfItsParentReads() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      #expect(try Peer.start(directory, "fork-while-reading", "8").finish() == "8\n")
    }

    @Test(.forksBesideThreads) func forkedChildWritesWhileAThreadOfItsParentUpdates() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      #expect(try Peer.start(directory, "fork-while-updating").finish() == "1 true 0\n")
    }

    /// A descriptor of the parent's would keep its lock, even after the parent was killed.
    @Test func forkedChildThatReadsKeepsNoLockOfItsParent() throws {
      #expect(try Peer.start(directory, "fork-read").finish() == "1 1\n")
    }

    @Test func throwsWhenTheLockIsHeldForLongerThanTheTimeout() throws {
      try directory.store().set(1, forKey: "a")
      let holder = try File(directory.file(TemporaryDirectory.journal).path, .read)
      #expect(try holder.tryLock())
      let journal = directory.journal()
      let error = expectFailure(.timedOut) { try journal.set(.int(2), forKey: "a") }
      #expect(error?.path == holder.path)
      // Reads take no lock.
      #expect(try journal.value(forKey: "a") == .int(1))
      holder.unlock()
      try journal.set(.int(2), forKey: "a")
      #expect(try journal.value(forKey: "a") == .int(2))
    }

    /// Another thread waits for the same lock, and this one for that thread.
    @Test func blamesTheProcessThatHoldsTheLockAndNotAnUpdate() throws {
      try directory.store().set(1, forKey: "a")
      let journal = directory.journal()
      let (isWaiting, mayContinue) = (ThreadGate(), ThreadGate())
      let attempts = Locked(0)
      // Another process holds the lock at the first attempt, and the second one takes long.
      let plan = FaultPlan(decide: { event in
        guard event.call == .lock else { return .proceed }
        let attempt = attempts.increment()
        if attempt == 1 { return .fail(EAGAIN) }
        isWaiting.open()
        mayContinue.wait()
        return .proceed
      })
      let hasEnded = startThread {
        FaultPlan.$current.withValue(plan) { try? journal.set(.int(2), forKey: "a") }
      }
      isWaiting.wait()
      let error = expectFailure(.timedOut) { try journal.set(.int(3), forKey: "a") }
      #expect(error?.description.contains("another process held the lock") == true)
      #expect(error?.remedy.contains("fuser") == true && error?.path == journal.location.path)
      mayContinue.open()
      hasEnded.wait()
      #expect(try journal.value(forKey: "a") == .int(2))
    }
  }
}
