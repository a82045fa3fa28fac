/// Properties that few entries have.
package struct EntryDetails: Equatable, Sendable {
  /// How long the entry is kept after its expiry, in nanoseconds.
  package var kept: Int64 = 0
  package var tags: [String: String] = [:]
  /// nil if the entry was stored for this machine alone.
  package var version: EntryVersion?

  /// nil if there would be none.
  package init?(kept: Int64 = 0, tags: [String: String] = [:], version: EntryVersion? = nil) {
    if kept <= 0, tags.isEmpty, version == nil { return nil }
    self.kept = max(0, kept)
    self.tags = tags
    self.version = version
  }

  /// Whether there are none.
  package var isEmpty: Bool { kept == 0 && tags.isEmpty && version == nil }

  // MARK: Bytes

  /// The most that all tags take in a sidecar, in bytes.
  static let largestTags = 1_024
  /// What a version takes besides the tags.
  private static let versionSize = 2 + 16
  /// The most that the details take in a sidecar, in bytes.
  package static let largestSize = 8 + largestTags + versionSize
  /// Stands where a tag's name has its length, which is never as large.
  private static let versionMark: UInt16 = 0xFFFF

  /// The details as a sidecar holds them, without a check of their size.
  package var bytes: [UInt8] {
    var bytes: [UInt8] = []
    bytes.append(number: kept)
    let names = tags.keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    for name in names {
      for text in [name, tags[name] ?? ""] {
        bytes.append(number: UInt16(truncatingIfNeeded: text.utf8.count))
        bytes += text.utf8
      }
    }
    if let version {
      bytes.append(number: Self.versionMark)
      bytes.append(number: version.number)
      bytes.append(number: version.name)
    }
    return bytes
  }

  /// Parses the details of a sidecar; nil if they are damaged.
  package init?(_ bytes: UnsafeRawBufferPointer) {
    guard bytes.count >= 8, bytes.count <= Self.largestSize else { return nil }
    let kept: Int64 = bytes.number(at: 0)
    guard kept >= 0 else { return nil }
    self.kept = kept
    var position = 8
    func mark() -> UInt16? {
      guard bytes.count - position >= 2 else { return nil }
      return bytes.number(at: position)
    }
    func readText() -> String? {
      guard let length = mark().map({ Int($0) }) else { return nil }
      position += 2
      guard bytes.count - position >= length else { return nil }
      defer { position += length }
      return String(utf8: UnsafeRawBufferPointer(rebasing: bytes[position..<position + length]))
    }
    var last: String?
    while position < bytes.count {
      if mark() == Self.versionMark {
        guard bytes.count - position == Self.versionSize else { return nil }
        version = EntryVersion(
          number: bytes.number(at: position + 2), name: bytes.number(at: position + 10))
        return
      }
      guard let name = readText(), let value = readText() else { return nil }
      if let last, !last.utf8.lexicographicallyPrecedes(name.utf8) { return nil }
      guard tags.updateValue(value, forKey: name) == nil else { return nil }
      last = name
    }
  }

  /// Throws for tags that take too much space.
  static func check(tags: [String: String], path: @autoclosure () -> String?) throws(StorageError) {
    let size = tags.reduce(0) { $0 + 4 + $1.key.utf8.count + $1.value.utf8.count }
    guard size > largestTags else { return }
    throw StorageError(
      .misuse, operation: "set", path: path(),
      reason: "the tags take \(size) bytes, more than \(largestTags)",
      remedy: "Store fewer or shorter tags, or make them part of the value.")
  }
}
