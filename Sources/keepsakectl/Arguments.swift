import Keepsake

/// The words of a command line, without the command's name, and its options.
struct Arguments {
  private(set) var words: [String] = []
  /// The values of the options by name, such as `--json`; empty for an option without a value.
  private(set) var options: [String: String] = [:]

  init(_ arguments: some Sequence<String>) {
    var acceptsOptions = true
    for argument in arguments {
      if argument == "--", acceptsOptions {
        acceptsOptions = false
      } else if acceptsOptions, Self.isOption(argument) {
        let parts = argument.split(separator: "=", maxSplits: 1)
        options[argument == "-h" ? "--help" : String(parts[0])] =
          parts.dropFirst().first.map(String.init) ?? ""
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

  /// Makes the facades open the app's stores.
  func bootstrapApp() throws {
    try StorageSystem.bootstrap(
      app: app, keySources: VaultCommands.keySources, authenticate: SecureVault.askTerminal)
    Diagnostics.startReporting()
  }
}
