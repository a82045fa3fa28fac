import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// A read returns while another process holds the lock, whatever the files are like.
  @Suite(.timeLimit(.minutes(20))) struct WaitingReaderTests {
    private let directory: TemporaryDirectory

    init() throws {
      directory = try TemporaryDirectory(isQuick: true)
      try directory.store().set(1, forKey: "a")
    }

    private static let lockFile = ".standard.lock"

    /// A lock file that the next writer has to complete under its lock.
    enum LockFileState: CaseIterable {
      case new, truncatedInUse, eightBytes
    }

    private func journal(
      report: @escaping @Sendable (StorageError) -> Void = { _ in }
    ) throws -> Journal {
      let location = try JournalPaths(
        directory: StoreDirectory(path: directory.path, isCallerOwned: false), name: "standard")
      // Longer than the tests wait for anything.
      return Journal(location: location, timeout: .seconds(1_200), report: report)
    }

    private func holdLock() throws -> Child {
      let holder = try Peer.start(directory, "hold-lock", Self.lockFile)
      try #require(holder.line() == "held")
      return holder
    }

    private static func recordingErrors(_ body: () throws -> Void) {
      do { try body() } catch { Issue.record(error) }
    }

    @Test(arguments: LockFileState.allCases)
    func readsBesideAThreadThatWaitsForTheLock(_ state: LockFileState) throws {
      let journal = try journal()
      if state == .truncatedInUse { #expect(try journal.value(forKey: "a") == .int(1)) }
      let word = try directory.bytes(of: Self.lockFile).prefix(state == .eightBytes ? 8 : 0)
      let lockFile = try File(directory.file(Self.lockFile).path, .readWrite)
      #expect(ftruncate(lockFile.descriptor, off_t(word.count)) == 0)
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
      try directory.write(bytes, to: TemporaryDirectory.journal)
      let failures = Failures()
      let journal = try journal(report: failures.append)
      let holder = try holdLock()
      let hasRead = startThread {
        Self.recordingErrors { () throws in #expect(try journal.value(forKey: "b") == .int(2)) }
      }
      hasRead.wait()
      #expect(failures.all.isEmpty)
      holder.finish()
      waitUntil("the damage is reported") { !failures.all.isEmpty }
      #expect(failures.all.map(\.code) == [.damaged])
      #expect(try directory.names().contains { $0.contains(".damaged-") })
      #expect(try directory.bytes(of: TemporaryDirectory.journal) != bytes)
    }
  }
}
