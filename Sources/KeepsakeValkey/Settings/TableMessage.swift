internal import FoundationEssentials
internal import Keepsake

/// A change of a table, as it is published: the identity of the table, the version that the change
/// made, the names of the change before it and of this one, and the new values.
///
/// As bytes: the identity, the version in digits and the two names, with a space after each, and
/// either `?`, for changes that are too large to publish, or `*`, if the table was stored again or
/// adopted after a loss, or the changes one after another. A change is the length of the key, a
/// colon, the key, and either `-` or `+`, the length of the value, a colon and the value. A `!`
/// before them removes all values first.
struct TableMessage: Sendable {
  let id: String
  let version: Int64
  /// The name of the change before this one; empty if the server does not know it.
  let previous: String
  let name: String
  /// nil if the values have to be read from the server.
  let changes: TableChanges?
  /// Whether the version may be one that other values had before, or the table may take the place
  /// of another one.
  let isRestored: Bool

  /// A server cuts subscribers off that fall behind by 8 to 32 MB, so large changes are not sent.
  static let maximumSize = 256 << 10
  private static let omitted = Array("?".utf8)
  private static let restored = Array("*".utf8)
  /// Scripts on the server represent these numbers exactly, and sums of them do not overflow.
  static let versions: Range<Int64> = 1..<(1 << 53)

  /// What follows the version when changes are published.
  static func payload(of changes: TableChanges) -> [UInt8] {
    changes.byteCount <= maximumSize ? encode(changes) : omitted
  }

  static func bytes(
    id: String, version: Int64, name: String, _ changes: TableChanges
  ) -> [UInt8] { Array("\(id) \(version)  \(name) ".utf8) + encode(changes) }

  private static func encode(_ changes: TableChanges) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(changes.byteCount)
    if changes.removesAll { bytes.append(UInt8(ascii: "!")) }
    for entry in changes.entries {
      append(entry.key.utf8, to: &bytes)
      if let data = entry.data {
        bytes.append(UInt8(ascii: "+"))
        append(data, to: &bytes)
      } else {
        bytes.append(UInt8(ascii: "-"))
      }
    }
    return bytes
  }

  private static func append(_ text: some Collection<UInt8>, to bytes: inout [UInt8]) {
    bytes.append(contentsOf: String(text.count).utf8)
    bytes.append(UInt8(ascii: ":"))
    bytes.append(contentsOf: text)
  }

  /// nil if the bytes are not a message, for example one of a newer format.
  init?(_ bytes: [UInt8]) {
    var rest = bytes[...]
    guard let id = Self.takeText(&rest), !id.isEmpty,
      let version = Self.takeWord(&rest).flatMap(ReplyParser.integer),
      Self.versions.contains(version), let previous = Self.takeText(&rest),
      let name = Self.takeText(&rest)
    else { return nil }
    self.id = id
    self.version = version
    self.previous = previous
    self.name = name
    isRestored = rest == Self.restored[...]
    if isRestored || rest == Self.omitted[...] {
      changes = nil
      return
    }
    let removesAll = rest.first == UInt8(ascii: "!")
    if removesAll { rest = rest.dropFirst() }
    var entries: [StorageEngines.Entry] = []
    while !rest.isEmpty {
      guard let key = Self.take(&rest).flatMap({ String(validating: $0, as: UTF8.self) }) else {
        return nil
      }
      switch rest.popFirst() {
      case UInt8(ascii: "-"): entries.append(StorageEngines.Entry(key: key, data: nil))
      case UInt8(ascii: "+"):
        guard let data = Self.take(&rest) else { return nil }
        entries.append(StorageEngines.Entry(key: key, data: Data(data)))
      default: return nil
      }
    }
    changes = TableChanges(entries, removesAll: removesAll)
  }

  /// Removes the bytes before the next space, and the space; nil if there is none.
  private static func takeWord(_ rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
    guard let space = rest.firstIndex(of: UInt8(ascii: " ")) else { return nil }
    defer { rest = rest[(space + 1)...] }
    return rest[..<space]
  }

  private static func takeText(_ rest: inout ArraySlice<UInt8>) -> String? {
    takeWord(&rest).flatMap { String(validating: $0, as: UTF8.self) }
  }

  /// Removes a length and as many bytes from the start of `rest`; nil if they are not there.
  private static func take(_ rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
    guard let colon = rest.prefix(20).firstIndex(of: UInt8(ascii: ":")),
      let length = ReplyParser.integer(rest[..<colon]), length >= 0,
      length <= rest.endIndex - colon - 1
    else { return nil }
    let start = colon + 1
    let end = start + Int(length)
    defer { rest = rest[end...] }
    return rest[start..<end]
  }
}
