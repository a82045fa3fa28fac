// The throughput of several threads or processes compared with one.
import Foundation
import Glibc
import Synchronization

struct Scaling {
  let directory: String
  let duration: Duration
  private let workloads: [Workload]

  init(directory: String, duration: Duration) throws {
    self.directory = try makeDirectory("\(directory)/scaling").path(percentEncoded: false)
    self.duration = duration
    workloads = try Workload.all(in: self.directory)
    try Workload.fill(workloads)
  }

  func measureThreads(_ bench: inout Bench) throws {
    try measure(&bench, "thread") { count, _, contestant in
      try rate(threads: count, contestant.work)
    }
  }

  func measureProcesses(_ bench: inout Bench) throws {
    try measure(&bench, "process") { count, workload, contestant in
      try rate(processes: count, workload.operation, contestant.name)
    }
  }

  /// Compares `count` workers with one, in the same rounds.
  private func measure(
    _ bench: inout Bench, _ worker: String,
    _ rate: (Int, Workload, Peer<Workload.Work>) throws -> Double
  ) throws {
    try withoutActuallyEscaping(rate) { rate in
      for workload in workloads {
        for count in Workload.workers {
          let probes = workload.contestants.map { contestant in
            contestant.map { _ in { try rate(count, workload, contestant) } }
          }
          let alone = { try rate(1, workload, workload.contestants[0]) }
          try bench.compare(
            workload.operation, count: count, unit: .perSecond, rounds: 7,
            keepsake: probes[0].work,
            base: count == 1 ? nil : Peer("1 \(worker)", target: .infinity, alone),
            peers: Array(probes.dropFirst()))
        }
      }
    }
  }

  private func rate(threads count: Int, _ work: @escaping Workload.Work) throws -> Double {
    let (isReady, mayStart, hasEnded) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    let results = Results()
    for worker in 0..<count {
      let duration = duration
      Thread {
        let result = Result {
          try Workload.rate(of: work, worker: worker, for: duration) {
            isReady.signal()
            mayStart.wait()
          }
        }
        // Do not wait for a worker that fails before it is ready.
        if case .failure = result { isReady.signal() }
        results.add(result)
        hasEnded.signal()
      }.start()
    }
    for _ in 0..<count { isReady.wait() }
    for _ in 0..<count { mayStart.signal() }
    for _ in 0..<count { hasEnded.wait() }
    return try results.sum
  }

  private func rate(
    processes count: Int, _ operation: String, _ contestant: String
  ) throws -> Double {
    let children = try (0..<count).map { worker in
      try Child(
        task: ChildTask.worker.rawValue,
        [directory, operation, contestant, "\(worker)", "\(duration / .milliseconds(1))"])
    }
    for child in children { try child.waitUntilReady() }
    for child in children { try child.start() }
    return try children.map { try $0.number() }.reduce(0, +)
  }

  /// The task of a child: prints how often it did its work per second.
  static func work(
    in directory: String, _ operation: String, _ contestant: String, worker: Int,
    milliseconds: Double
  ) throws {
    let workload = try Workload.all(in: directory).first { $0.operation == operation }
    guard let chosen = workload?.contestants.first(where: { $0.name == contestant }) else {
      throw Failure("\(contestant) has no \(operation)")
    }
    print(
      try Workload.rate(
        of: chosen.work, worker: worker, for: .milliseconds(milliseconds), start: Barrier.wait))
  }
}

/// The results of the threads.
private final class Results: Sendable {
  private let all = Mutex<[Result<Double, any Error>]>([])

  func add(_ result: Result<Double, any Error>) { all.withLock { $0.append(result) } }

  var sum: Double {
    get throws { try all.withLock { try $0.map { try $0.get() }.reduce(0, +) } }
  }
}
