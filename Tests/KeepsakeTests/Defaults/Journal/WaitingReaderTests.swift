import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// A read returns while another process holds the lock, whatever the file is like.
  @Suite(.timeLimit(.minutes(20))) struct WaitingReaderTests {
    private let directory: TemporaryDirectory

    init() throws {
      directory = try TemporaryDirectory(isQuick: true)
      try directory.store().set(1, forKey: "a")
    }

    private func journal(report: @escaping @Sendable (StorageError) -> Void = { _ in }) -> Journal {
      let location = JournalPaths(
        directory: StoreDirectory(path: directory.path, isCallerOwned: false), name: "standard")
      // Longer than the tests wait for anything.
      return Journal(location: location, timeout: .seconds(1_200), report: report)
    }

    private func holdLock() throws -> Child {
      let holder = try Peer.start(directory, "hold-lock", TemporaryDirectory.journal)
      try #require(holder.line() == "held")
      return holder
    }

    private static func recordingErrors(_ body: () throws -> Void) {
      do { try body() } catch { Issue.record(error) }
    }

    @Test(arguments: [false, true])
    func readsBesideAThreadThatWaitsForTheLock(_ isKnown: Bool) throws {
      let journal = journal()
      if isKnown { #expect(try journal.value(forKey: "a") == .int(1)) }
      let holder = try holdLock()
      let isWaiting = ThreadGate()
      let plan = FaultPlan(decide: { event in
        if event.call == .lock { isWaiting.open() }
        return .proceed
      })
      let hasWritten = startThread {
        FaultPlan.$current.withValue(plan) {
          Self.recordingErrors { try journal.set(.int(2), forKey: "b") }
        }
      }
      isWaiting.wait()
      let hasRead = startThread {
        Self.recordingErrors { () throws in
          #expect(try journal.value(forKey: "a") == .int(1))
          #expect(try journal.keys() == ["a"])
        }
      }
      hasRead.wait()
      #expect(!hasWritten.isOpen)
      holder.finish()
      hasWritten.wait()
      #expect(try journal.value(forKey: "b") == .int(2))
    }

    /// Damage is repaired and reported by the first process that gets the lock.
    @Test func readsADamagedFile() throws {
      try directory.store().set(2, forKey: "b")
      var bytes = try directory.bytes(of: TemporaryDirectory.journal)
      bytes[JournalFormat.headerSize + 5] ^= 1  // in the record of "a"
      try Bytes.write(bytes, to: directory.file(TemporaryDirectory.journal).path)
      let failures = Failures()
      let journal = journal(report: failures.append)
      let holder = try holdLock()
      let hasRead = startThread {
        Self.recordingErrors { () throws in
          try anHourLater { () throws in #expect(try journal.value(forKey: "b") == .int(2)) }
        }
      }
      hasRead.wait()
      #expect(failures.all.isEmpty)
      holder.finish()
      waitUntil("the damage is reported") { !failures.all.isEmpty }
      #expect(failures.all.map(\.code) == [.damaged])
      #expect(try directory.names().contains { $0.contains(".damaged-") })
      #expect(try directory.bytes(of: TemporaryDirectory.journal) != bytes)
    }

    /// Until what another program has left of the file has settled, a reader has what it knows.
    @Test(arguments: [false, true], [false, true])
    func readsATruncatedFile(_ isEmptied: Bool, _ isKnown: Bool) throws {
      try directory.store().set(2, forKey: "b")
      let journal = journal()
      journal.lookOnlyWhenUsed()
      if isKnown { #expect(try journal.value(forKey: "b") == .int(2)) }
      let holder = try holdLock()
      let path = directory.file(TemporaryDirectory.journal).path
      let size = try #require(try FileSystem.status(path)).size
      try #require(truncate(path, isEmptied ? 0 : off_t(size - 5)) == 0)
      let change = try #require(try FileSystem.status(path, withTimes: true)).changed
      let hasRead = startThread {
        Self.recordingErrors { () throws in
          let rest: StoredValue? = isEmptied ? nil : .int(1)
          try WallClock.$fixed.withValue(change) { () throws in
            #expect(try journal.value(forKey: "a") == (isKnown ? .int(1) : rest))
            #expect(try journal.value(forKey: "b") == (isKnown ? .int(2) : nil))
          }
          try anHourLater { () throws in
            #expect(try journal.value(forKey: "a") == rest)
            // The word of a file that was cut off is as before, so only an event or a set tells.
            let isTold = isEmptied || !isKnown
            #expect(try journal.value(forKey: "b") == (isTold ? nil : .int(2)))
          }
        }
      }
      hasRead.wait()
      #expect(holder.isRunning)
      holder.finish()
      try anHourLater { try journal.set(.int(3), forKey: "c") }
      #expect(try journal.value(forKey: "c") == .int(3) && directory.store().int("c") == 3)
    }

    /// A writer that opens a cache makes the words of its ledger, under that file's lock.
    @Test func readsACacheBesideAThreadThatOpensItForWriting() throws {
      let store = directory.cache()
      try store.set(Data([1]), forKey: "k")
      let paths = try store.files.paths
      let ledger = "caches/.standard.ledger"
      try #require(truncate(directory.file(ledger).path, 8) == 0)
      let holder = try Peer.start(directory, "hold-lock", ledger)
      try #require(holder.line() == "held")
      // Longer than the test waits for anything.
      let cache = FileCache(paths: paths, timeout: .seconds(1_200)) { Issue.record($0) }
      let isWaiting = ThreadGate()
      let plan = FaultPlan(decide: { event in
        if event.call == .lock, event.path.hasSuffix(ledger) { isWaiting.open() }
        return .proceed
      })
      let payload = Payload(bytes: Data([2]), kind: .data)
      let hasWritten = startThread {
        FaultPlan.$current.withValue(plan) {
          Self.recordingErrors {
            let options = WriteOptions(expiry: .never, isDurable: false)
            try cache.write(payload, forKey: "other", options) {
              commit throws(StorageError) in try commit()
            }
          }
        }
      }
      isWaiting.wait()
      let hasRead = startThread {
        Self.recordingErrors { () throws in #expect(try cache.read("k")?.bytes == Data([1])) }
      }
      hasRead.wait()
      #expect(!hasWritten.isOpen)
      holder.finish()
      hasWritten.wait()
      #expect(try cache.read("other")?.bytes == Data([2]))
    }
  }
}
