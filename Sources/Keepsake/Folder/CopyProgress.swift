/// How far a copy has come: known to the thread that copies, and reported to the task that waits.
final class CopyProgress: Sendable {
  private struct State: Sendable {
    var bytes = 0
    var total = 0
    /// When the task was last told; nil if it has not been.
    var lastUpdate: Int64?
  }

  private typealias Update = (bytes: Int, total: Int)

  /// The shortest time between two updates, in nanoseconds.
  @TaskLocal static var shortestInterval: Int64 = 50_000_000

  private let interval = shortestInterval
  private let state = Locked(State())
  private let updates: AsyncStream<Update>.Continuation

  private init(_ updates: AsyncStream<Update>.Continuation) { self.updates = updates }

  /// Runs `body` on a thread of the library, and calls `progress` in `isolation` until it ends.
  ///
  /// - Throws: What `body` throws, or `CancellationError` if it ended because the task was
  ///   cancelled.
  static func report(
    to progress: (_ bytes: Int, _ total: Int) -> Void, isolation: isolated (any Actor)?,
    during body: @escaping @Sendable (CopyProgress) throws -> Void
  ) async throws {
    // A slow receiver gets the latest update only.
    let (updates, continuation) = AsyncStream.makeStream(
      of: Update.self, bufferingPolicy: .bufferingNewest(1))
    let copy = CopyProgress(continuation)
    async let work: Void = copy.run(body)
    var iterator = updates.makeAsyncIterator()
    while let update = await iterator.next(isolation: isolation) {
      progress(update.bytes, update.total)
    }
    try await work
  }

  private func run(_ body: @escaping @Sendable (CopyProgress) throws -> Void) async throws {
    defer { updates.finish() }
    do {
      try await BlockingWork.run { try body(self) }
    } catch let error as StorageError where error.code == .cancelled {
      throw CancellationError()
    }
    let total = state.withLock { $0.total }
    updates.yield((total, total))
  }

  // MARK: Copying

  /// Begins a copy of the given number of bytes.
  func start(total: Int) { state.withLock { $0.total = total } }

  /// Counts bytes that were copied.
  ///
  /// - Throws: A ``StorageError`` of code `cancelled` if the task was cancelled.
  func add(_ count: Int) throws(StorageError) {
    try checkCancellation()
    let update = state.withLock { state -> Update? in
      // A file may have grown in the meantime.
      state.bytes = min(state.total, state.bytes.addingSaturated(count))
      let now = CoarseClock.now
      if let last = state.lastUpdate, now - last < interval { return nil }
      state.lastUpdate = now
      return (state.bytes, state.total)
    }
    if let update { updates.yield(update) }
  }

  func checkCancellation() throws(StorageError) {
    guard Task.isCancelled else { return }
    throw StorageError(
      .cancelled, operation: "copy", reason: "the task was cancelled",
      remedy: "Call it again in another task.")
  }
}
