import Foundation
import Testing

@testable import Keepsake
@testable import keepsake_peer

extension OneAtATime {
  /// Several processes at one cache, and processes that die.
  ///
  /// All values are certificates, which tell by themselves whether they are whole and for which key
  /// they were written. One test at a time, as each of them keeps all cores busy.
  @Suite(.serialized) struct CacheProcessTests {
    /// How long the longest test takes; the others take a fifth of it.
    private let seconds = Coverage.count("KEEPSAKE_SECONDS", sample: 2, complete: 10)
    private let kills = Coverage.count("KEEPSAKE_KILLS", sample: 40, complete: 500)

    @Test func underFireEveryHitIsAValueOfItsKeyAndTheLimitHolds() async throws {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let store = directory.ownCache("x", failures: failures)
      // Unlimited, the 50 keys would take some 1.6 MB.
      let limit = 512 << 10
      store.sizeLimit = limit
      let peers = try (0..<3).map {
        try Peer.start(
          directory, "cache-storm", "\(100 + $0)", "\(seconds * 1_000)", "\(limit)", "50")
      }
      let end = ContinuousClock.now + .seconds(seconds)
      async let storms = onThreads(8) { Storm().run(store, writer: $0, for: .seconds(seconds)) }
      var samples: [Int] = []
      while ContinuousClock.now < end {
        samples.append(try blocksTaken(by: directory.path + "/x"))
        try await Task.sleep(for: .milliseconds(10))
      }
      let tallies = await storms
      #expect(peers.map { $0.finish() } == ["", "", ""])
      #expect(peers.allSatisfy { $0.exitStatus == 0 })
      #expect(tallies.flatMap(\.faults).prefix(5) == [])
      #expect(tallies.allSatisfy { $0.hits > 0 && $0.sets > 0 })
      #expect(failures.all.isEmpty, "\(failures.all)")
      #expect(store.statistics.evictions > 0)
      #expect(store.statistics.damaged == 0)

      // Who finds the cache a tenth above the limit waits for the eviction; only what each of the
      // eleven writers has just put there, and not counted yet, can come on top. Mostly that is
      // little.
      let inFlight = 65_536 + 4_096
      let (highest, median) = (samples.max() ?? 0, samples.sorted()[samples.count / 2])
      #expect(highest <= limit / 10 * 11 + 11 * inFlight, "of \(samples.count) samples")
      #expect(median <= limit / 10 * 11 + inFlight, "of \(samples.count) samples")

      // What was begun in the background has ended once its lock can be had.
      store.sizeLimit = nil
      let files = try #require(store.engine as? FileCache)
      try #require(files.evicting.withLock(timeout: .seconds(10)) { _ in true } == true)
      try expectTidy(store, directory, "x")
    }

    @Test func aReadTakesNoPartOfTwoValuesWhileAllRewriteOneKey() async throws {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let store = directory.ownCache("x", failures: failures)
      let milliseconds = seconds * 200
      let peers = try (0..<2).map {
        try Peer.start(directory, "cache-storm", "\(100 + $0)", "\(milliseconds)", "0", "1")
      }
      let storm = Storm(keyCount: 1, sweeps: false, removes: false)
      let tallies = await onThreads(3) {
        storm.run(store, writer: $0, for: .milliseconds(milliseconds))
      }
      #expect(peers.map { $0.finish() } == ["", ""])
      #expect(tallies.flatMap(\.faults).prefix(5) == [])
      #expect(tallies.allSatisfy { $0.hits > 0 && $0.sets > 0 })
      #expect(failures.all.isEmpty, "\(failures.all)")
      #expect(store.statistics.damaged == 0)
      try expectTidy(store, directory, "x")
    }

    /// Kills writers at random moments and looks for what they had said was stored.
    /// `KEEPSAKE_KILLS` makes the run longer.
    @Test func killsLeaveNoWrongValueAndNoStrayFile() throws {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let writerCount = 4
      var last = Array(repeating: 0, count: writerCount)
      var states: [Int: KeptState] = [:]
      var spoilt = 0
      let roundCount = max(1, kills / writerCount)
      var round = -1
      // Long enough that a writer is killed between its two files, and seen by a reader.
      while round + 1 < roundCount || (kills >= 500 && spoilt == 0 && round < 4 * roundCount) {
        round += 1
        let peers = try (0..<writerCount).map {
          try Peer.start(directory, "cache-acknowledge", "\($0)", "\(last[$0])")
        }
        // The first line says that a process runs; then it has some time, at random.
        let firsts = peers.map { $0.line() }
        usleep(UInt32.random(in: 0...(Bool.random() ? 2_000 : 40_000)))
        for peer in peers {
          kill(peer.identifier, SIGKILL)
          if Bool.random() { usleep(UInt32.random(in: 0...2_000)) }
        }
        for (writer, peer) in peers.enumerated() {
          var acknowledged = last[writer]
          for line
            in ([firsts[writer] ?? ""] + peer.finish().split(separator: "\n").map(String.init))
          {
            if let number = Int(line) {
              acknowledged = number
            } else if !line.isEmpty {
              Issue.record("\(line)")
            }
          }
          try #require(last[writer] == 0 || acknowledged >= last[writer])
          for number in (last[writer] + 1)..<(acknowledged + 1) {
            states.note(KeptStep(writer: writer, number: number), isDone: true)
          }
          // The one in flight may have come to any point.
          states.note(KeptStep(writer: writer, number: acknowledged + 1), isDone: false)
          last[writer] = acknowledged
        }

        let kept = directory.ownCache("kept", failures: failures)
        let churned = directory.ownCache("churned", failures: failures)
        // Either comes first: a sweep of what was killed, or reading it.
        if round.isMultiple(of: 2) { try expectTidy(kept, directory, "kept") }
        for key in 0..<(writerCount * KeptStep.keyCount) {
          let data = try kept.get(Storm.name(key))
          let state = states[key] ?? KeptState()
          let isRight = state.allows(data)
          try #require(
            isRight, "round \(round): key \(key) has \(describe(data, key)), not \(state)")
          states[key] = KeptState(found: data, key)
        }
        for key in 0..<20 {
          let data = try churned.get(Storm.name(key))
          #expect(data.map { Certificate($0, key: key) != nil } ?? true, "key \(key)")
        }
        // What reading found spoilt is gone, and the books know that already.
        let (counted, taken) = (try kept.totalSize, try bytesTaken(directory, "kept"))
        if round.isMultiple(of: 2) { try #require(counted == taken) }
        spoilt += kept.statistics.damaged
        try expectTidy(kept, directory, "kept")
        try expectTidy(churned, directory, "churned")
      }
      #expect(failures.all.isEmpty, "\(failures.all)")
      if kills >= 500 { #expect(spoilt > 0, "no writer was killed between its two files") }
      #expect(last.allSatisfy { $0 > kills / writerCount }, "steps done: \(last)")
    }

    @Test func aForkedChildAndItsParentWriteAtOnce() throws {
      let directory = try TemporaryDirectory()
      #expect(try Peer.start(directory, "cache-fork", "1500").finish() == "done 0\n")
      let store = directory.ownCache("x")
      // Nobody removed anything, so each key has the last value of one of the two.
      for key in 0..<3 {
        let data = try store.get(Storm.name(key))
        #expect(data.flatMap { Certificate($0, key: key) } != nil, "\(describe(data, key))")
      }
      // Both kept the books right, without a sweep.
      #expect(try store.totalSize == bytesTaken(directory, "x"))
      try expectTidy(store, directory, "x")
    }

    @Test func removingWhatExpiredNeverRemovesWhatWasJustRewritten() throws {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let store = directory.ownCache("x", failures: failures)
      try store.set(Data([0]), forKey: "key0")
      let sweepers = try (0..<2).map { _ in try Peer.start(directory, "cache-sweep", "key0") }
      for sweeper in sweepers { #expect(sweeper.line() == "ready") }
      let end = ContinuousClock.now + .milliseconds(seconds * 200)
      var number = 0
      while number < 100 || ContinuousClock.now < end {
        number += 1
        let first = Certificate(key: 0, writer: 1, number: number, size: 100)
        try store.set(first.bytes, forKey: "key0", expiry: .seconds(0.001))
        // About when it expires.
        usleep(UInt32.random(in: 700...1_300))
        let second = Certificate(key: 0, writer: 2, number: number, size: .random(in: 32...9_000))
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

    @Test func emptyingACacheWhileOthersSetLeavesItWorking() async throws {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let store = directory.ownCache("x", failures: failures)
      let milliseconds = seconds * 200
      let clearers = try (0..<2).map { _ in
        try Peer.start(directory, "cache-clear", "\(milliseconds)")
      }
      let setter = try Peer.start(directory, "cache-storm", "100", "\(milliseconds)", "0", "50")
      let storm = Storm(sweeps: true, removes: false)
      let tallies = await onThreads(3) {
        storm.run(store, writer: $0, for: .milliseconds(milliseconds))
      }
      #expect((clearers + [setter]).map { $0.finish() } == ["", "", ""])
      #expect(tallies.flatMap(\.faults).prefix(5) == [])
      #expect(tallies.allSatisfy { $0.sets > 0 })
      #expect(failures.all.isEmpty, "\(failures.all)")

      try expectTidy(store, directory, "x")
      try store.removeAll()
      #expect(try store.totalSize == 0)
      for key in 0..<50 {
        let value = Certificate(key: key, writer: 9, number: key, size: 1_000 * key + 1)
        try store.set(value.bytes, forKey: Storm.name(key))
        #expect(try store.get(Storm.name(key)) == value.bytes)
      }
      #expect(try store.totalSize == bytesTaken(directory, "x"))
      try expectTidy(store, directory, "x")
    }

    @Test func theBooksStayRightWhereAWriterWasKilledBetweenItsTwoFiles() throws {
      let directory = try TemporaryDirectory()
      for removes in [true, false] {
        let store = directory.ownCache("x")
        try store.set(Data([1]), forKey: "a")
        let sidecar = URL(filePath: try #require(try store.fileURL("a")).path + Sidecar.suffix)
        let old = try Data(contentsOf: sidecar)
        try store.set(Data(count: 100_000), forKey: "a")
        try old.write(to: sidecar)
        // Counts the new payload, while the sidecar still speaks of the old one.
        try store.removeExpired()
        if removes { try store.remove("a") } else { #expect(try store.get("a") == nil) }
        #expect(try store.totalSize == bytesTaken(directory, "x"))
        try expectTidy(store, directory, "x")
      }
    }

    @Test func aSweepLeavesTheFilesOfACacheWhoseNameGoesOnAfterADot() throws {
      let directory = try TemporaryDirectory()
      let (short, long) = (directory.ownCache("x"), directory.ownCache("x.y"))
      try short.set(Data([1]), forKey: "a")
      let writer = try long.engine.startWriting("a")
      try short.removeExpired()
      try writer.finish(WriteOptions(lifespan: .endless, isDurable: false), within: plainly)
      #expect(try long.get("a") == Data())
    }
  }
}

/// What a key may have after kills.
private struct KeptState: CustomStringConvertible {
  /// Any of these; nil stands for a miss.
  var allowed: Set<Certificate?> = [nil]

  init() {}

  init(found data: Data?, _ key: Int) {
    allowed = [data.flatMap { Certificate($0, key: key) }]
  }

  func allows(_ data: Data?) -> Bool {
    guard let data else { return allowed.contains(nil) }
    return allowed.contains { $0?.bytes == data }
  }

  var description: String { allowed.map { $0.map { "\($0)" } ?? "nil" }.joined(separator: " or ") }
}

extension [Int: KeptState] {
  fileprivate mutating func note(_ step: KeptStep, isDone: Bool) {
    let key = step.value.key
    var after: Set<Certificate?> =
      switch step.action {
      case .remove: [nil]
      case .set, .setLasting, .setFile, .setChunks: [step.value]
      case .setFleeting: [step.value, nil]
      }
    // One that was killed in the middle may have left the old value, or have made it a miss.
    if !isDone { after.formUnion((self[key] ?? KeptState()).allowed.union([nil])) }
    self[key, default: KeptState()].allowed = after
  }
}

/// For messages: a value as far as it can be told.
private func describe(_ data: Data?, _ key: Int) -> String {
  guard let data else { return "nil" }
  return Certificate(data, key: key).map { "\($0)" } ?? "\(data.count) bytes that fit no key"
}

/// What `body` returns on as many threads of its own, which may block.
private func onThreads<R: Sendable>(
  _ count: Int, _ body: @escaping @Sendable (Int) -> R
) async -> [R] {
  await withTaskGroup(of: R.self) { group in
    for number in 0..<count {
      group.addTask {
        await withCheckedContinuation { continuation in
          Thread.detachNewThread { continuation.resume(returning: body(number)) }
        }
      }
    }
    return await group.reduce(into: []) { $0.append($1) }
  }
}

/// The files of a cache's entries, temporary ones left out.
private func entryFiles(_ root: String) throws -> [(directory: String, name: String)] {
  try FileSystem.list(root).filter { $0.utf8.count == 2 }.flatMap { directory in
    try FileSystem.list(root + "/" + directory).filter { !$0.hasPrefix(".") }.map {
      (directory, $0)
    }
  }
}

/// What the files of all entries have got from the disk.
private func blocksTaken(by root: String) throws -> Int {
  try entryFiles(root).reduce(0) { sum, file in
    var status = stat()
    let isThere = stat("\(root)/\(file.directory)/\(file.name)", &status) == 0
    return sum + (isThere ? Int(status.st_blocks) * 512 : 0)
  }
}

/// The sizes of all entries' files, each rounded up to blocks.
private func bytesTaken(_ directory: TemporaryDirectory, _ name: String) throws -> Int {
  let root = directory.path + "/" + name
  let block = try FileSystem.limits(at: directory.path).blockSize
  return try entryFiles(root).reduce(0) { sum, file in
    let size = try FileSystem.status("\(root)/\(file.directory)/\(file.name)")?.size ?? 0
    return sum + (size + block - 1) / block * block
  }
}

/// Sweeps a cache that nobody else uses, and expects whole entries there and nothing else.
private func expectTidy(
  _ store: DiskCache.Store, _ directory: TemporaryDirectory, _ name: String,
  sourceLocation: SourceLocation = #_sourceLocation
) throws {
  try store.removeExpired()
  let root = directory.path + "/" + name
  let beside = try directory.names().filter { $0.hasPrefix(".\(name).") && $0 != ".\(name).ledger" }
  try #require(beside == [], sourceLocation: sourceLocation)
  for top in try FileSystem.list(root) where top != "CACHEDIR.TAG" {
    let names = Set(try FileSystem.list(root + "/" + top))
    let strays = names.filter { file in
      if file.hasPrefix(".") { return true }
      let isSidecar = file.hasSuffix(Sidecar.suffix)
      return !names.contains(
        isSidecar ? String(file.dropLast(Sidecar.suffix.count)) : file + Sidecar.suffix)
    }
    try #require(strays.isEmpty, "in \(top)", sourceLocation: sourceLocation)
    try #require(Int(top, radix: 16) != nil, "\(top)", sourceLocation: sourceLocation)
  }
  let (counted, taken) = (try store.totalSize, try bytesTaken(directory, name))
  try #require(counted == taken, sourceLocation: sourceLocation)
}
