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

    private func makeJournal(
      report: @escaping @Sendable (StorageError) -> Void = { _ in }
    ) -> Journal {
      // Longer than the tests wait for anything.
      directory.journal(timeout: .seconds(1_200), report: report)
    }

    private func holdLock(of name: String = TemporaryDirectory.journal) throws -> Child {
      let holder = try Peer.start(directory, "hold-lock", name)
      try #require(holder.line() == "held")
      return holder
    }

    private static func onThread(_ body: @escaping @Sendable () throws -> Void) -> ThreadGate {
      startThread { do { try body() } catch { Issue.record(error) } }
    }

    /// Writes in a thread, which waits for the lock of a file when this returns.
    private static func startWriting(
      waitingFor name: String, _ write: @escaping @Sendable () throws -> Void
    ) -> ThreadGate {
      let isWaiting = ThreadGate()
      let plan = FaultPlan(decide: { event in
        if event.call == .lock, event.path.hasSuffix(name) { isWaiting.open() }
        return .proceed
      })
      let hasWritten = onThread { try FaultPlan.$current.withValue(plan, operation: write) }
      isWaiting.wait()
      return hasWritten
    }

    @Test(arguments: [false, true])
    func readsBesideAThreadThatWaitsForTheLock(_ isKnown: Bool) throws {
      let journal = makeJournal()
      if isKnown { #expect(try journal.value(forKey: "a") == .int(1)) }
      let holder = try holdLock()
      let hasWritten = Self.startWriting(waitingFor: TemporaryDirectory.journal) {
        try journal.set(.int(2), forKey: "b")
      }
      Self.onThread { () throws in
        #expect(try journal.value(forKey: "a") == .int(1))
        #expect(try journal.keys() == ["a"])
      }.wait()
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
      let journal = makeJournal(report: failures.append)
      let holder = try holdLock()
      Self.onThread {
        try anHourLater { () throws in #expect(try journal.value(forKey: "b") == .int(2)) }
      }.wait()
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
      let journal = makeJournal()
      journal.lookOnlyWhenUsed()
      if isKnown { #expect(try journal.value(forKey: "b") == .int(2)) }
      let holder = try holdLock()
      let path = directory.file(TemporaryDirectory.journal).path
      let size = try #require(try FileSystem.status(path)).size
      try #require(truncate(path, isEmptied ? 0 : off_t(size - 5)) == 0)
      let change = try #require(try FileSystem.status(path, withTimes: true)).changed
      Self.onThread { () throws in
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
      }.wait()
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
      let holder = try holdLock(of: ledger)
      // Longer than the test waits for anything.
      let cache = FileCache(paths: paths, timeout: .seconds(1_200)) { Issue.record($0) }
      let payload = Payload(bytes: Data([2]), kind: .data)
      let hasWritten = Self.startWriting(waitingFor: ledger) {
        let options = WriteOptions(expiry: .never, isDurable: false)
        try cache.write(payload, forKey: "other", options, hook: commitDirectly)
      }
      Self.onThread { () throws in #expect(try cache.read("k")?.bytes == Data([1])) }.wait()
      #expect(!hasWritten.isOpen)
      holder.finish()
      hasWritten.wait()
      #expect(try cache.read("other")?.bytes == Data([2]))
    }
  }
}
