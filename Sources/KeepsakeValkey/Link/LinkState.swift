internal import Keepsake

/// Everything about a link that its lock guards.
///
/// Callers write their requests to the connection themselves, and the first one that waits reads
/// the replies of all: a hand-over to the link's thread and back would take as long as the round
/// trip. That thread makes connections, reads messages, and does what no caller waits for.
struct LinkState {
  typealias Instant = ContinuousClock.Instant

  let server: ServerAddress
  let options: LinkOptions
  let openSockets: OpenSockets

  /// Why new requests fail at once: the last connection or the last attempt failed. nil while they
  /// are sent, or wait for a connection that is being made.
  private var failure: StorageError?
  var commands = ReconnectingConnection()
  var subscriptions = ReconnectingConnection()
  /// That of the last connection, for the next one; nil if that is to read the files again.
  var context: TLSContext?
  /// Why the link is closed; nil while it is open.
  private var closingError: StorageError?
  var isClosed: Bool { closingError != nil }

  /// Calls that wait for a connection.
  private var queue: [Call] = []
  private var queuedByteCount = 0
  /// A time before which no call without a waiting thread expires; nil if there is no such call.
  private(set) var earliestExpiry: Instant?

  /// Whether a thread that waits for its own reply reads the replies of all.
  private(set) var hasReader = false
  private(set) var lastRead = Instant.now

  let handlers: LinkHandlers
  var channels: [[UInt8]: ChannelHandler]
  /// Channels whose subscription the server has not confirmed, in the order of the commands.
  var unconfirmed = Fifo<[UInt8]>()

  /// What the link's thread must call, in the order in which it happened.
  var events: [@Sendable () -> Void] = []
  var loop = LoopWakeUp()

  init(
    _ server: ServerAddress, _ options: LinkOptions, _ handlers: LinkHandlers,
    _ openSockets: OpenSockets, channels: [[UInt8]: ChannelHandler]
  ) {
    self.server = server
    self.options = options
    self.handlers = handlers
    self.openSockets = openSockets
    self.channels = channels
  }

  subscript(role: Connection.Role) -> ReconnectingConnection {
    get { role == .commands ? commands : subscriptions }
    set { if role == .commands { commands = newValue } else { subscriptions = newValue } }
  }

  // MARK: Requests

  /// Sends a call, or lets it wait for a connection.
  ///
  /// - Throws: The reason for which nothing was sent.
  mutating func submit(_ call: Call) throws(StorageError) {
    if let closingError { throw closingError }
    if let failure {
      if commands.hurry() { loop.wake() }
      throw failure
    }
    noticeEnd()
    let connection = isReadyForCalls ? commands.connection : nil
    let callCount = queue.count + (connection?.pending.count ?? 0)
    let byteCount = queuedByteCount + (connection?.unsentByteCount ?? 0)
    guard callCount + call.commands.count <= options.maximumCallCount,
      byteCount + call.byteCount <= options.maximumUnsentByteCount
    else {
      throw .unreachable(
        server, "too many requests are waiting",
        remedy: "Send fewer or smaller requests at the same time.")
    }
    if call.completion != nil {
      earliestExpiry = min(earliestExpiry ?? call.expiry, call.expiry)
    }
    guard let connection else {
      queue.append(call)
      queuedByteCount += call.byteCount
      connectIfIdle()
      return loop.wake()
    }
    connection.append(call)
    flush(.commands)
    if call.completion != nil { loop.wake() }
  }

  /// Connects now, if that has not been tried yet.
  mutating func connectIfIdle() {
    guard commands.isIdle, commands.nextAttempt == nil else { return }
    commands.nextAttempt = .now
    loop.wake()
  }

  private var isReadyForCalls: Bool {
    commands.isReady && commands.connection?.isRetiring == false
  }

  /// Notices that an idle connection has ended, or that its server has been silent for too long,
  /// before a request is lost on it.
  private mutating func noticeEnd() {
    guard isReadyForCalls, !hasReader, let connection = commands.connection,
      connection.isFrozen
        || connection.pending.isEmpty && Instant.now - connection.lastReceived > .milliseconds(1)
    else { return }
    receive(.commands)
    if isReadyForCalls, connection.isFrozen {
      drop(.commands, .unreachable(server, connection.silence), isCut: false)
    }
  }

  mutating func flush(_ role: Connection.Role) {
    guard let connection = self[role].connection else { return }
    do throws(StorageError) {
      try connection.flush()
      if connection.wantsOutput { loop.wake() }
    } catch {
      drop(role, error)
    }
  }

  private mutating func finish(_ call: Call, _ outcome: Call.Outcome) {
    guard call.outcome == nil else { return }
    call.outcome = outcome
    if let completion = call.completion {
      events.append { completion(outcome) }
      loop.wake()
    } else {
      call.condition.signal()
    }
  }

  /// When the wait for a call ends. As long as it is being sent or its reply arrives, or those
  /// before it, only silence counts: what is large would never pass a slow network otherwise. While
  /// the server waits before its next reply, such as that to WAIT, silence does not count either.
  func expiry(of call: Call) -> Instant {
    guard let sent = call.sent, let connection = commands.connection else { return call.expiry }
    var expiry = call.expiry
    if connection.lastProgress > sent.time { expiry = connection.lastProgress + call.timeout }
    if let waitEnd = connection.waitEnd { expiry = max(expiry, waitEnd) }
    return min(expiry, call.limit)
  }

  /// Ends the wait for a call whose time is over.
  private mutating func expire(_ call: Call) {
    guard call.outcome == nil else { return }
    let isAtLimit = call.limit <= .now
    let waitTime = commands.connection?.waitTime ?? .zero
    let time = "\(isAtLimit ? call.limit - call.start : call.timeout + waitTime)"
    guard let connection = commands.connection, let sent = call.sent else {
      queue.removeAll { $0 === call }
      queuedByteCount -= call.byteCount
      return finish(call, .failure(.unreachable(server, "there was no connection within \(time)")))
    }
    let reason = "the server did not answer \(isAtLimit ? "completely " : "")within \(time)"
    fail(call, on: connection, reason, .unreachable(server, reason))
    // Later calls need not wait for a reply that never ends.
    let isEndless = isAtLimit && connection.pending.first?.call === call
    // Otherwise the server would carry it out later, although its caller was told that it did not.
    if connection.isFrozen || isEndless || !connection.mayHaveSent(upTo: sent.lastEnd) {
      drop(.commands, .unreachable(server, reason), isCut: false)
    } else {
      loop.wake()
    }
  }

  /// Fails a call whose reply will not be waited for.
  private mutating func fail(
    _ call: Call, on connection: Connection, _ reason: String, _ cause: StorageError
  ) {
    let isSent = call.sent.map { connection.mayHaveSent(upTo: $0.firstEnd) } ?? false
    finish(call, .failure(isSent && !call.isRead ? .outcomeUnknown(server, reason) : cause))
  }

  mutating func expireCalls() {
    guard let time = earliestExpiry, time <= .now else { return }
    earliestExpiry = nil
    var overdue: [Call] = []
    let now = Instant.now
    let sent = (commands.connection?.pending.all ?? []).compactMap(\.call)
    for call in queue + sent where call.outcome == nil {
      let expiry = expiry(of: call)
      if expiry <= now {
        overdue.append(call)
      } else if call.completion != nil {
        // The server may end its wait at any moment, and the time of the call begins again then.
        let earliest = min(expiry, now + call.timeout)
        earliestExpiry = min(earliestExpiry ?? earliest, earliest)
      }
    }
    for call in overdue { expire(call) }
  }

  // MARK: Waiting for replies

  enum Step {
    case finished(Call.Outcome)
    /// Wait for these events of the socket, on behalf of all, if it has no input yet.
    case read(Socket, Int16, hasInput: Bool, until: Instant)
    /// Wait until the call has an outcome, or another thread is needed to read.
    case wait(until: Instant)
  }

  /// What the thread that waits for a call does next.
  ///
  /// - Parameter hasRead: Whether the thread has just waited for input.
  mutating func nextStep(of call: Call, hasRead: Bool) -> Step {
    if hasRead {
      hasReader = false
      lastRead = .now
      receive(.commands)
    }
    if call.outcome == nil, expiry(of: call) <= .now {
      // Its reply may have arrived while the process was stopped.
      if !hasRead { receive(.commands) }
      if expiry(of: call) <= .now { expire(call) }
    }
    if let outcome = call.outcome {
      appointReader()
      return .finished(outcome)
    }
    guard !hasReader, call.sent != nil, let connection = commands.connection,
      connection.isReady, let socket = connection.socket
    else { return .wait(until: expiry(of: call)) }
    hasReader = true
    return .read(
      socket, connection.inputEvents, hasInput: connection.hasMoreInput, until: expiry(of: call))
  }

  /// Lets another thread read, if replies are due.
  private mutating func appointReader() {
    guard !hasReader, let connection = commands.connection, !connection.pending.isEmpty else {
      return
    }
    if let call = connection.pending.first(where: { $0.call?.hasWaiter == true })?.call {
      call.condition.signal()
    } else {
      loop.wake()
    }
  }

  /// Reads replies or messages without waiting. The caller must be the only thread that waits for
  /// input.
  mutating func receive(_ role: Connection.Role) {
    guard let connection = self[role].connection, connection.isReady else { return }
    do throws(StorageError) {
      try connection.receive { input throws(StorageError) in
        switch input {
        case .reply(let pending, let reply): answer(pending, reply, connection)
        case .tooLarge(let pending): refuse(pending)
        case .message(let message): try take(message)
        }
      }
      try connection.flush()
    } catch {
      return drop(role, error)
    }
    if connection.isRetiring, connection.pending.isEmpty {
      let cause = StorageError.unreachable(
        server, "the server is a replica", remedy: "Wait for the failover to end.")
      drop(.commands, cause)
    } else if connection.hasMoreInput {
      loop.wake()
    }
  }

  private mutating func answer(
    _ pending: Connection.PendingReply, _ reply: Reply, _ connection: Connection
  ) {
    guard let call = pending.call else { return }
    // After a failover the primary is elsewhere: only a new connection finds it.
    if case .error(let error) = reply, ["READONLY", "MASTERDOWN"].contains(error.effectiveCode) {
      connection.isRetiring = true
    }
    guard call.outcome == nil else { return }
    call.replies.append(reply)
    if call.replies.count == call.commands.count { finish(call, .success(call.replies)) }
  }

  /// Fails the call whose reply was too large. Other calls get less detail.
  private mutating func refuse(_ pending: Connection.PendingReply) {
    guard let call = pending.call else { return }
    let limit = options.maximumReplySize
    finish(call, .failure(.replyTooLarge(server, limit: limit, isRead: call.isRead)))
  }

  // MARK: Connections

  /// The connection for commands has become ready.
  mutating func admitCalls() {
    failure = nil
    events.append(handlers.onConnect)
    for call in takeQueue() where call.outcome == nil { commands.connection?.append(call) }
    flush(.commands)
    appointReader()
  }

  /// Ends a connection, or gives up an attempt, and plans the next one.
  ///
  /// Calls that have not been sent at all wait for the next connection, once.
  ///
  /// - Parameter isCut: Whether a server that answers may have ended it. New calls then wait for
  ///   the next connection, as they do if the connection was idle; otherwise they fail until there
  ///   is one.
  mutating func drop(_ role: Connection.Role, _ cause: StorageError, isCut: Bool = true) {
    guard let connection = self[role].connection else { return }
    let wasReady = connection.isReady
    var isIdle = true
    var unsent: [Call] = []
    for case let call? in connection.pending.take().map(\.call) {
      isIdle = false
      guard call.outcome == nil, unsent.last !== call else { continue }
      if let sent = call.sent, !call.isRepeated, !connection.mayHaveSent(after: sent.start) {
        unsent.append(call)
      } else {
        fail(call, on: connection, cause.reason ?? cause.code.description, cause)
      }
    }
    connection.end()
    noteFailure(role, cause, wasReady: wasReady, isCut: isCut || isIdle)
    for call in unsent { repeatOnce(call) }
  }

  private mutating func repeatOnce(_ call: Call) {
    call.isRepeated = true
    call.sent = nil
    queue.append(call)
    queuedByteCount += call.byteCount
    _ = commands.hurry()
  }

  /// Plans the next attempt after a connection has ended or could not be made.
  mutating func noteFailure(
    _ role: Connection.Role, _ cause: StorageError, wasReady: Bool, isCut: Bool
  ) {
    loop.wake()
    let isAtOnce = self[role].scheduleAttempt(options, isAtOnce: isCut)
    // The certificates may have been renewed since they were read.
    if !isAtOnce { context = nil }
    if role == .commands {
      if wasReady { events.append { [handlers] in handlers.onDisconnect(cause) } }
      failure = isAtOnce ? nil : cause
      if !isAtOnce { failQueue(cause) }
      // The next connection may be to another server, whose messages are those that count.
      subscriptions.connection?.end()
      subscriptions.connection = nil
    }
    loseChannels(cause)
  }

  private mutating func failQueue(_ cause: StorageError) {
    for call in takeQueue() { finish(call, .failure(cause)) }
  }

  private mutating func takeQueue() -> [Call] {
    defer { (queue, queuedByteCount) = ([], 0) }
    return queue
  }

  /// Fails all calls, and all calls from now on.
  mutating func close(_ cause: StorageError) {
    guard !isClosed else { return }
    closingError = cause
    drop(.commands, cause, isCut: false)
    failQueue(cause)
    loop.wake()
  }
}

extension StorageError {
  static func linkClosed(_ server: ServerAddress) -> StorageError {
    .unreachable(server, "the link is closed", remedy: "Make a new link.")
  }

  static func descriptorClosed(_ server: ServerAddress) -> StorageError {
    .unreachable(
      server, "the program has closed the descriptor of the connection",
      remedy: "Try again: the next call makes a new connection.")
  }
}
