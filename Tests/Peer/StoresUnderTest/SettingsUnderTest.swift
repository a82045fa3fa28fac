import FoundationEssentials
import Keepsake

/// A suite of settings in a journal.
struct SettingsUnderTest: StoreUnderTest, TypedStore {
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
    /// What follows each set within a second.
    case synchronizeInBackground
    case compact
    /// Imports an export.
    case importExport
    /// Imports two numbers.
    case merge(Int, Int, Int)
    case backUp
    /// Replaces all values by those of the last backup, if there is one.
    case restore
  }

  let store: Defaults.Store
  /// The file of the backup.
  let backup: URL
  /// The longest key that its engine takes.
  var longestKey = Int.max
  /// Shares nothing in memory with the first.
  var rival: Defaults.Store?
  /// nil in another process.
  var journalCalls: JournalCalls?

  /// Calls that the library makes itself.
  struct JournalCalls: Sendable {
    let compact: @Sendable () throws -> Void
    let synchronizeInBackground: @Sendable () throws -> Void
  }

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
    case .synchronizeInBackground: try journalCalls?.synchronizeInBackground()
    case .compact: try journalCalls?.compact()
    case .importExport: try store.import(store.export(as: .json))
    case .merge(let first, let second, let number):
      // Not a dictionary, for which different compositions of a key are equal.
      let names = try [first, second].map {
        String(decoding: try JSONEncoder().encode(name($0)), as: UTF8.self)
      }
      try store.import(Data("{\(names[0]): \(number), \(names[1]): \(number + 1)}".utf8))
    case .backUp: try store.backUp(to: backup.path)
    case .restore:
      guard FileManager.default.fileExists(atPath: backup.path) else { return "none" }
      _ = try store.prepareRestore(from: backup.path).commit()
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

  func names() throws -> [String] {
    try store.keys().map { "\(try ModelKeys.number(of: $0))" }
  }

  func value(named name: String) throws -> String? { try summary(ModelKeys.key(named: name)) }

  func contents() throws -> [String: String] {
    var contents: [String: String] = [:]
    let names = try names()
    for name in names { contents[name] = try value(named: name) }
    let others = ModelKeys.all.indices.filter {
      contents["\($0)"] == nil && ModelKeys.all[$0].utf8.count <= longestKey
    }
    for number in others where try store.contains(ModelKeys.all[number]) {
      throw UnexpectedContents(text: "key \(number) is missing from keys()")
    }
    guard names.count == contents.count else {
      throw UnexpectedContents(text: "keys() has a key twice")
    }
    return contents
  }
}

extension SettingsUnderTest: ByteStore {
  func set(_ bytes: Data, _ name: String) throws { try store.set(bytes, forKey: name) }
  func remove(_ name: String) throws { try store.remove(name) }
  func bytes(_ name: String) throws -> Data? { try store.get(name) }
  func removeAll() throws { try store.removeAll() }

  func maintain(_ number: Int) throws {
    try perform(oneOf: [.synchronize, .backUp, .synchronizeInBackground], number)
  }
}
