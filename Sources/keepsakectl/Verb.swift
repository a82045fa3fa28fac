/// What the program can be told to do, with the words that say so.
struct Verb: Sendable {
  let name: String
  let words: String
  let purpose: String
  /// How many words there are besides the verb's own.
  let count: ClosedRange<Int>
  var options: [String] = []
  var details = ""
  let example: String
  let body: @Sendable (Arguments) async throws -> Int32

  static let all: [Verb] = [
    Verb(
      name: "list", words: "[APP]", purpose: "all apps, or what one of them has", count: 0...1,
      options: ["json"], example: "list com.example.notes", body: Apps.list),
    Verb(
      name: "settings list", words: "APP[/SUITE]", purpose: "keys and values", count: 1...1,
      options: ["json"], example: "settings list com.example.notes/team", body: Settings.list),
    Verb(
      name: "settings get", words: "APP[/SUITE] KEY", purpose: "one value, as JSON", count: 2...2,
      options: ["string"], details: "--string prints a text as it is, without quotes.",
      example: "settings get com.example.notes theme --string", body: Settings.get),
    Verb(
      name: "settings set", words: "APP[/SUITE] KEY JSON", purpose: "store a value", count: 3...3,
      options: ["string"],
      details: """
        --string takes the value as text and not as JSON. Bytes and dates are written as export
        writes them: {"$data": "<Base64>"} and {"$date": <seconds since 2001>}.
        """,
      example: "settings set com.example.notes recent '[\"ann\", \"bob\"]'", body: Settings.set),
    Verb(
      name: "settings delete", words: "APP[/SUITE] KEY", purpose: "remove a value", count: 2...2,
      example: "settings delete com.example.notes theme", body: Settings.delete),
    Verb(
      name: "settings watch", words: "APP[/SUITE]",
      purpose: "changes as they come, until Control-C", count: 1...1, options: ["json"],
      details: "--json prints one object a line; the value of a key that was removed is null.",
      example: "settings watch com.example.notes", body: Settings.watch),
    Verb(
      name: "settings export", words: "APP[/SUITE]", purpose: "all values as one document",
      count: 1...1, options: ["plist"],
      details: "Writes JSON, or with --plist a property list.",
      example: "settings export com.example.notes > notes.json", body: Settings.export),
    Verb(
      name: "settings import", words: "APP[/SUITE] [FILE]", purpose: "set what a document has",
      count: 1...2,
      details: """
        Takes JSON or a property list, from standard input where no file is named. Settings that
        the document does not have stay as they are.
        """,
      example: "settings import com.example.notes notes.json", body: Settings.import),
    Verb(
      name: "vault list", words: "APP[/SERVICE]", purpose: "services and keys, never a value",
      count: 1...1, options: ["json"], example: "vault list com.example.notes", body: Vault.list),
    Verb(
      name: "vault show", words: "APP[/SERVICE] KEY", purpose: "one secret", count: 2...2,
      options: ["reveal"],
      details: """
        Prints it on a terminal only. --reveal prints it wherever standard output goes, byte by byte
        and without a newline.
        """,
      example: "vault show com.example.notes/com.app.auth accessToken", body: Vault.show),
    Verb(
      name: "vault protect", words: "APP", purpose: "put the vault under a passphrase",
      count: 1...1, options: ["key-file"],
      details: "--key-file puts it under a key file, so that nobody is asked any more.",
      example: "vault protect com.example.notes", body: Vault.protect),
    Verb(
      name: "vault rotate", words: "APP", purpose: "seal all secrets under a new key",
      count: 1...1, example: "vault rotate com.example.notes", body: Vault.rotate),
    Verb(
      name: "vault delete", words: "APP[/SERVICE] KEY", purpose: "remove a secret", count: 2...2,
      example: "vault delete com.example.notes pin", body: Vault.delete),
    Verb(
      name: "cache list", words: "APP[/CACHE]", purpose: "entries by key", count: 1...1,
      options: ["json"], example: "cache list com.example.notes/Images", body: Cache.list),
    Verb(
      name: "cache sizes", words: "APP[/CACHE]", purpose: "what each takes on the disk",
      count: 1...1, options: ["json"], example: "cache sizes com.example.notes",
      body: Cache.sizes),
    Verb(
      name: "cache expiry", words: "APP[/CACHE]", purpose: "entries that end, the next one first",
      count: 1...1, options: ["json"], example: "cache expiry com.example.notes",
      body: Cache.expiry),
    Verb(
      name: "cache sweep", words: "APP[/CACHE]", purpose: "remove what has expired", count: 1...1,
      options: ["json"], example: "cache sweep com.example.notes", body: Cache.sweep),
    Verb(
      name: "cache clear", words: "APP[/CACHE]", purpose: "remove all entries, after asking",
      count: 1...1, options: ["yes"], details: "--yes does not ask.",
      example: "cache clear com.example.notes/Images", body: Cache.clear),
    Verb(
      name: "doctor", words: "APP", purpose: "what is wrong with an app's files", count: 1...1,
      options: ["json", "free=BYTES"],
      details: """
        Looks at copies of settings and caches and opens each secret: it changes nothing. Exits with 1
        when something is wrong. A vault under a passphrase is opened if there is a terminal to ask on.
        --free says how much space there has to be, at first 100 MB.
        """,
      example: "doctor com.example.notes", body: Doctor.examine),
  ]

  static func run(_ words: some Sequence<String>) async throws -> Int32 {
    var arguments = Arguments(words)
    let isAboutHelp = arguments.words.first == "help"
    if isAboutHelp { arguments.dropVerb(1) }
    if isAboutHelp || arguments.has("help") { return try help(arguments.words) }
    guard let verb = verb(arguments.words) else { throw unknown(arguments.words) }
    arguments.dropVerb(verb.name.split(separator: " ").count)
    try verb.check(arguments)
    return try await verb.body(arguments)
  }

  private func check(_ arguments: Arguments) throws {
    for (option, value) in arguments.options.sorted(by: { $0.key < $1.key }) {
      guard let known = options.first(where: { "--\($0)".split(separator: "=")[0] == option })
      else { throw wrong("there is no option \(option) here. -- ends the options") }
      if known.contains("=") == value.isEmpty {
        throw wrong(value.isEmpty ? "\(option) needs a value" : "\(option) takes no value")
      }
    }
    guard count.contains(arguments.words.count) else {
      throw wrong(
        arguments.words.count < count.lowerBound
          ? "a word is missing" : "these are too many words. Quote those with blanks")
    }
    if arguments.words.first?.contains("/") == true, !words.contains("/") {
      throw wrong("\(name) is about all of an app: name the app alone")
    }
  }

  private func wrong(_ problem: String) -> Failure { .usage("\(problem). usage: \(usage)") }

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
      print("usage: \(verb.usage)\n\n\(verb.purpose)\n")
      if !verb.details.isEmpty { print(verb.details + "\n") }
      print("for example: keepsakectl \(verb.example)")
      return 0
    }
    let family = all.filter { words.isEmpty || $0.name.hasPrefix(words[0] + " ") }
    if family.isEmpty { throw unknown(words) }
    print("usage: keepsakectl VERB\n")
    let lines = family.map { "  \($0.name) \($0.words)" }
    let width = lines.map(\.count).max() ?? 0
    for (line, verb) in zip(lines, family) {
      print(line + String(repeating: " ", count: width - line.count + 2) + verb.purpose)
    }
    print(
      """

      APP is what the app gives StorageSystem.bootstrap, or the name of its
      executable. Without SUITE or SERVICE a KEY is one of the standard one; without
      SERVICE or CACHE a listing has all of them. --json prints a listing for
      programs, -- ends the options. `keepsakectl help VERB` says more.

      exit codes: 0 done; 1 not there, or damaged; 64 wrong command line; 65 wrong
      value; 66 unreadable document; 70 an error of another kind; 74, 75 the system
      failed, or took too long; 77 no access, or locked; 130, 143 ended by Control-C
      or SIGTERM.
      """)
    return 0
  }
}
