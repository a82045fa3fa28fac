internal import Keepsake

/// The limits and times of a ``Link`` that are not in its address.
struct LinkOptions: Sendable {

  /// The password, instead of the one in the address. It is asked for before each connection, on a
  /// thread of the library.
  var password: (@Sendable () throws -> String)?
  /// Finds the addresses of the server.
  var resolve: @Sendable (ServerAddress) throws(StorageError) -> [SocketAddress] = {
    (server) throws(StorageError) in try SocketAddress.resolve(server)
  }

  /// The name of this connection in the server's `CLIENT LIST`.
  var clientName = "keepsake"
  /// A connection on which nothing has arrived for this long is asked for a sign of life.
  var keepAlive = Duration.seconds(5)
  /// The bounds of the time between two attempts to connect. It is random, and its upper bound
  /// doubles with each failure: clients that lost their server together do not come back together.
  var minimumBackoff = Duration.milliseconds(50)
  var maximumBackoff = Duration.seconds(5)
  /// How many requests may wait for replies, or for a connection.
  var maximumCallCount = 10_000
  /// How many bytes of requests may wait to be sent.
  var maximumUnsentByteCount = 64 << 20
  /// How long replies may take as long as some of their bytes arrive. At least twenty times the
  /// timeout of the request.
  var replyTime = Duration.seconds(60)
  /// How many bytes a reply, or a message of a channel, may take.
  var maximumReplySize = 64 << 20
}
