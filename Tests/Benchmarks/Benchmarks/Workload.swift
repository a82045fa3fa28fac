// The work of several threads or processes at the same time: in the same stores, each with its own
// keys.
import Foundation
import Keepsake
import Synchronization

struct Workload {
  typealias Work = @Sendable (_ key: String, _ number: Int) throws -> Int

  static let own = "Keepsake"
  static let workers = [1, 2, 4]
  private static let keysOfWorker = 64
  private static let value = Data(repeating: 7, count: 100)

  let operation: String
  /// The first one is Keepsake.
  let contestants: [Peer<Work>]

  /// All workloads. In an empty directory, also call ``fill(_:)``.
  static func all(in directory: String) throws -> [Workload] {
    let table = try PeerTable(at: "\(directory)/workload.sqlite")
    // UserDefaults is thread-safe but not marked as Sendable.
    nonisolated(unsafe) let peer = UserDefaults.standard
    let vault = try PeerVault(in: directory)
    let value = value
    return [
      Workload(
        "Defaults.get",
        { key, _ in Defaults.get(key, default: 0) },
        [
          Peer(Settings.foundation) { key, _ in peer.integer(forKey: key) },
          Peer(PeerTable.name) { key, _ in try table.get(key) ?? 0 },
        ]),
      Workload(
        "Defaults.set",
        { key, number in Defaults.set(number, forKey: key) ? 1 : 0 },
        [
          Peer(
            Settings.foundation,
            weaker: "replaces the whole file: processes lose each other's settings"
          ) { key, number in
            peer.set(number, forKey: key)
            return peer.synchronize() ? 1 : 0
          },
          Peer(PeerTable.name) { key, number in
            try table.set(number, forKey: key)
            return 1
          },
        ]),
      Workload(
        "DiskCache.get",
        { key, _ in DiskCache.get(key)?.count ?? 0 },
        [Peer(PeerTable.name) { key, _ in try table.get("d" + key, Data.self)?.count ?? 0 }]),
      Workload(
        "DiskCache.set",
        { key, _ in DiskCache.set(value, forKey: key, expiry: .days(7)) ? 1 : 0 },
        [
          Peer(PeerTable.name) { key, _ in
            try table.set(value, forKey: "d" + key, lifetime: lifetime)
            return 1
          }
        ]),
      Workload(
        "SecureVault.get",
        { key, _ in SecureVault.getData(key)?.count ?? 0 },
        [Peer(PeerVault.name) { key, _ in try vault.get(key).count }]),
      Workload(
        "SecureVault.set",
        { key, _ in SecureVault.set(value, forKey: key) ? 1 : 0 },
        [
          Peer(PeerVault.name) { key, _ in
            try vault.setDurably(value, forKey: key)
            return 1
          }
        ]),
    ]
  }

  private init(_ operation: String, _ own: @escaping Work, _ peers: [Peer<Work>]) {
    self.operation = operation
    contestants = [Peer(Self.own, own)] + peers
  }

  /// Stores the values that the workers read.
  static func fill(_ workloads: [Workload]) throws {
    for workload in workloads where workload.operation.hasSuffix(".set") {
      for contestant in workload.contestants {
        for worker in 0..<(workers.max() ?? 1) {
          for key in keys(of: worker) { _ = try contestant.work(key, 1) }
        }
      }
    }
  }

  /// How often one worker does its work per second, measured after `start` has returned.
  static func rate(
    of work: Work, worker: Int, for duration: Duration, start: () throws -> Void
  ) throws -> Double {
    let keys = keys(of: worker)
    var sum = 0
    for key in keys.prefix(4) { sum &+= try work(key, 0) }
    try start()
    let clock = ContinuousClock()
    let begin = clock.now
    // Read the clock rarely, so that it does not affect the result.
    var (count, stride, elapsed) = (0, 1, Duration.zero)
    while elapsed < duration {
      for number in count..<count + stride {
        sum &+= try work(keys[number % keysOfWorker], number)
      }
      count += stride
      let now = clock.now - begin
      if now - elapsed < duration / 200 { stride *= 2 }
      elapsed = now
    }
    // Use the sum, so that the work is not optimized away.
    if sum == .min { print(sum) }
    return Double(count) / (elapsed / .seconds(1))
  }

  private static func keys(of worker: Int) -> [String] {
    (0..<keysOfWorker).map { "worker-\(worker).\($0)" }
  }
}
