import Keepsake

/// The words of a command line after the verb, and its options.
struct Arguments {
  private(set) var words: [String] = []
  /// By name, with what stands behind the equals sign.
  private(set) var options: [String: String] = [:]

  init(_ arguments: some Sequence<String>) {
    var areOptionsOver = false
    for argument in arguments {
      if argument == "--", !areOptionsOver {
        areOptionsOver = true
      } else if !areOptionsOver, Self.isOption(argument) {
        let parts = argument.split(separator: "=", maxSplits: 1)
        options[argument == "-h" ? "--help" : String(parts[0])] =
          parts.dropFirst().first.map(String.init) ?? ""
      } else {
        words.append(argument)
      }
    }
  }

  /// A negative number is a word, and so is the dash that stands for standard input.
  private static func isOption(_ argument: String) -> Bool {
    argument.hasPrefix("-") && argument.dropFirst().first?.isNumber == false
  }

  /// All words of the command line. Swift repairs what is no text, and another key would be meant.
  static func given() throws -> [String] {
    try (0..<Int(CommandLine.argc)).map { position in
      let word = CommandLine.unsafeArgv[position].flatMap { String(validatingCString: $0) }
      guard let word else { throw Failure.usage("word \(position) is not UTF-8: names are text.") }
      return word
    }
  }

  func has(_ option: String) -> Bool { options["--" + option] != nil }

  mutating func dropVerb(_ words: Int) { self.words.removeFirst(words) }

  /// The app, and the suite, service or cache behind the first slash, which no app has in its name.
  var app: String { String(words[0].prefix { $0 != "/" }) }

  var place: String? {
    guard let slash = words[0].firstIndex(of: "/") else { return nil }
    return String(words[0][words[0].index(after: slash)...])
  }

  /// Makes the facades open the stores of the app.
  func enterApp() throws {
    try StorageSystem.bootstrap(
      app: app, keySources: Vault.keySources, authenticate: SecureVault.askTerminal)
    Reports.start()
  }
}
