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
    if suites.isEmpty {
      throw Failure(
        message: "\(arguments.app) has no settings here. `keepsakectl list` shows who has.")
    }
    let names = suites.map(\.name).joined(separator: ", ")
    throw Failure(message: "\(arguments.app) has no suite \(store.suite.name). It has: \(names).")
  }

  private static func missing(_ arguments: Arguments) -> Failure {
    Failure(
      message: "\(arguments.words[0]) has no \(arguments.words[1]). "
        + "`keepsakectl settings list \(arguments.words[0])` shows what it has.")
  }

  static func list(_ arguments: Arguments) throws -> Int32 {
    let store = try existing(arguments)
    if arguments.has("json") {
      Output.show(json: String(decoding: try store.export(as: .json).dropLast(), as: UTF8.self))
    } else {
      Output.show(["KEY", "VALUE"], try Values.all(of: store).map { [$0.key, $0.json] })
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
    if arguments.has("string") {
      try suite(arguments).set(value, forKey: key)
    } else {
      let document = try Values.document(key: key, json: value)
      if value.split(whereSeparator: \.isWhitespace) == ["null"] {
        throw Failure(message: "null is no value. Use `keepsakectl settings delete`.", status: 65)
      }
      try suite(arguments).import(document)
    }
    return 0
  }

  static func delete(_ arguments: Arguments) throws -> Int32 {
    let store = try existing(arguments)
    guard try store.contains(arguments.words[1]) else { throw missing(arguments) }
    try store.remove(arguments.words[1])
    return 0
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
      fflush(stdout)
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
    guard arguments.words.count > 1 else {
      try store.import(standardInput())
      return 0
    }
    let document: Data
    do {
      document = try Data(contentsOf: URL(filePath: arguments.words[1]))
    } catch {
      throw Failure(message: "\(arguments.words[1]) cannot be read. Name a file.", status: 66)
    }
    try store.import(document)
    return 0
  }

  private static func standardInput() -> Data {
    var document = Data()
    var bytes = [UInt8](repeating: 0, count: 65_536)
    while case let count = read(STDIN_FILENO, &bytes, bytes.count), count > 0 {
      document.append(contentsOf: bytes.prefix(count))
    }
    return document
  }
}
