import Foundation
import Testing

@testable import Keepsake
@testable import keepsake_peer

extension OneAtATime {
  /// Processes that use all stores at once and are killed, and one that goes on beside them.
  ///
  /// `KEEPSAKE_KILLS=n` makes the run longer, `KEEPSAKE_SOAK=n` the other one as many seconds.
  @Suite(.serialized) struct KillTests {
    private static func stores(_ directory: TemporaryDirectory, _ failures: Failures) -> MixedStores
    {
      MixedStores(
        settings: directory.store(failures: failures),
        secrets: directory.secrets(failures: failures),
        cache: directory.ownCache("mixed", failures: failures), files: Folder(directory.file("own"))
      )
    }

    private struct Place: Hashable {
      let kind: MixedStores.Kind
      let key: Int
    }

    @Test func killsInAMixedLoadLoseNothingAcknowledged() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let failures = Failures()
      let writerCount = 3
      let rounds = max(1, Coverage.count("KEEPSAKE_KILLS", sample: 30, complete: 300) / writerCount)
      // Any of these; nil stands for nothing.
      var allowed: [Place: Set<Certificate?>] = [:]
      var last = [Int](repeating: 0, count: writerCount)
      var (counted, perhapsCounted) = (0, 0)
      func note(_ step: MixedStep, isDone: Bool) {
        let place = Place(kind: step.kind, key: step.value.key)
        var after: Set<Certificate?> = [step.isRemoval ? nil : step.value]
        // One that was killed may have left the old value; a cache may have nothing then.
        if !isDone { after.formUnion(allowed[place] ?? [nil]) }
        if !isDone, step.kind == .cache { after.insert(nil) }
        allowed[place] = after
      }
      /// What is there has to be allowed, and is all that is from now on.
      func check(_ comment: Comment) throws {
        let stores = Self.stores(directory, failures)
        for (place, values) in allowed {
          let data = try stores.read(place.kind, Storm.name(place.key))
          let value = data.flatMap { Certificate($0, key: place.key) }
          try #require(data == nil || value != nil, "\(comment): \(place) is no value of that key")
          try #require(values.contains(value), "\(comment): \(place)")
          allowed[place] = [value]
        }
      }

      let survivor = try Peer.start(directory, "mixed-survivor", "\(writerCount)")
      for round in 0..<rounds {
        let peers = try last.enumerated().map {
          try Peer.start(directory, "mixed", "\($0)", "\($1)")
        }
        var said = peers.map { $0.line().map { [$0] } ?? [] }
        usleep(UInt32.random(in: 0...(Bool.random() ? 3_000 : 30_000)))
        for peer in peers.shuffled() { kill(peer.identifier, SIGKILL) }
        for (writer, peer) in peers.enumerated() {
          said[writer] += peer.finish().split(separator: "\n").map(String.init)
          let faults = said[writer].filter { $0.hasPrefix("error") }
          try #require(faults.isEmpty, "round \(round): \(faults)")
          // The last line may have been cut off by the kill: its step is the one in doubt then.
          let end = said[writer].compactMap { Int($0) }.max() ?? last[writer]
          for number in (last[writer]..<end).map({ $0 + 1 }) {
            let step = MixedStep(writer: writer, number: number)
            note(step, isDone: true)
            if step.isCounted { counted += 1 }
          }
          let inDoubt = MixedStep(writer: writer, number: end + 1)
          note(inDoubt, isDone: false)
          if inDoubt.isCounted { perhapsCounted += 1 }
          last[writer] = end + 1
        }
        try check("round \(round)")
      }

      let said = survivor.finish().split(separator: "\n")
      try #require(said.count == 1, "\(said.prefix(3))")
      let end = try #require(said.first.flatMap { Int($0) })
      for number in 1...max(1, end) {
        let step = MixedStep(writer: writerCount, number: number)
        note(step, isDone: true)
        if step.isCounted { counted += 1 }
      }
      try check("the survivor")
      let count = try directory.store().int(MixedStep.counter)
      #expect((counted...(counted + perhapsCounted)).contains(count), "\(count) of \(counted)")
      #expect(last.allSatisfy { $0 > rounds }, "steps done: \(last)")
      #expect(failures.all.isEmpty, "\(failures.all)")
      let cache = directory.ownCache("mixed")
      try cache.removeExpired()
      #expect(try cache.keys().count == cache.keys().count { try cache.get($0) != nil })
      print("proof: kills, mixed load: \(rounds * writerCount) kills, \(last.reduce(end, +)) steps")
    }

    /// What a program has of the system does not grow with the time it runs.
    @Test(.slow) func aLongRunTakesNoMoreThanAShortOne() throws {
      let seconds = Coverage.count("KEEPSAKE_SOAK", sample: 12, complete: 12)
      let directory = try TemporaryDirectory(isQuick: true)
      let peer = try Peer.start(directory, "soak", "\(seconds)")
      let said = peer.finish().split(separator: "\n").map(String.init)
      try #require(peer.exitStatus == 0 && !said.contains { $0.hasPrefix("error") }, "\(said)")
      let rounds = said.map { line in line.split(separator: " ").compactMap { Int($0) } }
      try #require(rounds.count == 6 && rounds.allSatisfy { $0.count == 4 }, "\(said)")
      // The first two fill the pools and the memory of what was read.
      let (early, late) = (rounds[1], rounds[5])
      #expect(late[1] < early[1] + 8 << 20, "bytes of memory: \(rounds.map { $0[1] })")
      #expect(late[2] <= early[2] + 2, "descriptors: \(rounds.map { $0[2] })")
      #expect(late[3] <= early[3] + 2, "threads: \(rounds.map { $0[3] })")
      print("proof: soak: \(seconds) seconds, \(said.last ?? "")")
    }
  }
}
