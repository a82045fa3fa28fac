import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension OneAtATime {
  /// Caches that several processes use, and processes that are killed.
  ///
  /// All values are certificates: each shows whether it is complete and for which key it was
  /// written. The tests run one at a time because each of them keeps all cores busy.
  @Suite(.serialized) struct CacheProcessTests {
    /// The duration of the longest test; the others take a fifth of it.
    private let seconds = Coverage.count("KEEPSAKE_SECONDS", sample: 1, complete: 10)
    private let kills = Coverage.count("KEEPSAKE_KILLS", sample: 10, complete: 500)
    private let directory: TemporaryDirectory
    private let failures = Failures()
    private let store: DiskCache.Store

    init() throws {
      directory = try TemporaryDirectory()
      store = directory.ownCache("x", failures: failures)
    }

    /// Expects the threads to have set values, and neither them nor the other processes, which end
    /// now, to have found a wrong one.
    private func expectNoFault(_ tallies: [CacheStress.Tally], _ peers: [Child]) {
      for peer in peers { #expect(peer.finish() == "" && peer.exitStatus == 0) }
      #expect(tallies.flatMap(\.faults).prefix(5) == [])
      #expect(tallies.allSatisfy { $0.sets > 0 })
      #expect(failures.all.isEmpty, "\(failures.all)")
    }

    @Test func hitsAreRightAndTheLimitHoldsWithManyWriters() async throws {
      // Without the limit the 50 keys would take about 1.6 MB.
      let limit = 512 << 10
      store.sizeLimit = limit
      // A writer waits for the eviction if the cache exceeds the limit by a tenth. Only the entries
      // that the eleven writers have just published and not counted yet can exceed that, and
      // usually there are at most five: other tests on the same processors hold writers up.
      let inFlight = 65_536 + 4_096
      let highestBound = limit / 10 * 11 + 11 * inFlight
      let medianBound = limit / 10 * 11 + 5 * inFlight
      var (highest, median) = (0, 0)
      // A writer that is held up for long while it has a lock keeps the others from evicting.
      for _ in 0..<10 {
        (highest, median) = try await sizesDuringAStorm(limit)
        if highest <= highestBound, median <= medianBound { break }
      }
      #expect(highest <= highestBound && median <= medianBound)

      // The other processes may have evicted everything that had to be. Now only this one can.
      for number in 0..<16 { try store.set(Data(count: 65_536), forKey: "after \(number)") }
      #expect(store.statistics.evictions > 0)

      // Once this lock is available, the eviction in the background has ended.
      store.sizeLimit = nil
      try #require(store.files.eviction.lock.withLock(timeout: .seconds(600)) { _ in true } == true)
      try expectTidy(store, directory, "x")
    }

    /// The highest and the median of the sizes that a cache has while eleven writers use it.
    private func sizesDuringAStorm(_ limit: Int) async throws -> (highest: Int, median: Int) {
      let peers = try (0..<3).map {
        try Peer.start(
          directory, "cache-stress", "\(100 + $0)", "\(seconds * 1_000)", "\(limit)", "50")
      }
      let isOver = Locked(false)
      async let storms = onThreads(8) {
        defer { isOver.withLock { $0 = true } }
        return CacheStress().run(store, writer: $0, for: .seconds(seconds))
      }
      var samples: [Int] = []
      // At least once, even if it is late already.
      repeat {
        samples.append(try blocksTaken(by: directory.path + "/x"))
        await Task.yield()
      } while !isOver.withLock { $0 }
      let tallies = await storms
      expectNoFault(tallies, peers)
      #expect(tallies.allSatisfy { $0.hits > 0 })
      #expect(store.statistics.damaged == 0)
      return (samples.max() ?? 0, samples.sorted()[samples.count / 2])
    }

    @Test func readsReturnCompleteValuesWhileAllWriteOneKey() async throws {
      let milliseconds = seconds * 200
      let peers = try (0..<2).map {
        try Peer.start(directory, "cache-stress", "\(100 + $0)", "\(milliseconds)", "0", "1")
      }
      let storm = CacheStress(keyCount: 1, sweeps: false, removes: false)
      let tallies = await onThreads(3) {
        storm.run(store, writer: $0, for: .milliseconds(milliseconds))
      }
      expectNoFault(tallies, peers)
      #expect(tallies.allSatisfy { $0.hits > 0 })
      #expect(store.statistics.damaged == 0)
      try expectTidy(store, directory, "x")
    }

    @Test func piecesAreOfOneValueWhileOtherProcessesReplaceIt() async throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let store = directory.ownCache("x", failures: failures)
      let milliseconds = seconds * 100
      let peers = try (0..<2).map {
        try Peer.start(directory, "cache-stress", "\(100 + $0)", "\(milliseconds)", "0", "1")
      }
      let end = ContinuousClock.now + .milliseconds(milliseconds)
      var (count, pieceCount) = (0, 0)
      // A busy machine needs longer for some reads.
      while ContinuousClock.now < end
        || count < 20 && ContinuousClock.now < end + .seconds(60)
      {
        guard let chunks = try store.chunks(CacheStress.name(0), size: 5_000) else {
          await Task.yield()
          continue
        }
        var data = Data()
        for try await piece in chunks {
          data += piece
          pieceCount += 1
        }
        // Values are also stored as text.
        let isWhole = [data, Data(base64Encoded: data) ?? Data()].contains {
          SelfCheckingValue($0, key: 0) != nil
        }
        try #require(isWhole, "\(data.count) bytes")
        count += 1
      }
      #expect(peers.map { $0.finish() } == ["", ""])
      #expect(count >= 20 && store.statistics.damaged == 0 && failures.all.isEmpty)
      print("proof: pieces: \(count) values in \(pieceCount) pieces while two processes set them")
    }

    /// Kills writers at random moments and expects the values that they had acknowledged.
    /// `KEEPSAKE_KILLS` makes the run longer.
    @Test func killedWritersLeaveNoWrongValueAndNoOtherFiles() throws {
      let writerCount = 4
      var last = Array(repeating: 0, count: writerCount)
      var states: [Int: CacheStepState] = [:]
      let roundCount = max(1, kills / writerCount)
      for round in 0..<roundCount {
        let peers = try (0..<writerCount).map {
          try Peer.start(directory, "cache-acknowledge", "\($0)", "\(last[$0])")
        }
        // After its first line a process is running; it is killed a random time later.
        let firsts = peers.map { $0.line() }
        waitForARandomMoment(upTo: .milliseconds(Bool.random() ? 2 : 40))
        for peer in peers {
          kill(peer.identifier, SIGKILL)
          if Bool.random() { waitForARandomMoment(upTo: .milliseconds(2)) }
        }
        for (writer, peer) in peers.enumerated() {
          let lines = "\(firsts[writer] ?? "")\n\(peer.finish())".split(separator: "\n")
          #expect(lines.allSatisfy { Int($0) != nil }, "\(lines.suffix(3))")
          let acknowledged = lines.compactMap { Int($0) }.last ?? last[writer]
          try #require(last[writer] == 0 || acknowledged >= last[writer])
          for number in (last[writer] + 1)..<(acknowledged + 1) {
            states.note(CacheStep(writer: writer, number: number), isDone: true)
          }
          // The step after it may have been interrupted at any point.
          states.note(CacheStep(writer: writer, number: acknowledged + 1), isDone: false)
          last[writer] = acknowledged
        }

        let kept = directory.ownCache("kept", failures: failures)
        let churned = directory.ownCache("churned", failures: failures)
        // In every other round the cache is swept before it is read.
        if round.isMultiple(of: 2) { try expectTidy(kept, directory, "kept") }
        for key in 0..<(writerCount * CacheStep.keyCount) {
          let data = try kept.get(CacheStress.name(key))
          let state = states[key] ?? CacheStepState()
          let isRight = state.allows(data)
          try #require(
            isRight, "round \(round): key \(key) has \(describe(data, key)), not \(state)")
          states[key] = CacheStepState(found: data, key)
        }
        for key in 0..<20 {
          let data = try churned.get(CacheStress.name(key))
          #expect(data.map { SelfCheckingValue($0, key: key) != nil } ?? true, "key \(key)")
        }
        // Reading has removed damaged entries and subtracted their size.
        let (counted, taken) = (try kept.totalSize, try bytesTaken(directory, "kept"))
        if round.isMultiple(of: 2) { try #require(counted == taken) }
        #expect(kept.statistics.damaged == 0)
        try expectTidy(kept, directory, "kept")
        try expectTidy(churned, directory, "churned")
      }
      #expect(failures.all.isEmpty, "\(failures.all)")
      print("proof: kills, caches: \(roundCount * writerCount) kills, none lost an entry")
      #expect(last.allSatisfy { $0 >= roundCount }, "steps done: \(last)")
    }

    @Test func aForkedChildAndItsParentWriteAtTheSameTime() throws {
      let count = Coverage.count(sample: 400, complete: 1_500)
      #expect(try Peer.start(directory, "cache-fork", "\(count)").finish() == "done 0\n")
      let store = directory.ownCache("x")
      // Nothing was removed, so each key has the last value of one of the two.
      for key in 0..<3 {
        let data = try store.get(CacheStress.name(key))
        #expect(data.flatMap { SelfCheckingValue($0, key: key) } != nil, "\(describe(data, key))")
      }
      // Both have counted their entries, so that no sweep is needed.
      #expect(try store.totalSize == bytesTaken(directory, "x"))
      try expectTidy(store, directory, "x")
    }

    @Test func removingExpiredEntriesKeepsEntriesJustReplaced() throws {
      try store.set(Data([0]), forKey: "key0")
      let sweepers = try (0..<2).map { _ in try Peer.start(directory, "cache-sweep", "key0") }
      for sweeper in sweepers { #expect(sweeper.line() == "ready") }
      let end = ContinuousClock.now + .milliseconds(seconds * 200)
      var number = 0
      while number < 100 || ContinuousClock.now < end {
        number += 1
        let first = SelfCheckingValue(key: 0, writer: 1, number: number, size: 100)
        // It expires before, during or after the next set.
        try store.set(first.bytes, forKey: "key0", expiry: .seconds(.random(in: 0...0.001)))
        let second = SelfCheckingValue(
          key: 0, writer: 2, number: number, size: .random(in: 32...9_000))
        try store.set(second.bytes, forKey: "key0")
        for _ in 0..<Int.random(in: 1...40) {
          let data = try store.get("key0")
          try #require(data == second.bytes, "round \(number): \(describe(data, 0))")
        }
      }
      for sweeper in sweepers {
        kill(sweeper.identifier, SIGKILL)
        #expect(sweeper.finish() == "")
      }
      #expect(failures.all.isEmpty, "\(failures.all)")
      try expectTidy(store, directory, "x")
    }

    @Test func emptyingACacheDuringSetsLeavesItWorking() async throws {
      let milliseconds = seconds * 200
      let clearers = try (0..<2).map { _ in
        try Peer.start(directory, "cache-clear", "\(milliseconds)")
      }
      let setter = try Peer.start(directory, "cache-stress", "100", "\(milliseconds)", "0", "50")
      let storm = CacheStress(sweeps: true, removes: false)
      let tallies = await onThreads(3) {
        storm.run(store, writer: $0, for: .milliseconds(milliseconds))
      }
      expectNoFault(tallies, clearers + [setter])

      try expectTidy(store, directory, "x")
      try store.removeAll()
      #expect(try store.totalSize == 0)
      for key in 0..<50 {
        let value = SelfCheckingValue(key: key, writer: 9, number: key, size: 1_000 * key + 1)
        try store.set(value.bytes, forKey: CacheStress.name(key))
        #expect(try store.get(CacheStress.name(key)) == value.bytes)
      }
      #expect(try store.totalSize == bytesTaken(directory, "x"))
      try expectTidy(store, directory, "x")
    }

    @Test func totalSizeIsRightAfterAWriterWasKilledBetweenItsTwoFiles() throws {
      for removes in [true, false] {
        let store = directory.ownCache("x")
        try store.set(Data([1]), forKey: "a")
        let sidecar = URL(filePath: try #require(try store.fileURL("a")).path + Sidecar.suffix)
        let old = try Data(contentsOf: sidecar)
        try store.set(Data(count: 100_000), forKey: "a")
        try old.write(to: sidecar)
        // The sweep counts the new payload, although the sidecar belongs to the old one.
        try store.removeExpired()
        if removes { try store.remove("a") } else { #expect(try store.get("a") == nil) }
        #expect(try store.totalSize == bytesTaken(directory, "x"))
        try expectTidy(store, directory, "x")
      }
    }

    @Test func aSweepKeepsTheFilesOfACacheWhoseNameContinuesAfterADot() throws {
      let (short, long) = (directory.ownCache("x"), directory.ownCache("x.y"))
      try short.set(Data([1]), forKey: "a")
      let writer = try long.engine.startWriting("a")
      try short.removeExpired()
      try writer.finish(WriteOptions(expiry: .never, isDurable: false), hook: commitDirectly)
      #expect(try long.get("a") == Data())
    }
  }
}

/// The values that a key may have after a writer was killed.
private struct CacheStepState: CustomStringConvertible {
  /// nil stands for a miss.
  var allowed: Set<SelfCheckingValue?> = [nil]

  init() {}

  init(found data: Data?, _ key: Int) {
    allowed = [data.flatMap { SelfCheckingValue($0, key: key) }]
  }

  func allows(_ data: Data?) -> Bool {
    guard let data else { return allowed.contains(nil) }
    return allowed.contains { $0?.bytes == data }
  }

  var description: String { allowed.map { $0.map { "\($0)" } ?? "nil" }.joined(separator: " or ") }
}

extension [Int: CacheStepState] {
  fileprivate mutating func note(_ step: CacheStep, isDone: Bool) {
    let key = step.value.key
    var after: Set<SelfCheckingValue?> =
      switch step.action {
      case .remove, .setGone: [nil]
      case .set, .setLasting, .setFile, .setChunks, .setTagged, .revalidate: [step.value]
      case .setFleeting: [step.value, nil]
      }
    // A writer that was killed during the step may have left the old value.
    if !isDone { after.formUnion((self[key] ?? CacheStepState()).allowed) }
    // Between its two calls, the entry has expired.
    if !isDone, case .revalidate = step.action { after.insert(nil) }
    self[key, default: CacheStepState()].allowed = after
  }
}

/// Describes a value in a failure message.
private func describe(_ data: Data?, _ key: Int) -> String {
  guard let data else { return "nil" }
  return SelfCheckingValue(data, key: key).map { "\($0)" } ?? "\(data.count) bytes that fit no key"
}

/// The files of a cache's entries, without temporary ones.
private func entryFiles(_ path: String) throws -> [(directory: String, name: String)] {
  try FileSystem.list(path).filter { $0.utf8.count == 2 }.flatMap { directory in
    try FileSystem.list(path + "/" + directory).filter { !$0.hasPrefix(".") }.map {
      (directory, $0)
    }
  }
}

/// The space that the files of all entries take on disk.
func blocksTaken(by path: String) throws -> Int {
  try entryFiles(path).reduce(0) { sum, file in
    var status = stat()
    let exists = stat("\(path)/\(file.directory)/\(file.name)", &status) == 0
    return sum + (exists ? Int(status.st_blocks) * 512 : 0)
  }
}

/// The sum of the sizes of all entries' files, each rounded up to whole blocks.
func bytesTaken(_ directory: TemporaryDirectory, _ name: String) throws -> Int {
  let path = directory.path + "/" + name
  let block = try FileSystem.limits(at: directory.path).blockSize
  return try entryFiles(path).reduce(0) { sum, file in
    let size = try FileSystem.status("\(path)/\(file.directory)/\(file.name)")?.size ?? 0
    return sum + (size + block - 1) / block * block
  }
}

/// Sweeps a cache that no other process uses, and expects that only complete entries remain.
private func expectTidy(
  _ store: DiskCache.Store, _ directory: TemporaryDirectory, _ name: String,
  sourceLocation: SourceLocation = #_sourceLocation
) throws {
  try store.removeExpired()
  let path = directory.path + "/" + name
  let beside = try directory.names().filter { $0.hasPrefix(".\(name).") && $0 != ".\(name).ledger" }
  try #require(beside == [], sourceLocation: sourceLocation)
  for top in try FileSystem.list(path) where top != "CACHEDIR.TAG" {
    let names = Set(try FileSystem.list(path + "/" + top))
    let strays = names.filter { file in
      if file.hasPrefix(".") { return true }
      let isSidecar = file.hasSuffix(Sidecar.suffix)
      // A record that there is no value has no payload.
      if isSidecar, let bytes = try? Bytes.read("\(path)/\(top)/\(file)"),
        let sidecar = try? Sidecar(bytes), sidecar.kind == nil
      {
        return false
      }
      return !names.contains(
        isSidecar ? String(file.dropLast(Sidecar.suffix.count)) : file + Sidecar.suffix)
    }
    try #require(strays.isEmpty, "in \(top)", sourceLocation: sourceLocation)
    try #require(Int(top, radix: 16) != nil, "\(top)", sourceLocation: sourceLocation)
  }
  let (counted, taken) = (try store.totalSize, try bytesTaken(directory, name))
  try #require(counted == taken, sourceLocation: sourceLocation)
}
