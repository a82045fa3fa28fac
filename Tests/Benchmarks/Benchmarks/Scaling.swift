// The throughput of several threads or processes compared with one.
import CFloor
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

  /// How many times as much as one thread several have to read on two processors.
  private static let target = 1.8

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
          let isTarget = worker == "thread" && workload.operation.hasSuffix(".get")
          let alone = Peer("1 \(worker)", target: isTarget ? Self.target : .infinity) {
            try rate(1, workload, workload.contestants[0])
          }
          try bench.compare(
            workload.operation, count: count, unit: .perSecond, rounds: 7,
            keepsake: probes[0].work, base: nil,
            peers: (count == 1 ? [] : [alone]) + probes.dropFirst())
        }
      }
    }
  }

  private func rate(threads count: Int, _ work: @escaping Workload.Work) throws -> Double {
    let start = StartingLine(workers: count)
    let hasEnded = DispatchSemaphore(value: 0)
    let results = Results()
    for worker in 0..<count {
      let duration = duration
      Thread {
        // The system wakes threads on the same processor and moves them apart much later.
        if count <= start.processors { floor_stay_on_processor(Int32(worker)) }
        let result = Result {
          try Workload.rate(of: work, worker: worker, for: duration, start: start.wait)
        }
        // Do not wait for a worker that fails before it is ready.
        if case .failure = result { start.arrive() }
        results.add(result)
        hasEnded.signal()
      }.start()
    }
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

/// Where threads wait for each other without sleeping, so that their work begins within a
/// microsecond.
private final class StartingLine: Sendable {
  let processors = ProcessInfo.processInfo.activeProcessorCount
  private let workers: Int
  // This package has an `Atomic` of its own.
  private let arrived = Synchronization.Atomic(0)

  init(workers: Int) { self.workers = workers }

  func arrive() { arrived.add(1, ordering: .sequentiallyConsistent) }

  @Sendable func wait() {
    arrive()
    while arrived.load(ordering: .sequentiallyConsistent) < workers {
      if workers > processors { sched_yield() }
    }
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
