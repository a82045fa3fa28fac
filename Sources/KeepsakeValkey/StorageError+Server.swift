internal import Keepsake
internal import KeepsakeLibc

extension StorageError {
  /// Nothing was sent, or the server refused it.
  static func unreachable(
    _ server: ServerAddress, _ reason: String,
    remedy: String = "Check the address and that the server runs."
  ) -> StorageError {
    StorageError(
      .unreachable, operation: "connect", path: server.description, reason: reason,
      remedy: remedy)
  }

  /// The server ended the connection after it had asked for a certificate.
  ///
  /// - Parameter reason: What OpenSSL says about it.
  static func certificateRefused(_ server: ServerAddress, _ reason: String?) -> StorageError {
    StorageError(
      .accessDenied, operation: "connect", path: server.description,
      reason: "the server asked for a client certificate and ended the connection"
        + (reason.map { " (\($0))" } ?? ""),
      remedy: server.certificate == nil
        ? "Name one with ?cert=/path/client.pem&key=/path/client.key in the URL."
        : "Name one that the server trusts with cert= in the URL.")
  }

  /// A connection that could not be made, or that ended.
  static func unreachable(
    _ server: ServerAddress, _ problem: String, call: String, errno: Int32
  ) -> StorageError {
    let reason = "\(problem) (\(call): \(String(cString: strerror(errno))))"
    return switch errno {
    case EACCES, EPERM:
      StorageError(
        .accessDenied, operation: "connect", path: server.description, reason: reason,
        remedy: "Check the owner and the mode of the socket, and the firewall.")
    case EMFILE, ENFILE:
      StorageError(
        .system(errno), operation: "connect", path: server.description, reason: reason,
        remedy: "Close files, or raise the limit on open descriptors.")
    default: .unreachable(server, reason)
    }
  }

  /// The server was sent a request, and may have done what it says.
  static func outcomeUnknown(_ server: ServerAddress, _ reason: String) -> StorageError {
    StorageError(
      .outcomeUnknown, operation: "request", path: server.description, reason: reason,
      remedy: "Read the value before you repeat the call.")
  }

  /// The reply to this request does not fit within the limit.
  static func replyTooLarge(
    _ server: ServerAddress, limit: Int, isRead: Bool
  ) -> StorageError {
    StorageError(
      isRead ? .engineFailed : .outcomeUnknown, operation: "request", path: server.description,
      reason: "the server's reply is larger than \(limit) bytes",
      remedy: "Store less under one key, or in one suite.")
  }
}

extension ErrorReply {
  /// What every command may be refused for: the state of the server, or the rights of the user. Nil
  /// for errors that are about this command, which its caller knows.
  func refusal(by server: ServerAddress) -> StorageError? {
    switch effectiveCode {
    case "LOADING": unavailable(server, "the server is loading its data")
    case "READONLY":
      unavailable(
        server, "the server is a replica and refuses writes",
        "Wait for the failover to end, or use the address of the primary.")
    case "MASTERDOWN":
      unavailable(server, "the server is a replica and has lost its primary")
    case "CLUSTERDOWN": unavailable(server, "the cluster is down")
    case "TRYAGAIN": unavailable(server, "the cluster is moving these keys")
    case "BUSY": unavailable(server, "the server is busy with a script")
    case "MISCONF":
      unavailable(
        server, "the server cannot save its data and refuses writes",
        "See the log of the server and the space on its disk.")
    case "NOREPLICAS":
      unavailable(server, "the server has too few replicas and refuses writes")
    case "MOVED", "ASK":
      unavailable(
        server, "another node of the cluster has these keys",
        "Use the address of the node that has them.")
    case "ERR" where begins(with: "ERR max number of clients"):
      unavailable(server, "the server has too many clients", "Raise maxclients on the server.")
    case "OOM":
      StorageError(
        .diskFull, operation: "request", path: server.description,
        reason: "the server's memory is full",
        remedy: "Raise maxmemory on the server, or remove values.")
    case "WRONGPASS", "NOAUTH":
      Self.loginRefused(server)
    case "NOPERM": Self.notPermitted(server)
    // How Redis 6.2 and 7.0 say it about a command of a script. Only 7.0 begins with it.
    case "ERR" where contains("The user executing the script can't"):
      Self.notPermitted(server)
    // How Valkey and Redis 7.2 say it.
    case "ERR" where begins(with: "ERR ACL failure in script"):
      Self.notPermitted(server)
    case "DENIED":
      StorageError(
        .accessDenied, operation: "connect", path: server.description,
        reason: "the server is in protected mode",
        remedy: "Set a password on the server, and use it in the URL.")
    default: nil
    }
  }

  /// Whether the server ends the connection after this error, whatever it was sent.
  var isOfConnection: Bool { code == "DENIED" || begins(with: "ERR max number of clients") }

  private func unavailable(
    _ server: ServerAddress, _ reason: String, _ remedy: String = "Try again in a moment."
  ) -> StorageError { .unreachable(server, "\(reason) (\(effectiveCode))", remedy: remedy) }

  private static func notPermitted(_ server: ServerAddress) -> StorageError {
    StorageError(
      .accessDenied, operation: "request", path: server.description,
      reason: "the user may not use this command, this key or this channel",
      remedy: "Extend the user's rights with ACL SETUSER on the server.")
  }

  static func loginRefused(_ server: ServerAddress) -> StorageError {
    StorageError(
      .accessDenied, operation: "connect", path: server.description,
      reason: "the server refused the user or the password",
      remedy: "Use the user and the password that the server expects, percent-encoded.")
  }
}
