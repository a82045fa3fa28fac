import Keepsake
import KeepsakeValkey

/// The commands `push` and `adopt`, which decide for all programs of an app what is to become of
/// settings or secrets that a server has lost.
enum ServerCommands {
  static func push(_ arguments: Arguments) throws {
    try decide(arguments, "was stored again") { try $0.push($1, app: $2) }
  }

  static func adopt(_ arguments: Arguments) throws {
    try decide(arguments, "was given up for what the server has") { try $0.adopt($1, app: $2) }
  }

  /// - Parameter decision: Returns false if there was nothing to decide.
  private static func decide(
    _ arguments: Arguments, _ result: String,
    _ decision: (ValkeyBacking, ValkeyBacking.Store, String) throws -> Bool
  ) throws {
    let isVault = arguments.hasOption("vault")
    if isVault, arguments.storeName != nil {
      throw Failure.usage("--vault is about all secrets. Leave out the slash and what follows.")
    }
    let server = try arguments.bootstrapServer()
    let (app, suite) = (arguments.app, arguments.suite)
    let store = isVault ? ValkeyBacking.Store.vault : .suite(suite)
    let name = isVault ? "the vault of \(app)" : "suite \(suite.name) of \(app)"
    guard server.hasCopy(of: store, app: app) else {
      throw Failure(
        message: "\(server.address): this machine has no copy of \(name). Use the URL of the app, "
          + "as its user, on a machine where the app has read it.")
    }
    let isDecided = try decision(server, store, app)
    try Output.write(
      Output.escaped(
        isDecided
          ? "\(server.address): \(name) \(result)."
          : "\(server.address): \(name) is not lost. Nothing was changed."))
  }
}
