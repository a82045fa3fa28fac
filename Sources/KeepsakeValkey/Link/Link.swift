package import Keepsake

/// A link to a server: requests and their replies, and messages of channels.
///
/// It connects when it is used for the first time, and again whenever a connection has ended. While
/// there is no connection, requests fail at once instead of waiting: see ``LinkOptions``. An error
/// with the code `unreachable` means that the server has changed nothing, and `outcomeUnknown` that
/// it may have carried out the request.
///
/// Calls come from any thread. A forked child makes its own link at its first call.
package final class Link: Sendable {
  private struct Current {
    var loop: LinkLoop?
    var channels: [[UInt8]: ChannelHandler] = [:]
    var isClosed = false
  }

  package let server: ServerAddress
  private let options: LinkOptions
  private let handlers: LinkHandlers
  private let current = Locked(Current())

  package convenience init(_ server: ServerAddress) {
    self.init(server, options: LinkOptions(), handlers: LinkHandlers())
  }

  init(
    _ server: ServerAddress, options: LinkOptions = LinkOptions(),
    handlers: LinkHandlers = LinkHandlers()
  ) {
    self.server = server
    self.options = options
    self.handlers = handlers
  }

  deinit { close() }

  // MARK: Requests

  /// Sends a command and waits for the reply.
  ///
  /// - Parameter timeout: How long to wait while nothing arrives; by default the timeout of the
  ///   address. While this reply or those before it arrive, the wait goes on, see
  ///   ``LinkOptions/replyTime``.
  /// - Throws: An error also if the server refuses the command for a reason that applies to any
  ///   command; see ``ErrorReply/refusal(by:)``. Other errors of the server are replies.
  package func perform(
    _ command: Command, timeout: Duration? = nil
  ) throws(StorageError) -> Reply {
    try checked(perform([command], timeout: timeout)[0])
  }

  /// Sends commands one after the other, without other commands between them, and waits for all
  /// replies, which may be errors.
  ///
  /// The server may carry out only the first ones, if the connection ends.
  func perform(
    _ commands: [Command], timeout: Duration? = nil
  ) throws(StorageError) -> [Reply] {
    if commands.isEmpty { return [] }
    return try openLoop().perform(makeCall(commands, timeout, nil))
  }

  /// Sends commands, and calls `completion` on the link's thread with what
  /// ``perform(_:timeout:)`` returns. It must not wait.
  func submit(
    _ commands: [Command], timeout: Duration? = nil,
    completion: @escaping @Sendable (Result<[Reply], StorageError>) -> Void
  ) {
    do throws(StorageError) {
      let call = makeCall(commands, timeout, completion)
      try openLoop().change { state throws(StorageError) in try state.submit(call) }
    } catch {
      completion(.failure(error))
    }
  }

  /// The reply, unless it is an error that can be the reply to any command.
  func checked(_ reply: Reply) throws(StorageError) -> Reply {
    if case .error(let error) = reply, let refusal = error.refusal(by: server) { throw refusal }
    return reply
  }

  private func makeCall(
    _ commands: [Command], _ timeout: Duration?,
    _ completion: (@Sendable (Call.Outcome) -> Void)?
  ) -> Call {
    Call(
      commands, timeout: timeout ?? server.requestTimeout, replyTime: options.replyTime,
      completion: completion)
  }

  // MARK: Channels

  /// Calls the handler for each message of a channel, on a separate connection, from the first time
  /// that its subscription is confirmed.
  func subscribe(to channel: [UInt8], _ handler: ChannelHandler) throws(StorageError) {
    // First, because another thread may replace the loop, and the new one has what is here.
    current.withLock { $0.channels[channel] = handler }
    try openLoop().change { state in
      state.subscribe(to: channel, handler)
      state.connectIfIdle()
    }
  }

  /// After this, at most the messages that are being delivered still arrive.
  func unsubscribe(from channel: [UInt8]) {
    let loop = current.withLock { current in
      current.channels[channel] = nil
      return current.loop
    }
    if let loop, loop.generation == ForkGuard.generation {
      loop.change { $0.unsubscribe(from: channel) }
    }
  }

  // MARK: Connections

  /// Begins to connect, without waiting for it.
  func connect() throws(StorageError) { try openLoop().change { $0.connectIfIdle() } }

  /// Ends the connections and the thread. Calls that wait fail, and all calls from now on.
  package func close() {
    let loop = current.withLock { current in
      current.isClosed = true
      defer { current.loop = nil }
      return current.loop
    }
    guard let loop else { return }
    if loop.generation == ForkGuard.generation {
      loop.change { $0.close(.linkClosed(server)) }
    } else {
      loop.abandon()
    }
  }

  /// The link of this process.
  private func openLoop() throws(StorageError) -> LinkLoop {
    try current.withLock { current throws(StorageError) in
      if current.isClosed { throw .linkClosed(server) }
      if let loop = current.loop {
        let isOwn = loop.generation == ForkGuard.generation
        if isOwn, loop.isOpen { return loop }
        if isOwn { loop.change { $0.close(.descriptorClosed(server)) } } else { loop.abandon() }
        current.loop = nil
      }
      let loop = try LinkLoop(
        server, options, handlers, channels: current.channels,
        onEnd: { [weak self] in self?.connectForChannels() })
      try loop.start()
      current.loop = loop
      return loop
    }
  }

  /// Connects again after the program has closed the descriptors, because messages are expected
  /// although no caller uses the link.
  private func connectForChannels() {
    if !current.withLock({ $0.channels.isEmpty }) { try? connect() }
  }
}
