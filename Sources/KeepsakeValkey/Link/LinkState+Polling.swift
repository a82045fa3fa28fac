internal import Keepsake
internal import KeepsakeLibc

extension LinkState {
  /// What the link's thread does next.
  enum LoopStep {
    case deliver([@Sendable () -> Void], isLast: Bool)
    /// Find out what is needed to connect.
    case prepare(Connection.Role, TLSContext?)
    /// Wait for these sockets, which are kept open in the meantime.
    case poll([(role: Connection.Role, socket: Socket, events: Int16)], timeout: Duration)
  }

  /// A reply that comes this soon after the last one is probably waited for by a caller.
  private static let readerAbsence = Duration.milliseconds(100)

  mutating func nextLoopStep() -> LoopStep {
    loop.noteAwake()
    if isClosed {
      return .deliver(takeEvents(), isLast: true)
    }
    // Replies may have arrived while the process was stopped.
    for role in Connection.Role.allCases where self[role].connection?.isFrozen == true {
      receive(role)
    }
    expireCalls()
    checkTimes(.commands)
    checkTimes(.subscriptions)
    for role in Connection.Role.allCases where isAttemptDue(role) {
      if self[role].prepare(until: .now + server.connectTimeout) { return .prepare(role, context) }
    }
    if !events.isEmpty { return .deliver(takeEvents(), isLast: false) }
    return pollStep()
  }

  private mutating func takeEvents() -> [@Sendable () -> Void] {
    defer { events = [] }
    return events
  }

  // MARK: Connecting

  /// Whether it is time to connect. The second connection needs the first one.
  private func isAttemptDue(_ role: Connection.Role) -> Bool {
    guard self[role].isIdle, role == .commands || needsSubscriptions else { return false }
    return self[role].nextAttempt.map { $0 <= .now } ?? (role == .subscriptions)
  }

  private var needsSubscriptions: Bool { commands.isReady && !channels.isEmpty }

  /// What is needed to connect is known, or why it is not.
  mutating func finishPreparing(
    _ role: Connection.Role, _ result: Result<ConnectionSetup, StorageError>
  ) {
    self[role].isPreparing = false
    guard !isClosed, self[role].connection == nil else { return }
    defer { loop.wake() }
    let deadline = self[role].preparationDeadline
    switch result {
    case .success(var setup):
      if role == .subscriptions {
        guard needsSubscriptions, let address = commands.connection?.address else {
          subscriptions.preparationDeadline = nil
          return
        }
        // Another address of the same name may lead to another server.
        setup.addresses = [address]
      }
      context = setup.context
      // If the attempt has failed because this took long, it begins again.
      let end = deadline ?? .now + server.connectTimeout
      self[role].begin(Connection(role, setup, server, options, openSockets, deadline: end))
      advance(role)
    case .failure(let error):
      if deadline != nil { noteFailure(role, error, wasReady: false, isCut: false) }
    }
  }

  /// Lets a connection that is not ready go on.
  ///
  /// - Parameter isOverdue: Whether to give up the address that has not answered.
  private mutating func advance(_ role: Connection.Role, isOverdue: Bool = false) {
    guard let connection = self[role].connection else { return }
    do throws(StorageError) {
      if isOverdue { try connection.skipAddress() } else { try connection.proceed() }
      if connection.phase == .greeting { try connection.receive { _ in } }
    } catch {
      return drop(role, error, isCut: false)
    }
    guard connection.isReady else { return }
    self[role].noteReady()
    if role == .commands { admitCalls() } else { subscribeToAll() }
  }

  // MARK: Times

  private mutating func checkTimes(_ role: Connection.Role) {
    let now = Instant.now
    if let deadline = self[role].preparationDeadline, deadline <= now {
      let cause = StorageError.unreachable(
        server, "the host's address or the password was not known within \(server.connectTimeout)",
        remedy: "Check the resolver of this machine, and the source of the password.")
      return noteFailure(role, cause, wasReady: false, isCut: false)
    }
    guard let connection = self[role].connection else { return }
    if connection.isFrozen {
      if connection.hasOtherAddresses { return advance(role, isOverdue: true) }
      return drop(role, .unreachable(server, connection.silence), isCut: false)
    }
    guard let time = connection.keepAliveTime, time <= now else { return }
    switch role {
    case .commands: connection.append(Command("PING"), .courtesy)
    case .subscriptions: connection.appendWithoutReply(Command("PING"))
    }
    flush(role)
  }

  // MARK: Input

  private mutating func pollStep() -> LoopStep {
    var sockets: [(role: Connection.Role, socket: Socket, events: Int16)] = []
    var times = [earliestExpiry].compactMap { $0 }
    for role in Connection.Role.allCases {
      guard let connection = self[role].connection, let socket = connection.socket else {
        if let deadline = self[role].preparationDeadline {
          times.append(deadline)
        } else if let next = self[role].nextAttempt, role == .commands || needsSubscriptions {
          times.append(next)
        }
        continue
      }
      if let time = connection.frozenTime { times.append(time) }
      // A caller that reads the last reply does not wake this thread.
      times.append(connection.keepAliveTime ?? .now + options.keepAlive)
      var events: Int16 = connection.wantsOutput ? Int16(POLLOUT) : 0
      if role == .commands, connection.isReady {
        let time = readingTime(connection)
        if time <= .now { events |= connection.inputEvents } else { times.append(time) }
      } else if connection.phase != .connecting {
        // Before it is connected, there cannot be input.
        events |= connection.inputEvents
      }
      if connection.hasMoreInput, events & Int16(POLLIN) != 0 { times.append(.now) }
      if events != 0 { sockets.append((role, socket, events)) }
    }
    loop.noteWaiting()
    return .poll(sockets, timeout: times.min().map { max(.zero, $0 - .now) } ?? .seconds(600))
  }

  /// When the link's thread reads replies: not while a caller does, and not in the moments between
  /// two callers, because it would be woken in vain by each reply.
  private func readingTime(_ connection: Connection) -> Instant {
    // The caller does not say when it has ended, so this is looked at again.
    if hasReader { return .now + Self.readerAbsence }
    let isUnwatched = connection.pending.first?.call?.hasWaiter == false
    return isUnwatched ? .now : lastRead + Self.readerAbsence
  }

  /// Takes what a call of `poll` has found.
  mutating func process(_ role: Connection.Role, _ socket: Socket, _ found: Int16) {
    guard let connection = self[role].connection, connection.socket === socket else { return }
    guard connection.isReady else { return advance(role) }
    let mayReceive = found & connection.inputEvents != 0 || found & ~Int16(POLLOUT) != 0
    if found & Int16(POLLOUT) != 0 { flush(role) }
    // A caller waits for the same input, and would go on waiting if it were gone.
    if mayReceive, role == .subscriptions || !hasReader { receive(role) }
  }
}
