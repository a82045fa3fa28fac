package import Keepsake

/// What a program needs that looks after the settings of an app and is not the app.
extension ValkeyBacking {
  /// - Parameters:
  ///   - password: Used if the URL has none.
  ///   - usesCopies: Whether to use the copies that the app has on this machine. Otherwise none is
  ///     read and none is left there.
  package convenience init(
    url: String, password: String?, usesCopies: Bool
  ) throws(StorageError) {
    var address = try ServerAddress(url)
    if address.password == nil, password?.isEmpty == false { address.password = password }
    var options = LinkOptions()
    options.clientName = "keepsakectl"
    self.init(
      Server(address, options: options), copies: usesCopies ? ValkeyBacking.copies : .memory)
  }

  /// The URL without user and password.
  package var address: String { server.address.description }

  // MARK: After a loss

  /// Whether this machine has a copy of the suite.
  package func hasCopy(of suite: Defaults.Suite, app: String) -> Bool {
    table(of: suite, app: app).isKnown
  }

  /// See ``push(_:)``.
  ///
  /// - Returns: Whether the server did not have the settings.
  package func push(_ suite: Defaults.Suite, app: String) throws(StorageError) -> Bool {
    try table(of: suite, app: app).push()
  }

  /// See ``adopt(_:)``.
  ///
  /// - Returns: Whether the settings were given up.
  package func adopt(_ suite: Defaults.Suite, app: String) throws(StorageError) -> Bool {
    try table(of: suite, app: app).adopt()
  }
}
