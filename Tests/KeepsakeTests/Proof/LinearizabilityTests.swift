import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension OneAtATime {
  /// Several processes read and write the same keys while some of them are stopped and killed: the
  /// calls on each key are linearizable, so a write counts for all processes from one moment on.
  @Suite(.singleThreaded, .serialized) struct LinearizabilityTests {
    /// The recordings of all processes that use one directory.
    ///
    /// Unchecked because one thread uses it at a time.
    private final class History: @unchecked Sendable {
      let directory: TemporaryDirectory
      let failures = Failures()
      let kind: MixedStores.Kind
      private let recordings: TemporaryDirectory
      private var count = 0
      /// Calls of this process, which runs on while others are stopped.
      let own: CallRecording

      init(_ kind: MixedStores.Kind) throws {
        (directory, recordings) = try (.init(isQuick: true), .init(isQuick: true))
        self.kind = kind
        own = try CallRecording(recordings.path + "/0")
      }

      /// New stores of this process, which share nothing in memory with others.
      func client() -> RegisterClient {
        RegisterClient(
          stores: MixedStores(opening: directory, failures), kind: kind, recording: own)
      }

      func startPeer() throws -> Child {
        count += 1
        return try Peer.start(
          directory, "history", "\(kind)", "\(count)", "\(recordings.path)/\(count)")
      }

      /// The path of the journal.
      var path: String { directory.path + "/" + TemporaryDirectory.journal }

      /// Writes a record as a writer that does not get as far as publishing it.
      func append(_ value: Int) throws {
        var record: [UInt8] = []
        let end = try Bytes.read(path).count
        JournalFormat.append(
          try Codec.encode(Data("\(value)".utf8)), key: "0", seed: try journalID(), to: &record)
        #expect(throws: CancellationError.self) {
          try own.write(value, keys: 0..<1) {
            try File(path, .readWrite).overwrite(record.span.bytes, at: end)
            throw CancellationError()
          }
        }
      }

      func journalID() throws -> UInt64 {
        let header = try Bytes.read(path).withUnsafeBytes { JournalFormat.header(of: $0) }
        guard case .valid(let id, isIntact: true) = header else { throw CancellationError() }
        return id
      }

      /// The journal, opened as another process opens it.
      func openJournal() throws -> JournalHandle {
        try #require(try JournalHandle.open(path, forWriting: true))
      }

      func calls() throws -> [RegisterCall] {
        try (0...count).flatMap { process in
          let path = "\(recordings.path)/\(process)"
          guard FileManager.default.fileExists(atPath: path) else { return [RegisterCall]() }
          return try CallRecording.calls(path, process: process)
        }
      }

      /// Returns how many calls there are.
      func expectLinearizable() throws -> Int {
        let calls = try calls()
        for key in RegisterClient.keys {
          let violation = LinearizabilityCheck.violation(
            in: calls.filter { $0.key == key }, mayLose: kind == .cache)
          #expect(violation == nil, "\(kind): \(violation?.description ?? "")")
        }
        return calls.count
      }
    }

    /// Reads, and runs `body` after the word is loaded and before the journal is looked at.
    private static func read(
      _ client: RegisterClient, _ history: History, _ body: @escaping @Sendable () throws -> Void
    ) throws {
      try interrupt(before: .stat, at: history.path, body) { try client.read(0) }
    }

    /// Reads with stores that know the suite, and with new ones, while a set has written its record
    /// and has not returned yet.
    @Test func aSettingCountsForAllReadersFromOneMomentOn() throws {
      let history = try History(.settings)
      let (old, writer) = (history.client(), history.client())
      try writer.write(1, 0)
      try old.read(0)
      try interrupt(before: .publish) {
        for client in [history.client(), old, history.client()] { try client.read(0) }
      } in: {
        try writer.write(2, 0)
      }
      for client in [old, history.client()] { try client.read(0) }
      _ = try history.expectLinearizable()
    }

    /// A reader knows a file that has been replaced twice. The second replacement is in place, and
    /// not published yet.
    @Test func aReaderOfAnEarlierFileDoesNotReadOlderValuesThanOthers() throws {
      let history = try History(.settings)
      let (old, writer) = (history.client(), history.client())
      try writer.write(1, 0)
      try old.read(0)
      try writer.stores.settings.store.journal.compact()
      try writer.write(2, 0)
      // The first word publishes the removal, and the second one the replacement.
      for number in 1...2 {
        try interrupt(before: .publish, number: number) {
          for client in [history.client(), old] { try client.read(0) }
        } in: {
          try writer.removeAll()
        }
        for client in [old, history.client()] { try client.read(0) }
        try writer.write(2, 0)
      }
      for client in [old, history.client()] { try client.read(0) }
      _ = try history.expectLinearizable()
    }

    /// The file is replaced and published while a reader, which knows the one before, validates.
    @Test func aReaderSeesAFileThatIsPublishedWhileItValidates() throws {
      let history = try History(.settings)
      let (old, writer) = (history.client(), history.client())
      try writer.write(1, 0)
      try old.read(0)
      let journal = try writer.stores.settings.store.journal
      try journal.compact()
      try writer.write(2, 0)
      try Self.read(old, history) { try journal.compact() }
      _ = try history.expectLinearizable()
    }

    /// While a reader validates, the file is replaced and published, and another writer is stopped
    /// before it publishes its record. The reader knows the file before, or none.
    ///
    @Test(arguments: [true, false])
    func aRecordInANewFileDoesNotCountBeforeItIsPublished(readerKnowsFile: Bool) throws {
      let history = try History(.settings)
      let (reader, writer) = (history.client(), history.client())
      if readerKnowsFile {
        try writer.write(1, 0)
        try reader.read(0)
        try writer.write(2, 0)
      }
      let lock = Locked<JournalHandle?>(nil)
      try Self.read(reader, history) {
        try writer.write(3, 0)
        try writer.stores.settings.store.journal.compact()
        let stopped = try history.openJournal()
        #expect(try stopped.file.tryLock())
        lock.withLock { $0 = stopped }
        try history.append(4)
      }
      for client in [history.client(), reader, history.client()] { try client.read(0) }
      lock.withLock { $0?.file.unlock() }
      for client in [history.client(), reader, history.client()] { try client.read(0) }
      _ = try history.expectLinearizable()
    }

    /// A writer was killed after it had written its record.
    @Test func theRecordOfAKilledWriterCountsForAllReadersOrForNone() throws {
      let history = try History(.settings)
      let (old, other) = (history.client(), history.client())
      try other.write(1, 0)
      try other.write(2, 1)
      try old.read(0)
      try history.append(3)
      for client in [history.client(), old, history.client(), old] { try client.read(0) }
      // The next writer settles whether the record counts.
      try other.write(4, 1)
      for client in [history.client(), old, other] { try client.read(0) }
      _ = try history.expectLinearizable()
    }

    /// Processes are stopped in the middle of their calls, and half of them are then killed.
    @Test(arguments: [MixedStores.Kind.settings, .secrets, .cache])
    func callsTakeEffectAtOneMoment(kind: MixedStores.Kind) throws {
      let histories = Coverage.count("KEEPSAKE_HISTORIES", sample: 1, complete: 10)
      var (stops, count) = (0, 0)
      for _ in 0..<histories {
        let history = try History(kind)
        let old = history.client()
        var peers = try (0..<3).map { _ in try history.startPeer() }
        for peer in peers { try #require(peer.line() == "begins") }
        for round in 0..<Coverage.count(sample: 10, complete: 30) {
          let index = round % peers.count
          waitForARandomMoment(upTo: .milliseconds(2))
          kill(peers[index].identifier, SIGSTOP)
          stops += 1
          let new = history.client()
          for client in [new, old] { for key in RegisterClient.keys { try client.read(key) } }
          if Bool.random() {
            peers[index].killAndWait()
            for key in RegisterClient.keys { try old.read(key) }
            let newest = history.client()
            for client in [newest, old] { for key in RegisterClient.keys { try client.read(key) } }
            peers[index] = try history.startPeer()
            try #require(peers[index].line() == "begins")
          } else {
            kill(peers[index].identifier, SIGCONT)
          }
        }
        for peer in peers { kill(peer.identifier, SIGKILL) }
        for peer in peers { #expect(peer.finish() == "") }
        #expect(history.failures.all.isEmpty, "\(history.failures.all)")
        count += try history.expectLinearizable()
      }
      print("proof: linearizable, \(kind): \(count) calls, \(stops) stops and kills")
    }
  }
}
