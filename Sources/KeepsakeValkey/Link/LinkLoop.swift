internal import Keepsake
internal import KeepsakeLibc

/// The connections of a link in one process, and the thread that keeps them.
final class LinkLoop: Sendable {
  /// The process that it belongs to.
  let generation = ForkGuard.generation
  private let server: ServerAddress
  private let options: LinkOptions
  private let openSockets = OpenSockets()
  private let wakeUp: WakeUp
  private let state: Locked<LinkState>
  /// Called by the thread when it ends: the link was closed, or the program has closed the
  /// descriptors.
  private let onEnd: @Sendable () -> Void

  init(
    _ server: ServerAddress, _ options: LinkOptions, _ handlers: LinkHandlers,
    channels: [[UInt8]: ChannelHandler], onEnd: @escaping @Sendable () -> Void
  ) throws(StorageError) {
    self.server = server
    self.options = options
    self.onEnd = onEnd
    wakeUp = try WakeUp()
    state = Locked(LinkState(server, options, handlers, openSockets, channels: channels))
  }

  /// Whether the thread can be woken: not if the program has closed the descriptors.
  var isOpen: Bool { wakeUp.isOpen }

  /// Starts the thread, which keeps this object until the link is closed.
  func start() throws(StorageError) {
    guard BackgroundThread.start(.link, { [self] in run() }) else { throw .noThread(server) }
  }

  /// Changes the state, and lets the thread see it if necessary.
  func change<R, E: Error>(
    _ body: (inout LinkState) throws(E) -> R
  ) throws(E) -> R {
    var needsSignal = false
    defer { if needsSignal { wakeUp.signal() } }
    return try state.withLock { state throws(E) in
      defer { needsSignal = state.loop.takeSignal() }
      return try body(&state)
    }
  }

  // MARK: For callers

  /// Waits for the replies, until the time of the call is over.
  func perform(_ call: Call) throws(StorageError) -> [Reply] {
    try change { state throws(StorageError) in try state.submit(call) }
    var (expiry, hasRead) = (call.expiry, false)
    while true {
      var needsSignal = false
      // The two clocks may differ by a little.
      let rest = max(.milliseconds(1), expiry - .now)
      let step = state.wait(for: call.condition, timeout: rest) { state, isTimedOut in
        let step = state.nextStep(of: call, hasRead: hasRead)
        hasRead = false
        if state.loop.takeSignal() { needsSignal = true }
        if case .wait = step, !isTimedOut { return LinkState.Step?.none }
        return step
      }
      if needsSignal { wakeUp.signal() }
      switch step {
      case .finished(let outcome): return try outcome.get()
      case .wait(let end): expiry = end
      case .read(let socket, let events, let hasInput, let end):
        if !hasInput { socket.wait(for: events, timeout: end - .now) }
        (expiry, hasRead) = (end, true)
      }
    }
  }

  /// Closes the descriptors that a forked child has inherited. Nothing else of its parent's link
  /// may be used there, so this object is never released.
  func abandon() {
    _ = Unmanaged.passRetained(self)
    openSockets.closeInherited()
    wakeUp.closeInherited()
  }

  // MARK: The thread

  private func run() {
    while true {
      switch state.withLock({ $0.nextLoopStep() }) {
      case .deliver(let events, let isLast):
        for event in events { event() }
        if isLast { return onEnd() }
      case .prepare(let role, let context): prepare(role, reusing: context)
      case .poll(let sockets, let timeout): wait(for: sockets, timeout)
      }
    }
  }

  /// Finds out what is needed to connect, on a separate thread: the resolver and the caller's
  /// password may take long, and may even need replies that come through the link's thread.
  private func prepare(_ role: Connection.Role, reusing context: TLSContext?) {
    let isStarted = BackgroundThread.start(.link) { [self] in
      let result = Result { () throws(StorageError) in
        try ConnectionSetup(role, server, options, reusing: context)
      }
      change { $0.finishPreparing(role, result) }
    }
    if !isStarted { change { $0.finishPreparing(role, .failure(.noThread(server))) } }
  }

  private func wait(
    for sockets: [(role: Connection.Role, socket: Socket, events: Int16)], _ timeout: Duration
  ) {
    var entries = [pollfd(fd: wakeUp.readEnd.descriptor, events: Int16(POLLIN), revents: 0)]
    for (_, socket, events) in sockets {
      entries.append(pollfd(fd: socket.descriptor, events: events, revents: 0))
    }
    let count = poll(&entries, nfds_t(entries.count), timeout.pollTimeout)
    let isOpen = count <= 0 || entries[0].revents == 0 || wakeUp.isOpen
    if count > 0, entries[0].revents != 0, isOpen { wakeUp.reset() }
    state.withLock { state in
      if !isOpen { return state.close(.descriptorClosed(state.server)) }
      state.loop.noteAwake()
      for (index, (role, socket, events)) in sockets.enumerated() {
        let found = count > 0 ? entries[index + 1].revents : 0
        let hasMore = timeout == .zero && events & Int16(POLLIN) != 0
        if found != 0 || hasMore {
          state.process(role, socket, found | (hasMore ? Int16(POLLIN) : 0))
        }
      }
    }
  }

}

extension StorageError {
  fileprivate static func noThread(_ server: ServerAddress) -> StorageError {
    StorageError(
      .system(BackgroundThread.limitError), operation: "connect", path: server.description,
      reason: "the system allows no more threads",
      remedy: "Raise the limit on threads, or start fewer.")
  }
}
