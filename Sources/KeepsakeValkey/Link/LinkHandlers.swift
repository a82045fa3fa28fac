internal import Keepsake

/// What happens to the connection for commands. Called on the link's thread, which must not wait
/// for long, because messages and replies come through it.
///
/// The closures must not own the link, or neither is ever released.
struct LinkHandlers: Sendable {
  /// After each connection has been made and the link has logged in.
  var onConnect: @Sendable () -> Void = {}
  /// After a connection has ended, with the reason.
  var onDisconnect: @Sendable (StorageError) -> Void = { _ in }

}

/// What happens to the subscription of a channel. Called on the link's thread, too.
struct ChannelHandler: Sendable {
  /// All messages from now on arrive, and requests can be made: it is time for a snapshot.
  var onSubscribed: @Sendable () -> Void = {}
  /// For each message, in the order in which the server published them.
  var onMessage: @Sendable ([UInt8]) -> Void = { _ in }
  /// Messages may be missing, or do not arrive yet, until ``onSubscribed`` is called: once more for
  /// each attempt to connect that fails. If the user may not subscribe (`accessDenied`),
  /// ``onSubscribed`` is called only after the next connection has been made.
  var onLost: @Sendable (StorageError) -> Void = { _ in }
}
