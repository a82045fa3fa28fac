internal import Keepsake

extension LinkState {
  /// Subscribes to a channel now, or as soon as there is a connection.
  mutating func subscribe(to channel: [UInt8], _ handler: ChannelHandler) {
    channels[channel] = handler
    if subscriptions.isReady {
      sendSubscription(channel)
      flush(.subscriptions)
    }
    loop.wake()
  }

  /// After this, at most the messages that are being delivered still arrive.
  mutating func unsubscribe(from channel: [UInt8]) {
    guard channels.removeValue(forKey: channel) != nil else { return }
    guard let connection = subscriptions.connection, connection.isReady else { return }
    var command = Command("UNSUBSCRIBE")
    command.append(channel)
    connection.appendWithoutReply(command)
    flush(.subscriptions)
  }

  /// The connection for subscriptions has become ready.
  mutating func subscribeToAll() {
    for channel in channels.keys { sendSubscription(channel) }
    flush(.subscriptions)
  }

  /// One command for each channel, so that a refusal says which one is meant.
  private mutating func sendSubscription(_ channel: [UInt8]) {
    var command = Command("SUBSCRIBE")
    command.append(channel)
    subscriptions.connection?.appendWithoutReply(command)
    unconfirmed.append(channel)
  }

  mutating func take(_ reply: Reply) throws(StorageError) {
    switch reply {
    case .array(let elements) where elements.count == 3:
      guard case .bytes(let kind) = elements[0], case .bytes(let channel) = elements[1] else {
        break
      }
      switch (String(decoding: kind, as: UTF8.self), elements[2]) {
      case ("message", .bytes(let payload)):
        if let handler = channels[channel] { events.append { handler.onMessage(payload) } }
        return
      case ("subscribe", .integer):
        _ = unconfirmed.popFirst()
        if let handler = channels[channel] { events.append(handler.onSubscribed) }
        return
      case ("unsubscribe", .integer): return
      default: break
      }
    case .array(let elements) where elements.first == .bytes(Array("pong".utf8)): return
    // Before the first subscription the answer to PING is a status.
    case .status: return
    case .error(let error):
      let refusal = error.refusal(by: server)
      // The next connection subscribes to all channels again, when the reason has passed.
      if !unconfirmed.isEmpty, let refusal, refusal.code == .unreachable { throw refusal }
      refuse(refusal ?? .unreachable(server, "the server refused a subscription (\(error.code))"))
      return
    case .integer, .bytes, .null, .array: break
    }
    throw .unreachable(
      server, "the server sent something else than a message of a channel",
      remedy: "Check that the address leads to a Valkey or Redis server.")
  }

  private mutating func refuse(_ cause: StorageError) {
    guard let channel = unconfirmed.popFirst(), let handler = channels[channel] else { return }
    events.append { handler.onLost(cause) }
  }

  /// Messages may be missing, or do not arrive yet, for this reason.
  mutating func loseChannels(_ cause: StorageError) {
    for handler in channels.values { events.append { handler.onLost(cause) } }
    unconfirmed = Fifo()
  }
}
