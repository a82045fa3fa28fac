internal import FoundationEssentials
internal import Keepsake

/// The values of a table at one version.
struct TableContents: Sendable {
  /// Empty if the table does not exist, and so has no values.
  var id = ""
  var version: Int64 = 0
  /// The name of the change that made the version; empty if it is not known.
  var name = ""
  /// By the bytes of the keys, because two keys may differ only in Unicode normalization.
  private var values: [[UInt8]: Data] = [:]
  /// How many bytes the values and their keys take in a reply of the server.
  private(set) var byteCount = 0

  init() {}

  init(id: String, version: Int64, name: String, entries: some Sequence<StorageEngines.Entry>) {
    self.id = id
    self.version = version
    self.name = name
    for entry in entries { apply(entry) }
  }

  var isEmpty: Bool { values.isEmpty }
  var keys: [String] { values.keys.map { String(decoding: $0, as: UTF8.self) } }

  var entries: [StorageEngines.Entry] {
    values.map { StorageEngines.Entry(key: String(decoding: $0, as: UTF8.self), data: $1) }
  }

  mutating func apply(_ changes: TableChanges) {
    if changes.removesAll { (values, byteCount) = ([:], 0) }
    for entry in changes.entries { apply(entry) }
  }

  private mutating func apply(_ entry: StorageEngines.Entry) {
    let key = Array(entry.key.utf8)
    let old = values[key]
    values[key] = entry.data
    byteCount += Self.byteCount(key, entry.data) - Self.byteCount(key, old)
  }

  private static func byteCount(_ key: [UInt8], _ data: Data?) -> Int {
    data.map { key.count + $0.count + overhead } ?? 0
  }

  /// What a value and its key take besides their bytes. The limit for replies counts it too, and
  /// would refuse many tiny values otherwise that the limit for a table permits.
  private static let overhead = 2 * ReplyParser.overhead

  /// How many bytes the values and their keys would take after changes.
  func byteCount(after changes: TableChanges) -> Int {
    changes.entries.reduce(changes.removesAll ? 0 : byteCount) { count, entry in
      let key = Array(entry.key.utf8)
      let old = changes.removesAll ? nil : values[key]
      return count + Self.byteCount(key, entry.data) - Self.byteCount(key, old)
    }
  }
}

/// Changes of a table that are made in one step.
struct TableChanges: Sendable {
  let entries: [StorageEngines.Entry]
  /// Whether all values are removed first.
  let removesAll: Bool

  init(_ entries: [StorageEngines.Entry], removesAll: Bool = false) {
    self.entries = entries
    self.removesAll = removesAll
  }

  /// Whether a value is set.
  var sets: Bool { entries.contains { $0.data != nil } }

  /// How many bytes they take, about.
  var byteCount: Int {
    entries.reduce(1) { $0 + $1.key.utf8.count + ($1.data?.count ?? 0) + 24 }
  }
}
