import Keepsake
import KeepsakeLibc
import KeepsakeValkey

/// The words of a command line, without the command's name, and its options.
struct Arguments {
  private(set) var words: [String] = []
  /// The values of the options by name, such as `--json`; empty for an option without a value.
  private(set) var options: [String: String] = [:]

  /// - Throws: A ``Failure`` if an option is repeated, whose first value would not count.
  init(_ arguments: some Sequence<String>) throws {
    var acceptsOptions = true
    var rest = Array(arguments)[...]
    while let argument = rest.popFirst() {
      if argument == "--", acceptsOptions {
        acceptsOptions = false
      } else if acceptsOptions, Self.isOption(argument) {
        let name = argument == "-h" ? "--help" : String(argument.prefix { $0 != "=" })
        var value = String(argument.dropFirst(name.count + 1))
        // The value may also be the next word.
        if Command.hasOptionWithValue(argument), let next = rest.first, !Self.isOption(next) {
          value = next
          rest.removeFirst()
        }
        if options.updateValue(value, forKey: name) != nil {
          throw Failure.usage("\(name) is repeated. Write it once.")
        }
      } else {
        words.append(argument)
      }
    }
  }

  /// Negative numbers are words, and so is the dash that means standard input.
  private static func isOption(_ argument: String) -> Bool {
    argument.hasPrefix("-") && argument.dropFirst().first?.isNumber == false
  }

  /// The words that the process was started with.
  ///
  /// - Throws: A ``Failure`` for invalid UTF-8, which `CommandLine.arguments` would repair, so that
  ///   the command would use another key.
  static func ofProcess() throws -> [String] {
    try (0..<Int(CommandLine.argc)).map { index in
      let word = CommandLine.unsafeArgv[index].flatMap { String(validatingCString: $0) }
      guard let word else { throw Failure.usage("argument \(index) is not UTF-8. Use UTF-8 text.") }
      return word
    }
  }

  func hasOption(_ name: String) -> Bool { options["--" + name] != nil }

  mutating func removeFirst(_ count: Int) { words.removeFirst(count) }

  /// The app's name: the first word up to a slash, which no app's name contains.
  var app: String { String(words[0].prefix { $0 != "/" }) }

  /// The name of the suite, service or cache after the first slash.
  var storeName: String? {
    guard let slash = words[0].firstIndex(of: "/") else { return nil }
    return String(words[0][words[0].index(after: slash)...])
  }

  /// The suite that follows the app's name.
  var suite: Defaults.Suite { storeName.map { Defaults.Suite($0) } ?? .standard }

  /// The service that follows the app's name.
  var service: SecureVault.Service { storeName.map { SecureVault.Service($0) } ?? .standard }

  /// Makes the facades open the app's stores, and the settings and secrets on the server that
  /// `--server` names.
  ///
  /// - Parameters:
  ///   - usesCopies: Whether to use the copies of what is on the server that the app has on this
  ///     machine.
  ///   - warns: Whether to print that the connection to the server is not encrypted.
  /// - Returns: The backing on the server; nil without that option.
  @discardableResult
  func bootstrapApp(usesCopies: Bool = false, warns: Bool = true) throws -> ValkeyBacking? {
    let server = try options["--server"].map { url in
      let password = getenv("KEEPSAKE_SERVER_PASSWORD").map { String(cString: $0) }
      return try ValkeyBacking(url: url, password: password, usesCopies: usesCopies)
    }
    let prompt = try Prompt(self)
    let backing: any StorageBacking = server ?? StorageEngines.ThisMachine.thisMachine
    try StorageSystem.bootstrap(
      app: app, on: backing, keySources: VaultCommands.keySources,
      authenticate: { request in try prompt.ask(request) })
    Diagnostics.startReporting()
    if warns, let warning = server?.connectionWarning { Diagnostics.report(warning) }
    return server
  }

  /// The same for a command that is about a server, and about what this machine knows of it.
  func bootstrapServer(warns: Bool = true) throws -> ValkeyBacking {
    guard let server = try bootstrapApp(usesCopies: true, warns: warns) else {
      throw Failure.usage("--server is missing. Add it with the URL that the app uses.")
    }
    return server
  }
}
