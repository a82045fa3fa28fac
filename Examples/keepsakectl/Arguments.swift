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
      } else if !areOptionsOver, argument == "-h" || argument.hasPrefix("--") {
        let parts = argument.split(separator: "=", maxSplits: 1)
        options[argument == "-h" ? "--help" : String(parts[0])] =
          parts.dropFirst().first.map(String.init) ?? ""
      } else {
        // A negative number is a word.
        words.append(argument)
      }
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
    try StorageSystem.bootstrap(app: app, authenticate: SecureVault.askTerminal)
    Reports.start()
  }
}
