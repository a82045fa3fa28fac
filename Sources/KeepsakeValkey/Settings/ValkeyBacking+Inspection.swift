internal import FoundationEssentials
package import Keepsake

/// What a program needs that looks after the settings and secrets of an app and is not the app.
extension ValkeyBacking {
  /// What a server may lose as a whole.
  package enum Store: Sendable {
    case suite(Defaults.Suite)
    case vault
  }

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
    // What the server may lose is up to the app, which may wait for replicas.
    self.init(
      Server(address, options: options, checksDurability: false),
      copies: usesCopies ? ValkeyBacking.copies : .memory)
  }

  /// The URL without user and password.
  package var address: String { server.address.description }

  /// A warning if others may read what is sent to the server.
  package var connectionWarning: StorageError? {
    if server.address.isEncrypted || server.address.isOnThisMachine { return nil }
    return Server.plainConnection(server.address).asWarning
  }

  /// Whether the app has a vault on the server.
  package func hasVault(app: String) throws(StorageError) -> Bool {
    let name = TableName(vaultOf: app, database: server.address.database)
    return Self.hasValues(try server.perform(Command(reading: "HLEN", name.values)))
  }

  // MARK: After a loss

  private func table(of store: Store, app: String) -> SettingsTable {
    switch store {
    case .suite(let suite): table(of: suite, app: app)
    case .vault: table(ofVaultOf: app)
    }
  }

  /// Whether this machine has a copy of the store.
  package func hasCopy(of store: Store, app: String) -> Bool { table(of: store, app: app).isKnown }

  /// The suites that the server has lost, and that this machine has a copy of.
  package func lostSuites(app: String) throws(StorageError) -> [Defaults.Suite] {
    var lost: [Defaults.Suite] = []
    for key in try DiskCache.named(copies).keys().sorted() {
      guard let name = TableName.suite(ofCopy: key, app: app, on: server.address) else { continue }
      let suite = Defaults.Suite(name)
      if try table(of: suite, app: app).isLost() { lost.append(suite) }
    }
    return lost
  }

  /// Whether this machine has a copy of the vault, and the server has lost it.
  package func hasLostVault(app: String) throws(StorageError) -> Bool {
    try table(ofVaultOf: app).isLost()
  }

  /// See ``push(_:)``.
  ///
  /// - Returns: Whether the server did not have what the copy has.
  package func push(_ store: Store, app: String) throws(StorageError) -> Bool {
    try table(of: store, app: app).push()
  }

  /// See ``adopt(_:)``.
  ///
  /// - Returns: Whether the copy was given up.
  package func adopt(_ store: Store, app: String) throws(StorageError) -> Bool {
    try table(of: store, app: app).adopt()
  }

  // MARK: The server

  /// What the server says about itself.
  package func serverFacts() throws(StorageError) -> ServerFacts {
    var facts = ServerFacts(server.address)
    if case .bytes(let text) = try server.ask(Command(reading: "INFO")) {
      facts.information = ServerFacts.fields(of: String(decoding: text, as: UTF8.self))
    }
    for name in ServerFacts.settingNames {
      guard case .array(let pair) = try server.ask(Command(reading: "CONFIG", "GET", name)),
        pair.count == 2, case .bytes(let value) = pair[1]
      else { continue }
      facts.settings[name] = String(decoding: value, as: UTF8.self)
    }
    if facts.usesPassword, !facts.isOnThisMachine {
      var address = server.address
      (address.user, address.password) = (nil, nil)
      // Fails, as it should, with an error of the server.
      facts.answersWithoutPassword = (try? Link(address).perform(Command("PING"))) != nil
    }
    let start = Date.now.timeIntervalSince1970
    let time = try server.ask(Command(reading: "TIME"))
    facts.clockDifference = ServerFacts.clockDifference(
      time, between: start, and: Date.now.timeIntervalSince1970)
    return facts
  }
}
