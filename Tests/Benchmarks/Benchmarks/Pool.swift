// How late a ticker of Swift's tasks is beside work that waits, and how fast that work is.
import Foundation
import Glibc
import Keepsake
import Synchronization

struct Pool {
  private static let queueName = "Dispatch queue"
  /// How much later the ticker may be beside the work than alone.
  private static let limit = 50_000_000.0
  private static let rounds = 5
  private static let period = Duration.milliseconds(10)

  private let directory: String
  private let count: Int
  private let value: Data
  private let chunks: [Data]
  private let sleep: Duration
  private let lockTime: Duration

  init(directory: String, isQuick: Bool) {
    self.directory = directory
    count = isQuick ? 8 : 64
    value = Data(repeating: 7, count: isQuick ? 100_000 : 10_000_000)
    chunks = (0..<10).map { [value] number in
      value[value.count / 10 * number..<value.count / 10 * (number + 1)]
    }
    sleep = isQuick ? .milliseconds(20) : .milliseconds(500)
    lockTime = isQuick ? .milliseconds(100) : .seconds(3)
  }

  func measure(_ bench: inout Bench) throws {
    let threadsBefore = try Self.threadCount()
    for load in loads() { try measure(load, &bench) }
    try bench.compare(
      "threads more than before, 10 s after it", unit: .items, limit: 0, rounds: 1,
      keepsake: {
        let end = ContinuousClock.now + .seconds(10)
        var more = Int.max
        while more > 0, ContinuousClock.now < end {
          usleep(100_000)
          more = max(0, try Self.threadCount() - threadsBefore)
        }
        return Double(more)
      }, base: nil)
  }

  // MARK: The work

  /// Runs a closure that may wait.
  private typealias Perform = @Sendable (@escaping @Sendable () throws -> Void) async throws -> Void

  /// Tasks that run at the same time.
  private struct Load {
    let name: String
    let count: Int
    /// What the queue's work lacks.
    var weaker: String?
    /// Whether more than a lock limits how many tasks end per second.
    var hasRate = true
    /// Makes the work of the tasks for a directory.
    let keepsake: (String) throws -> Work
    let queue: (String) throws -> Work
  }
  private typealias Work = @Sendable (_ number: Int) async throws -> Void

  private func loads() -> [Load] {
    let (value, chunks, sleep, lockTime) = (value, chunks, sleep, lockTime)
    func cache(_ directory: String) -> DiskCache.Store {
      DiskCache.named(DiskCache.Name("pool", in: URL(filePath: directory)))
    }
    func settings(_ directory: String) throws -> Defaults.Store {
      let store = Defaults.suite(Defaults.Suite("pool", in: URL(filePath: directory)))
      try store.set(0, forKey: "k")
      return store
    }
    let queue = DispatchQueue(label: "queue", attributes: .concurrent)
    let onQueue: Perform = { body in
      try await withCheckedThrowingContinuation { continuation in
        queue.async { continuation.resume(with: Result { try body() }) }
      }
    }
    return [
      Load(
        name: "perform { set }", count: count,
        keepsake: { directory in
          let store = cache(directory)
          return { number in
            try await store.perform { try $0.set(value, forKey: "\(number)") }
          }
        },
        queue: { directory in
          let store = cache(directory)
          return { number in try await onQueue { try store.set(value, forKey: "\(number)") } }
        }),
      Load(
        name: "fetch, missing", count: count,
        keepsake: { directory in
          let store = cache(directory)
          return { number in _ = try await store.fetch("\(number)") { value } }
        },
        queue: { directory in
          let store = cache(directory)
          return { number in
            try await onQueue { _ = try store.get("\(number)") }
            try await onQueue { try store.set(value, forKey: "\(number)") }
          }
        }),
      Load(
        name: "set(chunks:)", count: count, weaker: "writes to bare files",
        keepsake: { directory in
          let store = cache(directory)
          return { number in
            try await store.set(chunks: Pieces(chunks: chunks), forKey: "\(number)")
          }
        },
        queue: { directory in
          { number in
            let path = "\(directory)/\(number)"
            guard FileManager.default.createFile(atPath: path, contents: nil),
              let file = FileHandle(forWritingAtPath: path)
            else { throw Failure("cannot create \(path)") }
            for chunk in chunks { try await onQueue { try file.write(contentsOf: chunk) } }
            try file.close()
          }
        }),
      Load(
        name: "perform { sleep }", count: 16,
        keepsake: { _ in { _ in try await StorageSystem.perform { Self.block(sleep) } } },
        queue: { _ in { _ in try await onQueue { Self.block(sleep) } } }),
      Load(
        name: "perform { set }, foreign lock", count: 16, hasRate: false,
        keepsake: { directory in
          let store = try settings(directory)
          try Self.holdLock(in: directory, for: lockTime)
          return { number in
            try await store.perform { try $0.set(number, forKey: "\(number)") }
          }
        },
        queue: { directory in
          let store = try settings(directory)
          try Self.holdLock(in: directory, for: lockTime)
          return { number in try await onQueue { try store.set(number, forKey: "\(number)") } }
        }),
    ]
  }

  private static func block(_ duration: Duration) {
    usleep(UInt32(duration / .microseconds(1)))
  }

  /// Locks the settings file, which exists, in another process.
  private static func holdLock(in directory: String, for duration: Duration) throws {
    let child = try Child(
      task: ChildTask.lock.rawValue,
      [directory + "/pool.jsonl", "\(duration / .milliseconds(1))"])
    try child.waitUntilReady()
    try child.start()
    // Only that thread uses it from here on.
    nonisolated(unsafe) let waiting = child
    Thread.detachNewThread { _ = try? waiting.text() }
  }

  /// The task of a child: holds the lock of a file.
  static func holdLock(_ path: String, milliseconds: Double) throws {
    let file = open(path, O_RDWR | O_CLOEXEC)
    guard file >= 0, flock(file, LOCK_EX) == 0 else { throw SystemFailure(code: errno) }
    try Barrier.wait()
    usleep(UInt32(milliseconds * 1_000))
  }

  private struct Pieces: AsyncSequence {
    let chunks: [Data]

    struct AsyncIterator: AsyncIteratorProtocol {
      var rest: ArraySlice<Data>
      mutating func next() async -> Data? { rest.popFirst() }
    }
    func makeAsyncIterator() -> AsyncIterator { AsyncIterator(rest: chunks[...]) }
  }

  // MARK: Measuring

  private func measure(_ load: Load, _ bench: inout Bench) throws {
    // Both figures are of the same runs.
    var rates: (own: [Double], queue: [Double]) = ([], [])
    let size = load.name.contains("sleep") || load.name.contains("lock") ? nil : value.count
    try bench.compare(
      "ticker beside " + load.name, size: size, count: load.count, unit: .nanoseconds,
      limit: Self.limit, rounds: Self.rounds,
      keepsake: {
        let (lateness, rate) = try run(load.count, load.keepsake)
        rates.own.append(rate)
        return lateness
      }, base: nil,
      peers: [
        Peer(Self.queueName) {
          let (lateness, rate) = try run(load.count, load.queue)
          rates.queue.append(rate)
          return lateness
        }
      ])
    guard load.hasRate else { return }
    var (own, queue) = (rates.own[...], rates.queue[...])
    try bench.compare(
      load.name, size: size, count: load.count, unit: .perSecond, rounds: Self.rounds,
      keepsake: { own.popFirst() ?? .nan }, base: nil,
      peers: [Peer(Self.queueName, weaker: load.weaker) { queue.popFirst() ?? .nan }])
  }

  /// How much later the ticker was beside the work than alone, in nanoseconds and at least a
  /// microsecond, and how many tasks ended per second.
  private func run(
    _ count: Int, _ makeWork: (String) throws -> Work
  ) throws -> (lateness: Double, rate: Double) {
    let below = try makeDirectory("\(directory)/run").path
    defer { try? FileManager.default.removeItem(atPath: below) }
    let work = try makeWork(below)
    return try blocking {
      let alone = try await Self.lateness { try await Task.sleep(for: .milliseconds(300)) }
      let begin = ContinuousClock.now
      let worst = try await Self.lateness {
        try await withThrowingTaskGroup { group in
          for number in 0..<count { group.addTask { try await work(number) } }
          try await group.waitForAll()
        }
      }
      let taken = ContinuousClock.now - begin
      return (
        max(1_000, (worst - alone) / .nanoseconds(1)), Double(count) / (taken / .seconds(1))
      )
    }
  }

  /// The worst lateness of a ticker while `body` runs.
  private static func lateness(
    beside body: @Sendable () async throws -> Void
  ) async throws -> Duration {
    let ticker = Task {
      var worst = Duration.zero
      while !Task.isCancelled {
        let start = ContinuousClock.now
        try? await Task.sleep(for: period)
        if !Task.isCancelled { worst = max(worst, ContinuousClock.now - start - period) }
      }
      return worst
    }
    // At least one tick is late if the work occupies all threads until it ends.
    defer { ticker.cancel() }
    try await body()
    try await Task.sleep(for: period * 2)
    ticker.cancel()
    return await ticker.value
  }

  private static func threadCount() throws -> Int {
    try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").count { id in
      let name = try? String(contentsOfFile: "/proc/self/task/\(id)/comm", encoding: .utf8)
      return name?.hasPrefix("keepsake-io") == true
    }
  }
}

/// The result of an async closure; blocks the calling thread.
func blocking<R>(_ body: @escaping @Sendable () async throws -> sending R) throws -> R {
  let isDone = DispatchSemaphore(value: 0)
  // Written before the signal and read after it.
  nonisolated(unsafe) var result: Result<R, any Error>?
  Task.detached {
    do { result = .success(try await body()) } catch { result = .failure(error) }
    isDone.signal()
  }
  isDone.wait()
  guard let result else { throw Failure("no result") }
  return try result.get()
}
