import FoundationEssentials
import Keepsake

/// A cache in files.
struct CacheUnderTest: StoreUnderTest, TypedStore {
  /// Enough for a few entries.
  static let limit = 40_960

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
    /// Stores an entry with tags, which is kept for a day after it has expired.
    case setTagged(Int, Sample, durable: Bool)
    /// Stores so many bytes from a file.
    case setFile(Int, Int, durable: Bool)
    /// Gives an entry that was found stale a new life, if it was kept.
    case renew(Int)
    /// Stores that there is no value.
    case setNoValue(Int)
    case get(Int, as: Sample.Kind)
    /// Reads the bytes, whatever their type.
    case size(Int)
    /// Reads the bytes in pieces.
    case chunks(Int)
    case path(Int)
    case contains(Int)
    case entry(Int)
    case remove(Int)
    case removeAll
    case removeExpired
    case totalSize
    case keys
  }

  /// Calls that only `fetch` makes.
  struct FetchCalls: Sendable {
    let renew: @Sendable (_ key: String) throws -> Void
    let setNoValue: @Sendable (_ key: String) throws -> Void
  }

  let store: DiskCache.Store
  /// nil in another process.
  var fetchCalls: FetchCalls?
  /// A file for values to be stored.
  var incoming: URL?

  func perform(_ call: Call) throws -> String {
    func name(_ number: Int) -> String { ModelKeys.all[number] }
    switch call {
    case .set(let key, let sample, let life, let isDurable):
      try sample.open {
        try store.set($0, forKey: name(key), expiry: life.expiry, durable: isDurable)
      }
    case .setTagged(let key, let sample, let isDurable):
      try sample.open {
        try store.set(
          $0, forKey: name(key), expiry: .days(1), keptFor: .days(1),
          tags: ["etag": String(repeating: "e", count: 100)], durable: isDurable)
      }
    case .setFile(let key, let count, let isDurable):
      guard let incoming else { return "none" }
      try Sample.bytes(of: count).write(to: incoming)
      defer { try? FileManager.default.removeItem(at: incoming) }
      try store.set(contentsOf: incoming, forKey: name(key), durable: isDurable)
    case .renew(let key): try fetchCalls?.renew(name(key))
    case .setNoValue(let key): try fetchCalls?.setNoValue(name(key))
    case .get(let key, let kind): return try summary(name(key), as: kind)
    case .size(let key):
      guard let bytes = try store.get(name(key)) else { return "nothing" }
      return "\(bytes.count > 0)"
    case .chunks(let key): return try readChunks(name(key))
    case .path(let key): return try store.fileURL(name(key)) == nil ? "nothing" : "a path"
    case .contains(let key): return "\(try store.contains(name(key)))"
    case .entry(let key):
      guard let entry = try store.entry(name(key)) else { return "nothing" }
      return entry.expires == nil ? "endless" : "ends"
    case .remove(let key): try store.remove(name(key))
    case .removeAll: try store.removeAll()
    case .removeExpired: try store.removeExpired()
    case .totalSize:
      let total = try store.totalSize
      // Whole blocks, and one block for each sidecar; two if it has been overwritten and its key is
      // long, because it also has the record before.
      var (sum, longKeyCount) = (0, 0)
      for key in try store.keys() {
        let entry = try store.entry(key)
        sum += ((entry?.size ?? 0) + 4_095) / 4_096 * 4_096 + 4_096
        if key.utf8.count > 1_900 { longKeyCount += 1 }
      }
      let isRight = (sum...sum + longKeyCount * 4_096).contains(total) && (total - sum) % 4_096 == 0
      return isRight ? "right" : "\(total) for \(sum) bytes"
    case .keys: return "\(try store.keys().map(ModelKeys.number).sorted())"
    }
    return "done"
  }

  func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T? {
    try store.model(key, type: T.self)
  }

  private func readChunks(_ key: String) throws -> String {
    guard let chunks = try store.chunks(key, size: 100) else { return "nothing" }
    let count = try blocking {
      var count = 0
      for try await piece in chunks { count += piece.count }
      return count
    }
    return "\(count > 0)"
  }

  /// What `get` finds, whatever `keys()` lists.
  func readableContents() throws -> [String: String] {
    var contents: [String: String] = [:]
    for (number, key) in ModelKeys.all.enumerated() { contents["\(number)"] = try summary(key) }
    return contents
  }

  func names() throws -> [String] {
    try store.keys().map { "\(try ModelKeys.number(of: $0))" }
  }

  func value(named name: String) throws -> String? { try summary(ModelKeys.key(named: name)) }

  func contents() throws -> [String: String] {
    let contents = try readableContents()
    // Eviction may be running.
    if store.sizeLimit != nil { return contents }
    let names = try names()
    // Entries of interrupted calls may be readable before a sweep lists them.
    guard Set(names).isSubset(of: contents.keys), Set(names).count == names.count else {
      throw UnexpectedContents(
        text: "keys() has \(names.sorted()), get has \(contents.keys.sorted())")
    }
    for key in names.map(ModelKeys.key) {
      let entry = try store.entry(key)
      let bytes = try store.get(key)
      guard entry?.size == bytes?.count else {
        throw UnexpectedContents(text: "the entry of \(key.debugDescription) has another size")
      }
    }
    return contents
  }
}

extension CacheUnderTest: ByteStore {
  func set(_ bytes: Data, _ name: String) throws { try store.set(bytes, forKey: name) }
  func remove(_ name: String) throws { try store.remove(name) }
  func bytes(_ name: String) throws -> Data? { try store.get(name) }
  func removeAll() throws { try store.removeAll() }

  func maintain(_ number: Int) throws { try perform(oneOf: [.removeExpired, .totalSize], number) }
}
