// The calls of model checks. The tests also use this file, so that both processes make the same
// calls and describe the results in the same way.
import FoundationEssentials
import Keepsake

/// A store that makes calls which can be sent as a line of text, and answers with text.
protocol ScriptedStore {
  associatedtype Call: Codable, Sendable
  /// Everything that is stored.
  associatedtype Contents: Codable, Equatable, Sendable

  func perform(_ call: Call) throws -> String
  func contents() throws -> Contents
}

extension ScriptedStore {
  /// Makes the call; errors that a store documents become part of the answer.
  func answer(_ call: Call) -> String {
    do {
      return try perform(call)
    } catch let error as StorageError {
      switch error.code {
      // Which of the two is thrown depends on the decoder of the other type.
      case .wrongType, .decodingFailed: return "error: type"
      case .locked: return "error: locked"
      case .wrongPassphrase: return "error: wrong passphrase"
      case .notFound: return "error: not found"
      case .misuse: return "error: misuse"
      default: return "error: \(error)"
      }
    } catch {
      return "error: \(error)"
    }
  }
}

/// A request of a model check to another process.
enum ScriptedRequest<Call: Codable & Sendable>: Codable, Sendable {
  case call(Call)
  case contents
}

enum ScriptedReply<Contents: Codable & Sendable>: Codable, Sendable {
  case text(String)
  case contents(Contents)
}

/// Stored data that cannot be described to a model.
struct UnexpectedContents: Error {
  let text: String
}

// MARK: - Keys and values

enum ModelKeys {
  static let longName = String(repeating: "k", count: 3_000)
  /// The keys by number. From the third on they contain characters that stores often mishandle.
  static let all = [
    "a", "b", "", "é", "e\u{301}", longName, longName + "k", "nul\0", "nul", "line\nbreak",
    "\"quoted\\\"", "../up", ".", "🗝️\u{2028}", "A",
  ]

  static func number(of key: String) throws -> Int {
    // Compares bytes: strings are also equal to other compositions of the same characters.
    let number = all.firstIndex { $0.utf8.elementsEqual(key.utf8) }
    guard let number else {
      throw UnexpectedContents(text: "the unknown key \(key.debugDescription)")
    }
    return number
  }
}

/// A value given by its type and a number, so that it is short to print.
enum Sample: Codable, Hashable, Sendable {
  case int(Int)
  case bool(Bool)
  case text(Int)
  case number(Int)
  case bytes(Int)
  case date(Int)
  case list(Int)
  case model(Int)

  enum Kind: String, Codable, CaseIterable, Sendable {
    case bool, text, bytes, date, int, number, list, model
  }

  struct Person: Codable, Equatable, Sendable {
    var name: String
    var age: Int
    var tags: [String]
    var born: Date?

    init(_ number: Int) {
      name = Sample.text(of: number)
      age = number
      tags = (0..<number % 4).map { "\($0)\n" }
      born = number.isMultiple(of: 2) ? nil : Date(timeIntervalSinceReferenceDate: 0.1)
    }
  }

  static func text(of number: Int) -> String {
    let texts = [
      "", "null", "e\u{301}", "a\0b", "\u{2028}\n\r\"\\", "true", "12", "{\"$data\":\"AA==\"}",
    ]
    return texts.indices.contains(number)
      ? texts[number] : "\(number) " + String(repeating: "x", count: number)
  }

  static func number(of number: Int) -> Double {
    let numbers = [Double.nan, .infinity, -.infinity, .leastNonzeroMagnitude, 1.797e308, 0.1]
    return numbers.indices.contains(number) ? numbers[number] : Double(number) + 0.5
  }

  static func bytes(of number: Int) -> Data {
    Data((0..<number).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ number) })
  }

  /// Calls `body` with the value as its own type.
  func open<R>(_ body: (any Codable & Sendable) throws -> R) rethrows -> R {
    switch self {
    case .int(let number): try body(number)
    case .bool(let bool): try body(bool)
    case .text(let number): try body(Self.text(of: number))
    case .number(let number): try body(Self.number(of: number))
    case .bytes(let number): try body(Self.bytes(of: number))
    case .date(let number): try body(Date(timeIntervalSinceReferenceDate: Double(number) + 0.1))
    case .list(let number): try body(Array(0..<number))
    case .model(let number): try body(Person(number))
    }
  }

  /// A description of the value, the same for every store.
  var summary: String { open { Self.summary(of: $0) } }

  static func summary(of value: (any Codable & Sendable)?) -> String {
    switch value {
    case nil: return "nothing"
    case let bytes as Data: return "bytes \(bytes.count) \(sum(of: bytes))"
    case let text as String: return "text \(text.utf8.count) \(sum(of: text.utf8))"
    case let date as Date: return "date \(date.timeIntervalSinceReferenceDate)"
    case let bool as Bool: return "bool \(bool)"
    case let number as Int: return "int \(number)"
    case let number as Double: return "number \(number)"
    case let list as [Int]: return "list \(list)"
    case let person as Person: return "model \(person.age) \(person == Person(person.age))"
    default: return "another type"
    }
  }

  private static func sum(of bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.reduce(14_695_981_039_346_656_037) { ($0 ^ UInt64($1)) &* 1_099_511_628_211 }
  }
}

/// Values of any type by key.
protocol TypedStore {
  func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T?
}

extension TypedStore {
  func summary(_ key: String, as kind: Sample.Kind) throws -> String {
    switch kind {
    case .bool: Sample.summary(of: try value(key, as: Bool.self))
    case .text: Sample.summary(of: try value(key, as: String.self))
    case .bytes: Sample.summary(of: try value(key, as: Data.self))
    case .date: Sample.summary(of: try value(key, as: Date.self))
    case .int: Sample.summary(of: try value(key, as: Int.self))
    case .number: Sample.summary(of: try value(key, as: Double.self))
    case .list: Sample.summary(of: try value(key, as: [Int].self))
    case .model: Sample.summary(of: try value(key, as: Sample.Person.self))
    }
  }

  /// The summary with the type that the value was stored as; nil for no value.
  func summary(_ key: String) throws -> String? {
    for kind in Sample.Kind.allCases {
      do {
        let summary = try summary(key, as: kind)
        return summary == "nothing" ? nil : summary
      } catch {
        let code = (error as? StorageError)?.code
        guard code == .wrongType || code == .decodingFailed else { throw error }
      }
    }
    throw UnexpectedContents(text: "the value of \(key.debugDescription) is of no known type")
  }
}

// MARK: - Settings

struct ScriptedSettings: ScriptedStore, TypedStore {
  enum Call: Codable, Sendable {
    case set(Int, Sample)
    case get(Int, as: Sample.Kind)
    case contains(Int)
    case remove(Int)
    case removeAll
    /// Adds one.
    case update(Int)
    /// Adds one while another store sets the key.
    case race(Int, with: Int)
    case synchronize
    case compact
    /// Imports an export.
    case restore
    /// Imports two numbers.
    case merge(Int, Int, Int)
  }

  let store: Defaults.Store
  /// Shares nothing in memory with the first.
  var rival: Defaults.Store?
  var compact: @Sendable () throws -> Void = {}

  func perform(_ call: Call) throws -> String {
    func name(_ number: Int) -> String { ModelKeys.all[number] }
    switch call {
    case .set(let key, let sample): try sample.open { try store.set($0, forKey: name(key)) }
    case .get(let key, let kind):
      return try summary(name(key), as: kind)
    case .contains(let key): return "\(try store.contains(name(key)))"
    case .remove(let key): try store.remove(name(key))
    case .removeAll: try store.removeAll()
    case .update(let key):
      return "\(try store.update(name(key), default: 0) { (value: inout Int) in value &+= 1 })"
    case .race(let key, let number): return try race(name(key), number)
    case .synchronize: try store.synchronize()
    case .compact: try compact()
    case .restore: try store.import(store.export(as: .json))
    case .merge(let first, let second, let number):
      // Not a dictionary, for which different compositions of a key are equal.
      let names = try [first, second].map {
        String(decoding: try JSONEncoder().encode(name($0)), as: UTF8.self)
      }
      try store.import(Data("{\(names[0]): \(number), \(names[1]): \(number + 1)}".utf8))
    }
    return "done"
  }

  private func race(_ key: String, _ number: Int) throws -> String {
    var isFirst = true
    let result = try store.update(key, default: 0) { (value: inout Int) throws in
      if isFirst, let rival { try rival.set(number, forKey: key) }
      isFirst = false
      value &+= 1
    }
    return "\(result)"
  }

  func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T? {
    try store.model(key, type: T.self)
  }

  func contents() throws -> [Int: String] {
    var contents: [Int: String] = [:]
    let keys = try store.keys()
    for key in keys { contents[try ModelKeys.number(of: key)] = try summary(key) }
    let others = ModelKeys.all.indices.filter { contents[$0] == nil }
    for number in others where try store.contains(ModelKeys.all[number]) {
      throw UnexpectedContents(text: "key \(number) is missing from keys()")
    }
    guard keys.count == contents.count else {
      throw UnexpectedContents(text: "keys() has a key twice")
    }
    return contents
  }
}

// MARK: - Cache

struct ScriptedCache: ScriptedStore, TypedStore {
  enum Lifetime: String, Codable, CaseIterable, Sendable {
    /// The last two have expired when `set` returns.
    case endless, day, idle, moment, past

    var expiry: DiskCache.Expiry {
      switch self {
      case .endless: .never
      case .day: .days(1)
      case .idle: .idle(.days(1))
      case .moment: .seconds(1e-9)
      case .past: .date(Date(timeIntervalSince1970: 1))
      }
    }

    var lasts: Bool { self != .moment && self != .past }
  }

  enum Call: Codable, Sendable {
    case set(Int, Sample, Lifetime, durable: Bool)
    case get(Int, as: Sample.Kind)
    /// Reads the bytes, whatever their type.
    case size(Int)
    case contains(Int)
    case entry(Int)
    case remove(Int)
    case removeAll
    case removeExpired
    case totalSize
    case keys
  }

  let store: DiskCache.Store

  func perform(_ call: Call) throws -> String {
    func name(_ number: Int) -> String { ModelKeys.all[number] }
    switch call {
    case .set(let key, let sample, let life, let isDurable):
      try sample.open {
        try store.set($0, forKey: name(key), expiry: life.expiry, durable: isDurable)
      }
    case .get(let key, let kind): return try summary(name(key), as: kind)
    case .size(let key):
      guard let bytes = try store.get(name(key)) else { return "nothing" }
      return "\(bytes.count > 0)"
    case .contains(let key): return "\(try store.contains(name(key)))"
    case .entry(let key):
      guard let entry = try store.entry(name(key)) else { return "nothing" }
      return entry.expires == nil ? "endless" : "ends"
    case .remove(let key): try store.remove(name(key))
    case .removeAll: try store.removeAll()
    case .removeExpired: try store.removeExpired()
    case .totalSize:
      let total = try store.totalSize
      // Whole blocks, and one block for each sidecar.
      var sum = 0
      for key in try store.keys() {
        let entry = try store.entry(key)
        sum += ((entry?.size ?? 0) + 4_095) / 4_096 * 4_096 + 4_096
      }
      return total == sum ? "right" : "\(total) for \(sum) bytes"
    case .keys: return "\(try store.keys().map(ModelKeys.number).sorted())"
    }
    return "done"
  }

  func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T? {
    try store.model(key, type: T.self)
  }

  func contents() throws -> [Int: String] {
    var contents: [Int: String] = [:]
    for (number, key) in ModelKeys.all.enumerated() { contents[number] = try summary(key) }
    // Eviction may be running.
    if store.sizeLimit != nil { return contents }
    let keys = try store.keys()
    let numbers = try keys.map(ModelKeys.number)
    // Entries of interrupted calls may be readable before a sweep lists them.
    guard Set(numbers).isSubset(of: contents.keys), Set(numbers).count == numbers.count else {
      throw UnexpectedContents(
        text: "keys() has \(numbers.sorted()), get has \(contents.keys.sorted())")
    }
    for key in keys {
      let entry = try store.entry(key)
      let bytes = try store.get(key)
      guard entry?.size == bytes?.count else {
        throw UnexpectedContents(text: "the entry of \(key.debugDescription) has another size")
      }
    }
    return contents
  }
}

// MARK: - Secrets

struct ScriptedVault: ScriptedStore {
  enum Call: Codable, Sendable {
    case set(Int, in: Int, Sample)
    case get(Int, in: Int, as: Sample.Kind)
    case contains(Int, in: Int)
    case remove(Int, in: Int)
    case removeAll(in: Int)
    case rotateKeys
    case protectWithKeyFile
    case protectWithPassphrase(Int)
    case unlock
    case unlockWith(Int)
    case lock
    case isLocked
  }

  struct Contents: Codable, Equatable, Sendable {
    var secrets: [Int: [Int: String]] = [:]
    var protection: String?
    /// The number of the passphrase that unlocks the vault, if one is needed.
    var passphrase: Int?
  }

  private struct Service: TypedStore {
    let store: SecureVault.Store

    func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T? {
      try store.model(key, type: T.self)
    }
  }

  static let services = ["standard", "", "é\0/.."]
  static let passphrases = ["correct horse", "correct horsf"]

  /// The stores of the services, by number.
  let stores: [SecureVault.Store]
  /// The names of the services that have secrets.
  let storedServices: @Sendable () throws -> [String]
  var keySource: @Sendable (_ passphrase: String) -> SecureVault.KeySource = { .passphrase($0) }

  func perform(_ call: Call) throws -> String {
    func name(_ number: Int) -> String { ModelKeys.all[number] }
    switch call {
    case .set(let key, let service, let sample):
      try sample.open { try stores[service].set($0, forKey: name(key)) }
    case .get(let key, let service, let kind):
      return try Service(store: stores[service]).summary(name(key), as: kind)
    case .contains(let key, let service): return "\(try stores[service].contains(name(key)))"
    case .remove(let key, let service): try stores[service].remove(name(key))
    case .removeAll(let service): try stores[service].removeAll()
    case .rotateKeys: try stores[0].rotateKeys()
    case .protectWithKeyFile: try stores[0].protect(with: .keyFile)
    case .protectWithPassphrase(let number):
      try stores[0].protect(with: keySource(Self.passphrases[number]))
    case .unlock: try stores[0].unlock()
    case .unlockWith(let number): try stores[0].unlock(passphrase: Self.passphrases[number])
    case .lock: try stores[0].lock()
    case .isLocked: return "\(try stores[0].isLocked)"
    }
    return "done"
  }

  func contents() throws -> Contents {
    let protection = try stores[0].protection
    var contents = Contents(protection: protection.map { "\($0)" })
    if try stores[0].isLocked { contents.passphrase = try open() }
    for (number, store) in stores.enumerated() {
      var secrets: [Int: String] = [:]
      for key in try store.keys() {
        secrets[try ModelKeys.number(of: key)] = try Service(store: store).summary(key)
        let access = try store.entry(key)?.access
        guard access == .whenUnlocked else {
          throw UnexpectedContents(text: "the access of \(key)")
        }
      }
      if !secrets.isEmpty { contents.secrets[number] = secrets }
    }
    let names = Set(contents.secrets.keys.map { Self.services[$0] })
    let found = try storedServices()
    guard Set(found) == names, found.count == names.count else {
      throw UnexpectedContents(text: "services() has \(found), keys are in \(names)")
    }
    return contents
  }

  private func open() throws -> Int {
    for (number, passphrase) in Self.passphrases.enumerated() {
      do {
        try stores[0].unlock(passphrase: passphrase)
        return number
      } catch {
        guard error.code == .wrongPassphrase else { throw error }
      }
    }
    throw UnexpectedContents(text: "no passphrase opens the vault")
  }
}

// MARK: - Files

struct ScriptedFolder: ScriptedStore {
  enum Call: Codable, Sendable {
    case save(String, Sample)
    /// Saves a text without replacing anything.
    case saveNew(String, Int)
    case load(String)
    case exists(String)
    case size(String)
    case delete(String)
    case move(String, to: String)
    case copy(String, to: String)
    /// Moves from this directory into a subdirectory.
    case moveInto(String, String, to: String)
    case create(String)
    case clear
    case totalSize
  }

  let directory: Folder

  func perform(_ call: Call) throws -> String {
    switch call {
    case .save(let path, let sample):
      switch sample {
      case .text(let number): try directory.save(Sample.text(of: number), as: path)
      case .bytes(let number): try directory.save(Sample.bytes(of: number), as: path)
      default: throw UnexpectedContents(text: "a file has no type")
      }
    case .saveNew(let path, let number):
      try directory.save(Sample.text(of: number), as: path, replacing: false)
    case .load(let path): return Sample.summary(of: try directory.load(path) as Data)
    case .exists(let path): return "\(try directory.exists(path))"
    case .size(let path): return "\(try directory.size(path))"
    case .delete(let path): try directory.delete(path)
    case .move(let path, let target): try directory.move(path, to: target)
    case .copy(let path, let target): try directory.copy(path, to: target)
    case .moveInto(let path, let other, let target):
      try directory.move(path, to: target, in: directory.subfolder(other))
    case .create(let path): try directory.subfolder(path).create()
    case .clear: try directory.clear()
    case .totalSize: return "\(try directory.totalSize())"
    }
    return "done"
  }

  /// Names, with summaries of files; names of directories end in a slash. A list, because for a
  /// dictionary different compositions of a name are equal.
  func contents() throws -> [String] {
    let names = try directory.list(recursively: true, includingHidden: true)
    return try names.map { name in
      if name.utf8.last == UInt8(ascii: "/") { return name }
      return "\(name): " + Sample.summary(of: try directory.load(name) as Data)
    }
  }
}

// MARK: - The command

/// Runs the command if it belongs to model checks; false otherwise.
func runModelCommand(_ words: [String], in folder: URL) -> Bool {
  guard words.count == 2, words[0] == "model" else { return false }
  switch words[1] {
  case "settings": serve(ScriptedSettings(store: Defaults.shared))
  case "cache", "limited cache":
    let store = DiskCache.named(DiskCache.Name("x", in: directory))
    if words[1] == "limited cache" { store.sizeLimit = ScriptedCache.limit }
    serve(ScriptedCache(store: store))
  case "vault":
    serve(
      ScriptedVault(
        stores: ScriptedVault.services.map { SecureVault.service(SecureVault.Service($0)) },
        storedServices: { SecureVault.services().map(\.name) }))
  case "directory": serve(ScriptedFolder(directory: Folder(directory.appending(path: "files"))))
  default: return false
  }
  return true
}

extension ScriptedCache {
  /// Enough for a few entries.
  static let limit = 40_960
}

/// Answers requests until its input ends.
private func serve<Store: ScriptedStore>(_ store: Store) {
  while let line = readLine() {
    do {
      let request = try JSONDecoder().decode(
        ScriptedRequest<Store.Call>.self, from: Data(line.utf8))
      let reply: ScriptedReply<Store.Contents> =
        switch request {
        case .call(let call): .text(store.answer(call))
        case .contents: try .contents(store.contents())
        }
      printLine(String(decoding: try JSONEncoder().encode(reply), as: UTF8.self))
    } catch {
      printLine("error \(error)")
    }
  }
}
