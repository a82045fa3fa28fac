internal import Keepsake

/// A connected socket, with or without encryption.
struct Transport {
  let socket: Socket
  let encryption: TLSSession?

  func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Socket.Result {
    encryption?.receive(buffer) ?? socket.receive(buffer)
  }

  func send(_ bytes: UnsafeRawBufferPointer) -> Socket.Result {
    encryption?.send(bytes) ?? socket.send(bytes)
  }

  /// Whether there is input although the socket has none.
  var hasBufferedInput: Bool { encryption?.hasBufferedInput ?? false }

  /// Whether receiving can only go on after something has been sent.
  var receiveWantsOutput: Bool { encryption?.receiveWantsOutput ?? false }

  /// Whether sending can only go on after something has arrived.
  var sendWantsInput: Bool { encryption?.sendWantsInput ?? false }

  /// How many bytes the server may have received beyond those that ``send(_:)`` counted: a record
  /// of TLS that was not written completely in one call.
  var uncountedBytes: Int { encryption == nil ? 0 : 16_384 }
}
