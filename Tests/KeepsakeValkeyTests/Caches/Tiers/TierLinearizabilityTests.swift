import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey
@testable import keepsake_peer

/// Random calls of several processes on the same keys, while messages and replies are late.
///
/// As each process sees them, the calls on a key are linearizable: its own count before they have
/// returned, and those of others before their messages have arrived.
@Suite(.ownThread, .timeLimit(.minutes(20))) struct TierLinearizabilityTests {
  private static let keys = 0..<3
  private static let threadsPerProcess = 2
  private static let callsPerThread = 4

  /// The calls at one time, and which processes got no messages before its end.
  private struct Round: Sendable {
    var calls: [RegisterCall] = []
    var isLate: [Bool]
    var end: UInt64 = 0
  }

  /// Three processes, two of which share the directory of a machine.
  private final class History: Sendable {
    let processes: [TierMachine]
    let stores: [DiskCache.Store]
    let hasOutages: Bool
    private let lastValue = Locked(0)
    /// The values that were produced by fetches.
    private let produced = Locked<Set<Int>>([])
    private let rounds = Locked<[Round]>([])

    init(hasOutages: Bool) throws {
      let server = FakeTierServer()
      // A fetch must not wait long for another one whose message is late.
      let leaseTime = Duration.milliseconds(1)
      let first = try TierMachine(server, leaseTime: leaseTime)
      processes = [
        first, try TierMachine(server, in: first.directory, leaseTime: leaseTime),
        try TierMachine(server, leaseTime: leaseTime),
      ]
      for process in processes { process.tier.slowDown() }
      stores = processes.map { $0.cache() }
      self.hasOutages = hasOutages
    }

    func runRound() async throws {
      let isLate = processes.map { _ in Bool.random() }
      for (process, isLate) in zip(processes, isLate) where isLate { process.tier.hold() }
      rounds.withLock { $0.append(Round(isLate: isLate)) }
      let count = processes.count * threadsPerProcess
      try await forEach(in: Array(0..<count), threads: count) { [self] thread in
        for _ in 0..<callsPerThread { try await makeCall(thread % processes.count) }
      }
      for process in processes {
        process.tier.deliver()
        if hasOutages { process.tier.comeBack() }
      }
      rounds.withLock { $0[$0.count - 1].end = RegisterCall.now }
    }

    private func makeCall(_ process: Int) async throws {
      let (store, tier) = (stores[process], processes[process].tier)
      let key = Int.random(in: keys)
      let value = lastValue.increment()
      switch Int.random(in: 0..<100) {
      case 0..<40:
        let began = RegisterCall.now
        let value = try store.model("\(key)", type: Int.self) ?? 0
        add(key, isWrite: false, value, began, process)
      case 40..<48:
        // It may not count, if the key is changed meanwhile.
        let began = RegisterCall.now
        produced.withLock { _ = $0.insert(value) }
        _ = try await store.fetch("\(key)") { value }
        add(key, isWrite: true, value, began, process, isOptional: true)
      case 48..<54: try change(keys: [key], to: 0, process) { try store.remove("\(key)") }
      case 54..<60: try change(keys: Array(keys), to: 0, process) { try store.removeAll() }
      case 60..<65: tier.deliver()
      case 65..<71 where hasOutages: tier.goAway()
      case 71..<81 where hasOutages: tier.comeBack()
      default:
        try change(keys: [key], to: value, process) { try store.set(value, forKey: "\(key)") }
      }
    }

    /// A change that fails may have been made.
    private func change(
      keys: [Int], to value: Int, _ process: Int, _ body: () throws -> Void
    ) throws {
      let began = RegisterCall.now
      var isOptional = false
      do {
        try body()
      } catch let error as StorageError where error.code == .unreachable {
        isOptional = true
      }
      for key in keys {
        add(key, isWrite: true, value, began, process, isOptional: isOptional)
      }
    }

    private func add(
      _ key: Int, isWrite: Bool, _ value: Int, _ began: UInt64, _ process: Int,
      isOptional: Bool = false
    ) {
      let call = RegisterCall(
        key: key, isWrite: isWrite, value: value, began: began,
        ended: isOptional ? nil : RegisterCall.now, process: process)
      rounds.withLock { $0[$0.count - 1].calls.append(call) }
    }

    /// The calls on a key as a process saw them.
    ///
    /// A value that is produced while the server is away counts only until it is back: then the
    /// server's older value is read again.
    private func calls(_ key: Int, _ process: Int) -> [RegisterCall] {
      let left = hasOutages ? produced.withLock { $0 } : []
      return rounds.withLock { $0 }.flatMap { round in
        round.calls.filter { $0.key == key && !left.contains($0.value) }.compactMap { call in
          if call.process == process { return call }
          if !call.isWrite { return nil }
          var seen = call
          if hasOutages {
            seen.ended = nil
          } else if round.isLate[process], seen.ended != nil {
            seen.ended = round.end
          }
          return seen
        }
      }
    }

    func expectLinearizable() {
      for process in processes.indices {
        for key in keys {
          let violation = LinearizabilityCheck.violation(
            in: calls(key, process), mayLose: hasOutages)
          #expect(violation == nil, "as process \(process) saw it: \(violation?.description ?? "")")
        }
      }
    }
  }

  @Test(arguments: [false, true]) func callsTakeEffectAtOneMoment(_ hasOutages: Bool) async throws {
    for _ in 0..<Coverage.count("KEEPSAKE_HISTORIES", sample: 3, complete: 50) {
      let history = try History(hasOutages: hasOutages)
      for _ in 0..<40 { try await history.runRound() }
      history.expectLinearizable()
    }
  }
}
