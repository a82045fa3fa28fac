/// What the program can be told to do, with the words that say so.
struct Verb: Sendable {
  let name: String
  let words: String
  let purpose: String
  /// How many words there are besides the verb's own.
  let count: ClosedRange<Int>
  var options: [String] = []
  var details = ""
  let body: @Sendable (Arguments) async throws -> Int32

  static let all: [Verb] = [
    Verb(
      name: "list", words: "[APP]",
      purpose: "apps that have anything here, or what one of them has",
      count: 0...1, options: ["json"], body: Apps.list),
    Verb(
      name: "settings list", words: "APP[/SUITE]", purpose: "keys and values", count: 1...1,
      options: ["json"], body: Settings.list),
    Verb(
      name: "settings get", words: "APP[/SUITE] KEY", purpose: "one value, as JSON", count: 2...2,
      options: ["json", "string"], details: "--string prints a text as it is, without quotes.",
      body: Settings.get),
    Verb(
      name: "settings set", words: "APP[/SUITE] KEY JSON", purpose: "store a value", count: 3...3,
      options: ["string"],
      details: """
        --string takes the value as text and not as JSON. Bytes and dates are written as export
        writes them: {"$data": "<Base64>"} and {"$date": <seconds since 2001>}.
        """,
      body: Settings.set),
    Verb(
      name: "settings delete", words: "APP[/SUITE] KEY", purpose: "remove a value", count: 2...2,
      body: Settings.delete),
    Verb(
      name: "settings watch", words: "APP[/SUITE]",
      purpose: "changes as they come, until Control-C",
      count: 1...1, options: ["json"],
      details: "--json prints one object a line; the value of a key that was removed is null.",
      body: Settings.watch),
    Verb(
      name: "settings export", words: "APP[/SUITE]", purpose: "all values as one document",
      count: 1...1, options: ["plist"], details: "--plist writes a property list and not JSON.",
      body: Settings.export),
    Verb(
      name: "settings import", words: "APP[/SUITE] [FILE]", purpose: "set what a document has",
      count: 1...2,
      details: "Takes JSON or a property list, from standard input where no file is named.",
      body: Settings.import),
    Verb(
      name: "vault list", words: "APP[/SERVICE]", purpose: "services and keys, never a value",
      count: 1...1, options: ["json"], body: Vault.list),
    Verb(
      name: "vault show", words: "APP[/SERVICE] KEY", purpose: "a secret", count: 2...2,
      options: ["reveal"],
      details: """
        Prints it on a terminal only. --reveal prints it wherever standard output goes, byte by byte
        and without a newline.
        """,
      body: Vault.show),
    Verb(
      name: "vault protect", words: "APP", purpose: "put the vault under a passphrase",
      count: 1...1,
      options: ["key-file"],
      details: "--key-file puts it under a key file, so that nobody is asked any more.",
      body: Vault.protect),
    Verb(
      name: "vault rotate", words: "APP", purpose: "seal all secrets anew, under a new key",
      count: 1...1, body: Vault.rotate),
    Verb(
      name: "vault delete", words: "APP[/SERVICE] KEY", purpose: "remove a secret", count: 2...2,
      body: Vault.delete),
    Verb(
      name: "cache list", words: "APP[/CACHE]", purpose: "entries by key", count: 1...1,
      options: ["json"], body: Cache.list),
    Verb(
      name: "cache sizes", words: "APP", purpose: "what each cache takes on the disk", count: 1...1,
      options: ["json"], body: Cache.sizes),
    Verb(
      name: "cache expiry", words: "APP[/CACHE]", purpose: "entries that end, the next one first",
      count: 1...1, options: ["json"], body: Cache.expiry),
    Verb(
      name: "cache sweep", words: "APP[/CACHE]", purpose: "remove what has expired", count: 1...1,
      options: ["json"], body: Cache.sweep),
    Verb(
      name: "cache clear", words: "APP[/CACHE]", purpose: "remove all entries, after asking",
      count: 1...1, options: ["yes"], details: "--yes does not ask.", body: Cache.clear),
    Verb(
      name: "doctor", words: "APP", purpose: "what is wrong with an app's files", count: 1...1,
      options: ["json", "free=BYTES"],
      details: """
        Looks at copies of settings and caches and opens each secret: it changes nothing. Exits with 1
        when something is wrong. A vault under a passphrase is opened if there is a terminal to ask on.
        --free says how much space there has to be, at first 100 MB.
        """,
      body: Doctor.examine),
  ]

  static func run(_ words: [String]) async throws -> Int32 {
    var arguments = Arguments(words)
    let isAboutHelp = arguments.words.first == "help"
    if isAboutHelp { arguments.dropVerb(1) }
    if isAboutHelp || arguments.has("help") { return try help(arguments.words) }
    guard let verb = verb(arguments.words) else { throw unknown(arguments.words) }
    arguments.dropVerb(verb.name.split(separator: " ").count)
    guard verb.count.contains(arguments.words.count) else {
      throw Failure.usage("usage: \(verb.usage). See `keepsakectl help`.")
    }
    for (option, value) in arguments.options.sorted(by: { $0.key < $1.key }) {
      let known = verb.options.first { "--\($0)".split(separator: "=")[0] == option }
      guard let known, known.contains("=") == !value.isEmpty else {
        throw Failure.usage("\(verb.name) has no option \(option). usage: \(verb.usage)")
      }
    }
    return try await verb.body(arguments)
  }

  private var usage: String {
    (["keepsakectl", name, words] + options.map { "[--\($0)]" }).joined(separator: " ")
  }

  private static func verb(_ words: [String]) -> Verb? {
    all.first { words.starts(with: $0.name.split(separator: " ").map(String.init)) }
  }

  private static func unknown(_ words: [String]) -> Failure {
    guard let first = words.first else {
      return .usage(
        "say what to do: list, settings, vault, cache or doctor. See `keepsakectl help`.")
    }
    let family = all.filter { $0.name.hasPrefix(first + " ") }
    if family.isEmpty { return .usage("there is no verb \(first). See `keepsakectl help`.") }
    let verbs = family.map { String($0.name.dropFirst(first.count + 1)) }
    return .usage("say what to do with \(first): \(verbs.joined(separator: ", ")).")
  }

  // MARK: Help

  private static func help(_ words: [String]) throws -> Int32 {
    if let verb = verb(words) {
      print("usage: \(verb.usage)\n\n\(verb.purpose)")
      if !verb.details.isEmpty { print("\n" + verb.details) }
      return 0
    }
    let family = all.filter { words.isEmpty || $0.name.hasPrefix(words[0] + " ") }
    if family.isEmpty { throw unknown(words) }
    let lines = family.map { "keepsakectl \($0.name) \($0.words)" }
    let width = lines.map(\.count).max() ?? 0
    for (line, verb) in zip(lines, family) {
      print(line + String(repeating: " ", count: width - line.count + 2) + verb.purpose)
    }
    print(
      """

      APP is what the app gives StorageSystem.bootstrap, or the name of its executable. Without a
      SUITE or SERVICE the standard one is meant for a key, and all caches without a CACHE. --json
      prints a listing for programs, -- ends the options. `keepsakectl help VERB` says more.
      """)
    return 0
  }
}
