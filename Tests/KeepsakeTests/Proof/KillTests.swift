import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension MixedStores {
  /// New stores, which share nothing in memory with others, on the files of a peer process.
  init(opening directory: TemporaryDirectory, _ failures: Failures) {
    self.init(
      settings: directory.store(failures: failures),
      secrets: directory.secrets(failures: failures),
      cache: directory.ownCache("mixed", failures: failures), files: Folder(directory.file("own")),
      in: directory.url)
  }
}

extension OneAtATime {
  /// Kills processes that use all stores at once, while another process keeps using them.
  ///
  /// `KEEPSAKE_KILLS` is the number of kills, `KEEPSAKE_SOAK` the seconds of the long run.
  @Suite(.singleThreaded, .serialized) struct KillTests {
    private struct Item: Hashable {
      let kind: MixedStores.Kind
      let key: Int
    }

    @Test func acknowledgedWritesSurviveKills() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let failures = Failures()
      let writerCount = 3
      let rounds = max(1, Coverage.count("KEEPSAKE_KILLS", sample: 16, complete: 300) / writerCount)
      // The values that each item may have; nil for no value.
      var allowed: [Item: Set<SelfCheckingValue?>] = [:]
      var last = [Int](repeating: 0, count: writerCount)
      var (counted, possiblyCounted) = (0, 0)
      func note(_ number: Int, by writer: Int, isDone: Bool = true) {
        let step = MixedStep(writer: writer, number: number)
        if step.isCounted { if isDone { counted += 1 } else { possiblyCounted += 1 } }
        let item = Item(kind: step.kind, key: step.value.key)
        var after: Set<SelfCheckingValue?> = [step.isRemoval ? nil : step.value]
        // A killed writer may have left the old value.
        if !isDone { after.formUnion(allowed[item] ?? [nil]) }
        allowed[item] = after
      }
      /// Expects each item to have an allowed value, which is its only one from then on.
      func check(_ comment: Comment) throws {
        let stores = MixedStores(opening: directory, failures)
        for (item, values) in allowed {
          let data = try stores[item.kind].bytes(CacheStress.name(item.key))
          let value = data.flatMap { SelfCheckingValue($0, key: item.key) }
          try #require(
            data == nil || value != nil, "\(comment): \(item) is not a value of that key")
          try #require(values.contains(value), "\(comment): \(item)")
          allowed[item] = [value]
        }
      }

      let other = try Peer.start(directory, "mixed-until-closed", "\(writerCount)")
      for round in 0..<rounds {
        let peers = try last.enumerated().map {
          try Peer.start(directory, "mixed", "\($0)", "\($1)")
        }
        var lines = peers.map { $0.line().map { [$0] } ?? [] }
        waitForARandomMoment(upTo: .milliseconds(Bool.random() ? 3 : 30))
        for peer in peers.shuffled() { kill(peer.identifier, SIGKILL) }
        for (writer, peer) in peers.enumerated() {
          lines[writer] += peer.finish().split(separator: "\n").map(String.init)
          let faults = lines[writer].filter { $0.hasPrefix("error") }
          try #require(faults.isEmpty, "round \(round): \(faults)")
          // The kill may have cut off the last line; then its step is the uncertain one.
          let end = lines[writer].compactMap { Int($0) }.max() ?? last[writer]
          for number in last[writer]..<end { note(number + 1, by: writer) }
          note(end + 1, by: writer, isDone: false)
          last[writer] = end + 1
        }
        try check("round \(round)")
      }

      let lines = other.finish().split(separator: "\n")
      try #require(lines.count == 1, "\(lines.prefix(3))")
      let end = try #require(lines.first.flatMap { Int($0) })
      for number in 1...max(1, end) { note(number, by: writerCount) }
      try check("the process that was not killed")
      let count = try directory.store().int(MixedStep.counter)
      #expect((counted...(counted + possiblyCounted)).contains(count), "\(count) of \(counted)")
      #expect(last.allSatisfy { $0 > rounds }, "steps done: \(last)")
      #expect(failures.all.isEmpty, "\(failures.all)")
      let cache = directory.ownCache("mixed")
      try cache.removeExpired()
      #expect(try cache.keys().count == cache.keys().count { try cache.get($0) != nil })
      print("proof: kills, mixed load: \(rounds * writerCount) kills, \(last.reduce(end, +)) steps")
    }

    /// Memory, descriptors and threads do not grow with the time that a program runs.
    @Test(.slow) func aLongRunUsesNoMoreResourcesThanAShortOne() throws {
      let seconds = Coverage.count("KEEPSAKE_SOAK", sample: 12, complete: 12)
      let directory = try TemporaryDirectory(isQuick: true)
      // With a heap for each thread, memory grows for minutes, by how the threads take turns.
      let peer = try Child(
        Peer.executable, [directory.path, "soak", "\(seconds)"],
        environment: ["MALLOC_ARENA_MAX": "1"])
      let lines = peer.finish().split(separator: "\n").map(String.init)
      try #require(peer.exitStatus == 0 && !lines.contains { $0.hasPrefix("error") }, "\(lines)")
      let rounds = lines.map { line in line.split(separator: " ").compactMap { Int($0) } }
      try #require(rounds.count == 6 && rounds.allSatisfy { $0.count == 4 }, "\(lines)")
      // The first two rounds fill thread pools and memory caches.
      let (early, late) = (rounds[1], rounds[5])
      #expect(late[1] < early[1] + 4 << 20, "bytes of memory: \(rounds.map { $0[1] })")
      #expect(late[2] <= early[2] + 2, "descriptors: \(rounds.map { $0[2] })")
      #expect(late[3] <= early[3] + 2, "threads: \(rounds.map { $0[3] })")
      print("proof: soak: \(seconds) seconds, \(lines.last ?? "")")
    }
  }
}
