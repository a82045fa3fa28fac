import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The commands that begin with `settings`.
enum SettingsCommands {
  /// The suite that the arguments name.
  private static func suite(
    _ arguments: Arguments, mustExist: Bool = true
  ) throws -> Defaults.Store {
    let server = try arguments.bootstrapApp()
    let store = Defaults.suite(arguments.suite)
    let suites = try AppContents.suites(of: arguments.app, on: server)
    if suites.isEmpty, mustExist {
      throw Failure.nothingStored(by: arguments.app, on: server, "no settings")
    } else if suites.isEmpty {
      // The name may be mistyped.
      Output.note("\(arguments.app) has had no settings here so far.")
    } else if mustExist, !suites.contains(store.suite) {
      throw Failure.missing(
        "suite \"\(store.suite.name)\"", of: arguments.app, existing: suites.map(\.name))
    }
    return store
  }

  private static func missing(_ arguments: Arguments) -> Failure {
    .missing("setting", for: arguments, listCommand: "settings list")
  }

  static func list(_ arguments: Arguments) throws {
    let store = try suite(arguments)
    if arguments.hasOption("json") {
      try Output.show(json: String(try JSONValues.document(of: store).dropLast()))
    } else {
      try Table.show(["KEY", "VALUE"], try JSONValues.all(of: store).map { [$0.key, $0.json] })
    }
  }

  static func get(_ arguments: Arguments) throws {
    let store = try suite(arguments)
    let key = arguments.words[1]
    if arguments.hasOption("string") {
      guard let text = try store.string(key) else { throw missing(arguments) }
      try Output.write(Output.isTerminal ? Output.escaped(text) : text)
    } else {
      guard let json = try JSONValues.value(of: key, in: store) else { throw missing(arguments) }
      try Output.show(json: json)
    }
  }

  static func set(_ arguments: Arguments) throws {
    let (key, value) = (arguments.words[1], arguments.words[2])
    if JSONValues.isNull(value), !arguments.hasOption("string") {
      throw Failure(
        message: "null cannot be stored. Use `keepsakectl settings delete`.", status: 65)
    }
    let store = try suite(arguments, mustExist: false)
    do {
      if arguments.hasOption("string") || isText(value, forKey: key, in: store) {
        try store.set(value, forKey: key)
        if JSONValues.isValid(value), !arguments.hasOption("string") {
          Output.note("Stored as text, as before. Delete the key first to change its type.")
        }
      } else if JSONValues.isValid(value) {
        try store.import(try JSONValues.document(key: key, json: value))
      } else {
        throw invalid
      }
    } catch StorageError.Code.decodingFailed {
      throw invalid
    }
  }

  private static let invalid = Failure(
    message: "the value is not JSON, or cannot be stored. "
      + "Write a string as '\"dark\"', or add --string.", status: 65)

  /// Whether a value that was typed means text: a scalar where text is stored, or a word where
  /// nothing is. What begins like a list, an object or a string of JSON is meant as JSON.
  private static func isText(
    _ value: String, forKey key: String, in store: Defaults.Store
  ) -> Bool {
    if ["{", "[", "\""].contains(where: value.hasPrefix) { return false }
    // A value that cannot be read is to be replaced.
    guard let stored = try? JSONValues.value(of: key, in: store) else {
      // Digits are more likely a number with a mistake.
      let first = value.first ?? "0"
      return first != "-" && !first.isNumber && !JSONValues.isValid(value)
    }
    return stored.hasPrefix("\"")
  }

  static func delete(_ arguments: Arguments) throws {
    let store = try suite(arguments)
    // A value that cannot be read can be deleted.
    if (try? store.contains(arguments.words[1])) == false { throw missing(arguments) }
    try store.remove(arguments.words[1])
  }

  static func watch(_ arguments: Arguments) async throws {
    let store = try suite(arguments)
    // A server that cannot be reached ends the command. Later, reads go on while it is away.
    _ = try store.keys()
    let changes = store.changes()
    Output.note("Watching \(arguments.words[0]). Press Control-C to stop.")
    for await keys in changes {
      for key in keys.sorted() {
        guard let json = Diagnostics.attempt({ try JSONValues.value(of: key, in: store) }) else {
          continue
        }
        if arguments.hasOption("json") {
          let document = try JSONValues.document(key: key, json: json ?? "null")
          try Output.show(json: String(decoding: document, as: UTF8.self))
        } else {
          let time = Output.time(Date())
          let value = json.map(Output.escaped) ?? "deleted"
          try Output.write("\(time)  \(Output.escaped(key))  \(value)")
        }
      }
      // A program that reads from a pipe gets each change at once.
      try Output.flush()
    }
  }

  static func export(_ arguments: Arguments) throws {
    let store = try suite(arguments)
    let text =
      arguments.hasOption("plist")
      ? String(decoding: try store.export(as: .propertyList), as: UTF8.self)
      : try JSONValues.document(of: store)
    if Output.isTerminal {
      try Output.show(json: text)
    } else {
      try Output.write(text, terminator: "")
    }
  }

  static func `import`(_ arguments: Arguments) throws {
    let store = try suite(arguments, mustExist: false)
    let file = arguments.words.dropFirst().first { $0 != "-" }
    let name = file ?? "standard input"
    let document = try contents(of: file, remedy: "Name a readable file.")
    var settings: SettingsDocument
    do {
      settings = try SettingsDocument(document)
    } catch {
      throw Failure(message: Problem(error, at: name).line, status: 65)
    }
    for (option, isKept) in [("only", true), ("except", false)] {
      guard let patterns = arguments.options["--" + option] else { continue }
      settings.keep { matches($0, patterns) == isKept }
    }
    let left = settings.problems.map { Problem($0, at: name).finding }
    if !arguments.hasOption("skip-invalid"), let first = left.first {
      throw Failure(
        message: "\(first). Correct it, or add --skip-invalid to import the rest.", status: 65)
    }
    try store.importValid(settings)
    for problem in left { Output.printError("left out: \(problem)") }
  }

  /// Whether a key is one of `patterns`, which are separated by commas and may have `*` for any
  /// characters. The other characters that mean something to fnmatch(3) are escaped.
  private static func matches(_ key: String, _ patterns: String) -> Bool {
    patterns.split(separator: ",").contains { pattern in
      let special = #"[?\"#.unicodeScalars
      let escaped = pattern.unicodeScalars.map { (special.contains($0) ? #"\"# : "") + "\($0)" }
      return fnmatch(escaped.joined(), key, 0) == 0
    }
  }

  /// The bytes of a file or a pipe; of standard input without a name.
  static func contents(of file: String? = nil, remedy: String) throws -> Data {
    func unreadable() -> Failure {
      let (name, reason) = (file ?? "standard input", String(cString: strerror(errno)))
      return Failure(message: "\(name) cannot be read: \(reason). \(remedy)", status: 66)
    }
    let descriptor = file.map { open($0, O_RDONLY | O_CLOEXEC) } ?? STDIN_FILENO
    if descriptor < 0 { throw unreadable() }
    var document = Data()
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      switch Input.read(descriptor, &buffer) {
      case ..<0: throw unreadable()
      case 0: return document
      case let count: document.append(contentsOf: buffer.prefix(count))
      }
    }
  }
}
