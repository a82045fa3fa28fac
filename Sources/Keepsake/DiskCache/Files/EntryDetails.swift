/// What few entries have: their sidecars are in version 2 of the format.
struct EntryDetails: Equatable, Sendable {
  /// For how long the entry is kept after its expiry, in nanoseconds.
  var kept: Int64 = 0
  var tags: [String: String] = [:]

  /// nil if there is nothing that a sidecar of version 1 does not say.
  init?(kept: Int64 = 0, tags: [String: String] = [:]) {
    if kept <= 0, tags.isEmpty { return nil }
    self.kept = max(0, kept)
    self.tags = tags
  }

  // MARK: Bytes

  /// The most that all tags take in a sidecar, in bytes.
  static let largestTags = 1_024
  /// The most that the details take in a sidecar, in bytes.
  static let largestSize = 8 + largestTags

  /// The details as a sidecar holds them, without a check of their size.
  var bytes: [UInt8] {
    var bytes: [UInt8] = []
    func append(_ number: some FixedWidthInteger) {
      withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
    }
    append(kept)
    let names = tags.keys.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    for name in names {
      for text in [name, tags[name] ?? ""] {
        append(UInt16(truncatingIfNeeded: text.utf8.count))
        bytes += text.utf8
      }
    }
    return bytes
  }

  /// Parses the details of a sidecar; nil if they are damaged.
  init?(_ bytes: UnsafeRawBufferPointer) {
    guard bytes.count >= 8, bytes.count <= Self.largestSize else { return nil }
    let kept = Int64(littleEndian: bytes.loadUnaligned(as: Int64.self))
    guard kept >= 0 else { return nil }
    self.kept = kept
    var position = 8
    func readText() -> String? {
      guard bytes.count - position >= 2 else { return nil }
      let length = Int(
        UInt16(littleEndian: bytes.loadUnaligned(fromByteOffset: position, as: UInt16.self)))
      position += 2
      guard bytes.count - position >= length else { return nil }
      defer { position += length }
      return String(utf8: UnsafeRawBufferPointer(rebasing: bytes[position..<position + length]))
    }
    var last: String?
    while position < bytes.count {
      guard let name = readText(), let value = readText() else { return nil }
      if let last, !last.utf8.lexicographicallyPrecedes(name.utf8) { return nil }
      guard tags.updateValue(value, forKey: name) == nil else { return nil }
      last = name
    }
  }

  /// Throws for tags that take too much space.
  static func check(_ tags: [String: String], path: String?) throws(StorageError) {
    let size = tags.reduce(0) { $0 + 4 + $1.key.utf8.count + $1.value.utf8.count }
    guard size > largestTags else { return }
    throw StorageError(
      .misuse, operation: "set", path: path,
      reason: "the tags take \(size) bytes, more than \(largestTags)",
      remedy: "Store fewer or shorter tags, or make them part of the value.")
  }
}
