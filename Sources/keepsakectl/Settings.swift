import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// The settings of an app, value by value.
enum Settings {
  /// The suite, whether it is there or not.
  private static func suite(_ arguments: Arguments) throws -> Defaults.Store {
    try arguments.enterApp()
    return Defaults.suite(arguments.place.map { Defaults.Suite($0) } ?? .standard)
  }

  private static func existing(_ arguments: Arguments) throws -> Defaults.Store {
    let store = try suite(arguments)
    let suites = try Reports.strictly { Defaults.suites() }
    if suites.contains(store.suite) { return store }
    if suites.isEmpty { throw Failure.nothing(of: arguments.app, "no settings") }
    throw Failure.missing(
      "suite \"\(store.suite.name)\"", of: arguments.app, has: suites.map(\.name))
  }

  private static func missing(_ arguments: Arguments) -> Failure {
    .missing("setting", in: arguments, list: "settings list")
  }

  static func list(_ arguments: Arguments) throws -> Int32 {
    let store = try existing(arguments)
    if arguments.has("json") {
      Output.show(json: String(decoding: try store.export(as: .json).dropLast(), as: UTF8.self))
    } else {
      Table.show(["KEY", "VALUE"], try Values.all(of: store).map { [$0.key, $0.json] })
    }
    return Reports.status
  }

  static func get(_ arguments: Arguments) throws -> Int32 {
    let store = try existing(arguments)
    let key = arguments.words[1]
    if arguments.has("string") {
      guard let text = try store.string(key) else { throw missing(arguments) }
      print(Output.isTerminal ? Output.visible(text) : text)
    } else {
      guard let json = try Values.value(of: key, in: store) else { throw missing(arguments) }
      Output.show(json: json)
    }
    return Reports.status
  }

  static func set(_ arguments: Arguments) throws -> Int32 {
    let (key, value) = (arguments.words[1], arguments.words[2])
    if Values.isNull(value), !arguments.has("string") {
      throw Failure(message: "null is no value. Use `keepsakectl settings delete`.", status: 65)
    }
    let store = try suite(arguments)
    let unreadable = Failure(
      message: "the value is not JSON, or none that can be stored. "
        + "Quote text as '\"dark\"', or use --string dark.", status: 65)
    do {
      if arguments.has("string") {
        try store.set(value, forKey: key)
      } else if Values.isJSON(value) {
        try store.import(try Values.document(key: key, json: value))
      } else {
        throw unreadable
      }
    } catch StorageError.Code.decodingFailed {
      throw unreadable
    }
    return Reports.status
  }

  static func delete(_ arguments: Arguments) throws -> Int32 {
    let store = try existing(arguments)
    guard try store.contains(arguments.words[1]) else { throw missing(arguments) }
    try store.remove(arguments.words[1])
    return Reports.status
  }

  static func watch(_ arguments: Arguments) async throws -> Int32 {
    let store = try existing(arguments)
    let changes = store.changes()
    Output.note("Watching \(arguments.words[0]). Control-C ends it.")
    for await names in changes {
      for name in names.sorted() {
        let json = try Values.value(of: name, in: store)
        if arguments.has("json") {
          Output.show(
            json: String(
              decoding: try Values.document(key: name, json: json ?? "null"), as: UTF8.self))
        } else {
          let time = Output.time(Date())
          print("\(time)  \(Output.visible(name))  \(json.map(Output.visible) ?? "removed")")
        }
      }
      // Whoever reads along in a pipe must not wait for more of them.
      try Output.flush()
    }
    return 0
  }

  static func export(_ arguments: Arguments) throws -> Int32 {
    let document = try existing(arguments).export(
      as: arguments.has("plist") ? .propertyList : .json)
    let text = String(decoding: document, as: UTF8.self)
    if Output.isTerminal { Output.show(json: text) } else { print(text, terminator: "") }
    return Reports.status
  }

  static func `import`(_ arguments: Arguments) throws -> Int32 {
    let store = try suite(arguments)
    let file = arguments.words.count > 1 ? arguments.words[1] : "-"
    let name = file == "-" ? "standard input" : file
    guard let document = contents(of: file) else {
      let reason = String(cString: strerror(errno))
      throw Failure(message: "\(name) cannot be read: \(reason). Name a file.", status: 66)
    }
    do {
      try store.import(document)
    } catch {
      guard error.code == .decodingFailed else { throw error }
      // What is wrong is in the document, not in the suite's file.
      throw Failure(message: Problem(error, at: name).line, status: 65)
    }
    return Reports.status
  }

  /// All of a file, or of a pipe; nil with `errno` where that fails.
  private static func contents(of file: String) -> Data? {
    let descriptor = file == "-" ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC)
    if descriptor < 0 { return nil }
    var document = Data()
    var bytes = [UInt8](repeating: 0, count: 65_536)
    while true {
      switch read(descriptor, &bytes, bytes.count) {
      case ..<0: return nil
      case 0: return document
      case let count: document.append(contentsOf: bytes.prefix(count))
      }
    }
  }
}
