internal import Keepsake
internal import KeepsakeLibc

/// One connection to the server, from the first attempt to its end.
///
/// Nothing here waits. The link's lock guards it: whichever thread holds the lock owns the socket
/// and the state of TLS, which two threads must never use at the same time.
final class Connection {
  enum Role: Int, CaseIterable {
    case commands
    /// A connection that has subscribed to a channel takes no other commands (RESP2).
    case subscriptions
  }

  enum Phase {
    case connecting
    /// Agreeing on the encryption.
    case securing
    /// Logging in. It ends with a reply to PING, because the system accepts connections for a
    /// server that is frozen, and a server accepts them while it loads its data.
    case greeting
    case ready
    case ended
  }

  /// What a reply answers.
  enum Purpose {
    case login
    case selection
    /// A command whose failure changes nothing.
    case courtesy
    case lastOfGreeting
    case call(Call)
  }

  struct PendingReply {
    let purpose: Purpose
    let start: ContinuousClock.Instant
    /// How long nothing may arrive before the reply is overdue.
    let timeout: Duration
    /// How much of that the server may wait by itself.
    let waitTime: Duration

    var call: Call? { if case .call(let call) = purpose { call } else { nil } }
  }

  let role: Role
  private let server: ServerAddress
  private let options: LinkOptions
  private let setup: ConnectionSetup
  private let openSockets: OpenSockets
  /// When it must be ready.
  let deadline: ContinuousClock.Instant
  /// The address that it connects to, or is connected to.
  private(set) var address: SocketAddress?
  private var addresses: ArraySlice<SocketAddress>
  /// When the next address is tried, so that one that does not answer leaves time for it.
  private var addressDeadline: ContinuousClock.Instant
  private var lastFailure: StorageError?
  private(set) var phase = Phase.ended
  /// nil before the first attempt and after the end.
  private(set) var socket: Socket?
  /// nil for a server without TLS, and before the connection is made.
  private var encryption: TLSSession?
  private var parser: ReplyParser
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
  var pending = Fifo<PendingReply>()
  private(set) var lastReceived = ContinuousClock.now
  /// When the system last accepted bytes for which it had no room before, or input arrived: a large
  /// request may take longer than its timeout, and keeps those behind it waiting.
  private(set) var lastProgress = ContinuousClock.now
  /// When a reply is overdue that is not in `pending`, because it comes between messages.
  var awaitedUntil: ContinuousClock.Instant?
  /// Whether more input is known to be there.
  private(set) var hasMoreInput = false
  /// Whether it is to end when the last pending reply has arrived.
  var isRetiring = false

  private var output: [UInt8] = []
  private var outputStart = 0
  /// How many bytes were ever added to the output, and how many of them the system has accepted.
  private(set) var position: UInt64 = 0
  private var sentPosition: UInt64 = 0
  private var isOutputBlocked = false

  init(
    _ role: Role, _ setup: ConnectionSetup, _ server: ServerAddress, _ options: LinkOptions,
    _ openSockets: OpenSockets, deadline: ContinuousClock.Instant
  ) {
    self.role = role
    self.setup = setup
    self.server = server
    self.options = options
    self.openSockets = openSockets
    self.deadline = deadline
    addressDeadline = deadline
    addresses = setup.addresses[...]
    parser = ReplyParser(limit: options.maximumReplySize)
  }

  deinit {
    end()
    buffer.deallocate()
  }

  /// Ends the connection, and what other threads wait for in it.
  func end() {
    // A later connection may be open.
    if phase == .ended { return }
    socket?.shutDown()
    openSockets.set(role, nil)
    phase = .ended
    (socket, encryption) = (nil, nil)
  }

  // MARK: What it waits for

  var isReady: Bool { phase == .ready }

  var wantsOutput: Bool {
    switch phase {
    case .connecting: true
    // A write that waits for input is repeated after each read.
    case .greeting, .ready: outputStart < output.count && encryption?.sendWantsInput != true
    case .securing, .ended: false
    }
  }

  /// What to wait for before the next read, or the next step of the handshake.
  var inputEvents: Int16 {
    Int16(POLLIN) | (encryption?.receiveWantsOutput == true ? Int16(POLLOUT) : 0)
  }

  var unsentByteCount: Int { output.count - outputStart }

  /// When the server counts as frozen: a reply is overdue, and nothing has arrived either.
  var frozenTime: ContinuousClock.Instant? {
    guard isReady else { return hasOtherAddresses ? addressDeadline : deadline }
    let reply = pending.first.map(dueTime)
    let message = awaitedUntil.map { max($0, lastProgress + server.requestTimeout) }
    // The sign of life was not even asked for: the machine was suspended.
    let life = keepAliveTime.map { $0 + server.requestTimeout }
    return [reply, message, life].compactMap { $0 }.min()
  }

  /// Whether the server counts as frozen now.
  var isFrozen: Bool { frozenTime.map { $0 <= .now } ?? false }

  private func dueTime(_ reply: PendingReply) -> ContinuousClock.Instant {
    max(reply.start, lastProgress) + reply.timeout
  }

  /// Until when the server may wait by itself before the next reply; nil if it should not.
  var waitEnd: ContinuousClock.Instant? {
    pending.first.flatMap { $0.waitTime > .zero ? dueTime($0) : nil }
  }

  /// What is wrong at that time.
  var silence: String {
    switch phase {
    case .connecting, .ended: "no connection could be made within \(server.connectTimeout)"
    case .securing: "the server did not finish the TLS handshake within \(server.connectTimeout)"
    case .greeting: "the server did not answer within \(server.connectTimeout)"
    case .ready: "the server did not answer within \(server.requestTimeout + waitTime)"
    }
  }

  /// How long the server may wait by itself before the next reply.
  var waitTime: Duration { pending.first?.waitTime ?? .zero }

  /// When to ask for a sign of life.
  var keepAliveTime: ContinuousClock.Instant? {
    guard isReady, pending.isEmpty, awaitedUntil == nil else { return nil }
    return lastReceived + options.keepAlive
  }

  // MARK: Becoming ready

  /// Goes on as far as possible without waiting.
  ///
  /// - Throws: An error if no address is left.
  func proceed() throws(StorageError) {
    do throws(StorageError) {
      switch phase {
      case .ended: try connectToNext()
      case .connecting: if let socket { try finishConnecting(socket) }
      case .securing: try shakeHands()
      case .greeting, .ready: try flush()
      }
    } catch {
      // A server that refuses to log in, or proves to be another one, is not asked again elsewhere.
      guard error.code == .unreachable, !isConnected else { throw error }
      try connectToNext(after: error)
    }
  }

  /// Whether commands can be sent.
  private var isConnected: Bool { phase == .greeting || phase == .ready }

  /// Whether an address is left, and no server has been found yet.
  var hasOtherAddresses: Bool { !addresses.isEmpty && !isConnected && deadline > .now }

  /// Gives up the address that has not answered.
  func skipAddress() throws(StorageError) {
    try connectToNext(after: .unreachable(server, silence))
  }

  private func connectToNext(after failure: StorageError? = nil) throws(StorageError) {
    if let failure { lastFailure = failure }
    while let address = addresses.popFirst() {
      self.address = address
      let now = ContinuousClock.now
      addressDeadline = now + (deadline - now) / (addresses.count + 1)
      do throws(Socket.ConnectFailure) {
        let socket = try Socket.connect(to: address)
        openSockets.set(role, socket.descriptor)
        (self.socket, encryption, phase) = (socket, nil, .connecting)
        return
      } catch {
        lastFailure = describe(error)
      }
    }
    end()
    throw lastFailure ?? .unreachable(server, "the host has no address")
  }

  private func describe(_ failure: Socket.ConnectFailure) -> StorageError {
    .unreachable(server, "no connection can be made", call: failure.call, errno: failure.errno)
  }

  private func finishConnecting(_ socket: Socket) throws(StorageError) {
    if let failure = socket.connectFailure { return try connectToNext(after: describe(failure)) }
    guard let context = setup.context else { return try greet() }
    encryption = try TLSSession(context, socket, server)
    phase = .securing
    try shakeHands()
  }

  private func shakeHands() throws(StorageError) {
    if try encryption?.handshake() == true { try greet() }
  }

  private func greet() throws(StorageError) {
    phase = .greeting
    if let password = setup.password {
      var command = Command("AUTH")
      if let user = server.user { command.append(user) }
      command.append(password)
      append(command, .login)
    }
    // Channels belong to no database.
    if role == .commands, server.database != 0 {
      append(Command("SELECT", String(server.database)), .selection)
    }
    append(Command("CLIENT", "SETNAME", options.clientName), .courtesy)
    append(Command("PING"), .lastOfGreeting)
    try flush()
  }

  /// Takes note of a reply to the greeting.
  private func finishGreeting(_ purpose: Purpose, _ reply: Reply) throws(StorageError) {
    if case .error(let error) = reply {
      switch purpose {
      case .login:
        // A server without a password says so with ERR.
        throw error.refusal(by: server) ?? ErrorReply.loginRefused(server)
      case .selection:
        throw error.refusal(by: server)
          ?? StorageError(
            .misuse, operation: "connect", path: server.description,
            reason: "the server has no database with this number",
            remedy: "Use a smaller number, and on a cluster 0.")
      case .lastOfGreeting:
        // A user without the right to PING is logged in nevertheless.
        if error.code != "NOPERM", let refusal = error.refusal(by: server) { throw refusal }
      case .courtesy:
        // A server that accepts no connection says so before any command.
        if error.isOfConnection, let refusal = error.refusal(by: server) { throw refusal }
      case .call: break
      }
    }
    if case .lastOfGreeting = purpose { phase = .ready }
  }

  // MARK: Output

  func append(_ command: Command, _ purpose: Purpose) {
    let (start, timeout) =
      if case .call(let call) = purpose {
        (call.start, max(call.timeout, server.requestTimeout) + command.waitTime)
      } else {
        (ContinuousClock.now, server.requestTimeout)
      }
    add(command)
    pending.append(
      PendingReply(
        purpose: purpose, start: start, timeout: timeout, waitTime: command.waitTime))
  }

  /// A command whose reply comes between the messages of channels.
  func appendWithoutReply(_ command: Command) {
    add(command)
    if awaitedUntil == nil { awaitedUntil = .now + server.requestTimeout }
  }

  private func add(_ command: Command) {
    let count = output.count
    command.encode(into: &output)
    position += UInt64(output.count - count)
  }

  func append(_ call: Call) {
    let start = position
    var firstEnd: UInt64?
    for command in call.commands {
      append(command, .call(call))
      if firstEnd == nil { firstEnd = position }
    }
    call.sent = (.now, start, firstEnd ?? position, position)
  }

  /// Sends what the system accepts.
  func flush() throws(StorageError) {
    guard isConnected, let socket else { return }
    while outputStart < output.count {
      let result = output.withUnsafeBytes { bytes in
        let rest = UnsafeRawBufferPointer(rebasing: bytes[outputStart...])
        return encryption?.send(rest) ?? socket.send(rest)
      }
      switch result {
      case .count(let count):
        outputStart += count
        sentPosition += UInt64(count)
        if isOutputBlocked { lastProgress = .now }
        isOutputBlocked = false
      case .wouldBlock:
        isOutputBlocked = true
        if outputStart >= 1 << 20, 2 * outputStart >= output.count {
          output.removeFirst(outputStart)
          outputStart = 0
        }
        return
      case .end:
        // What the server said before is still to be read.
        if phase == .greeting { return }
        throw cut
      case .failed(let code):
        throw .unreachable(server, "the connection failed", call: "send", errno: code)
      }
    }
    output.removeAll(keepingCapacity: output.capacity <= 256 << 10)
    outputStart = 0
  }

  /// Whether the server may have received everything up to this position. A server acts only on a
  /// command that it has received completely.
  func mayHaveSent(upTo end: UInt64) -> Bool { end <= lastPossiblySent }

  /// Whether a byte after this position may have been sent.
  func mayHaveSent(after start: UInt64) -> Bool { start < lastPossiblySent }

  private var lastPossiblySent: UInt64 {
    // A record of TLS that has been begun may be complete for the server before it is counted.
    sentPosition + (isOutputBlocked && encryption != nil ? 16_384 : 0)
  }

  private var cut: StorageError {
    if phase == .greeting, let refusal = encryption?.certificateRefusal { return refusal }
    return .unreachable(
      server, "the server ended the connection", remedy: "Check that the server runs.")
  }

  // MARK: Input

  enum Input {
    case reply(PendingReply, Reply)
    /// The reply is beyond the limit, and the connection cannot be used any more.
    case tooLarge(PendingReply)
    /// A reply on a connection for subscriptions.
    case message(Reply)
  }

  /// Reads what has arrived, up to a limit that lets others have their turn.
  func receive(_ handle: (Input) throws(StorageError) -> Void) throws(StorageError) {
    guard isConnected, let socket else { return }
    hasMoreInput = false
    for _ in 0..<16 {
      switch encryption?.receive(buffer) ?? socket.receive(buffer) {
      case .count(let count):
        lastReceived = .now
        lastProgress = lastReceived
        awaitedUntil = nil
        try parse(UnsafeRawBufferPointer(rebasing: buffer[..<count]), handle)
        if phase == .ended { return }
        if count < buffer.count, encryption?.hasBufferedInput != true { return }
      case .wouldBlock: return
      case .end: throw cut
      case .failed(let code):
        throw .unreachable(server, "the connection failed", call: "recv", errno: code)
      }
    }
    hasMoreInput = true
  }

  private func parse(
    _ bytes: UnsafeRawBufferPointer, _ handle: (Input) throws(StorageError) -> Void
  ) throws(StorageError) {
    var rest = bytes
    while !rest.isEmpty {
      let isMessage = role == .subscriptions && isReady
      let reply: Reply?
      do {
        reply = try parser.next(&rest)
      } catch {
        if error == .tooLarge, !isMessage, let answered = pending.popFirst() {
          try handle(.tooLarge(answered))
        }
        throw invalidReply(error)
      }
      guard let reply else { return }
      if isMessage {
        try handle(.message(reply))
      } else if let answered = pending.popFirst() {
        if phase == .greeting {
          try finishGreeting(answered.purpose, reply)
        } else {
          try handle(.reply(answered, reply))
        }
      } else {
        throw invalidReply(.malformed)
      }
      if phase == .ended { return }
    }
  }

  private func invalidReply(_ failure: ReplyParser.Failure) -> StorageError {
    switch failure {
    case .malformed:
      .unreachable(
        server, "the server does not speak the protocol of Valkey",
        remedy: "Check the port, and whether it is a port for TLS.")
    case .tooLarge:
      .unreachable(
        server, "the connection was ended because a reply or message was too large",
        remedy: "Repeat the call, and store less under one key, or in one suite.")
    }
  }
}
