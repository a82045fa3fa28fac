internal import FoundationEssentials

/// Iterates over the pieces of one pass over a file, in order.
///
/// A thread of the library reads a piece ahead of the caller, so that neither has to wait for the
/// other to wake up. It does so from the second call on: many callers look only at the beginning.
///
/// Threads may use a queue at the same time, but one caller waits at a time.
final class PieceQueue: AsyncIteratorProtocol, Sendable {
  private typealias Piece = Result<Data, StorageError>

  private struct State {
    /// How many pieces are not read yet.
    var unread: Int
    /// The piece that was read ahead.
    var ready: Piece?
    var hasBegun = false
    var readsAhead = false
    var isReading = false
    var caller: CheckedContinuation<Data?, any Error>?

    /// Whether the caller must start the reader.
    mutating func startsReader() -> Bool {
      let isDue = !isReading && mayRead
      if isDue { isReading = true }
      return isDue
    }

    var mayRead: Bool { unread > 0 && (caller != nil || readsAhead && ready == nil) }

    mutating func takeReady() -> Piece? {
      defer { ready = nil }
      return ready
    }
  }

  private let state: Locked<State>
  private let reader: ChunkReader

  init(_ reader: ChunkReader) {
    state = Locked(State(unread: reader.pieceCount))
    self.reader = reader
  }

  /// The next piece; nil after the last one, and after an error.
  ///
  /// - Throws: `CancellationError`, or what kept the piece from being read.
  func next() async throws -> Data? {
    try Task.checkCancellation()
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { wait($0) }
    } onCancel: {
      state.withLock { state in
        state.readsAhead = false
        defer { state.caller = nil }
        return state.caller
      }?.resume(throwing: CancellationError())
    }
  }

  private func wait(_ caller: CheckedContinuation<Data?, any Error>) {
    let (result, startsReader) = state.withLock { state -> (Result<Data?, any Error>?, Bool) in
      // Afterwards, the handler finds the caller.
      if Task.isCancelled { return (.failure(CancellationError()), false) }
      state.readsAhead = state.hasBegun
      state.hasBegun = true
      if let piece = state.takeReady() { return (Self.result(piece), state.startsReader()) }
      if state.unread == 0 { return (.success(nil), false) }
      state.caller = caller
      return (nil, state.startsReader())
    }
    if startsReader { BlockingWork.start { self.read() } }
    if let result { caller.resume(with: result) }
  }

  private func read() {
    while isDue() {
      let piece = Result { () throws(StorageError) in try reader.next() }
      let caller = state.withLock { state -> CheckedContinuation<Data?, any Error>? in
        if case .failure = piece { state.unread = 0 } else { state.unread -= 1 }
        defer { state.caller = nil }
        if state.caller == nil { state.ready = piece }
        return state.caller
      }
      caller?.resume(with: Self.result(piece))
    }
  }

  /// Whether to read another piece; otherwise the reader ends.
  private func isDue() -> Bool {
    state.withLock { state in
      state.isReading = state.mayRead
      return state.isReading
    }
  }

  private static func result(_ piece: Piece) -> Result<Data?, any Error> {
    piece.map { $0 }.mapError { $0 }
  }
}
