internal import Keepsake

/// What is needed for one connection, and what may take long to find out.
struct ConnectionSetup: Sendable {
  /// In the order in which they are to be tried. Empty for subscriptions: their server is the one
  /// of the commands.
  var addresses: [SocketAddress]
  let context: TLSContext?
  let password: String?

  /// Waits for the system's resolver and for the caller's password, and reads files.
  ///
  /// - Parameter context: That of an earlier connection.
  init(
    _ role: Connection.Role, _ server: ServerAddress, _ options: LinkOptions,
    reusing context: TLSContext?
  ) throws(StorageError) {
    addresses = role == .commands ? try options.resolve(server) : []
    if let context {
      self.context = context
    } else {
      self.context = server.isEncrypted ? try TLSContext(server) : nil
    }
    do {
      password = try options.password?() ?? server.password
    } catch let error as StorageError {
      throw error
    } catch {
      throw StorageError(
        .accessDenied, operation: "connect", path: server.description,
        reason: "the password for the server cannot be read",
        remedy: "Check the source of the password.", underlyingError: error)
    }
    if server.user != nil, password == nil {
      throw StorageError(
        .misuse, operation: "connect", path: server.description,
        reason: "there is a user without a password",
        remedy: "Write user:password@ in the URL, or give the password another way.")
    }
  }
}
