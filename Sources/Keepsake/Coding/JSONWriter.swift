internal import FoundationEssentials

/// Writes the JSON of an `Encodable` value from front to back, in about a quarter of the time of
/// Foundation's `JSONEncoder`, which builds a tree of dictionaries first.
///
/// A value usually encodes itself within one call, so its bytes are appended straight to the
/// output. Only nested containers and super encoders can be filled in any order: each gets a writer
/// of its own, whose bytes are inserted once the whole value is complete.
///
/// A comma is written after every member and element; the closing bracket replaces the last one.
final class JSONWriter {
  /// What a value has encoded itself as.
  enum Kind: UInt8 {
    case undecided = 0
    case primitive = 1
    case object = 0x7B
    case array = 0x5B

    /// The raw value is the opening bracket; in ASCII the closing one follows two positions later.
    var closingBracket: UInt8 { rawValue + 2 }
  }

  /// A value that is being encoded.
  private struct OpenValue {
    let id: Int
    /// How many values contain it, itself included.
    let depth: Int
    /// The index of its first member in ``memberStarts``.
    let firstMember: Int
    var kind = Kind.undecided
    var count = 0
    /// Checksums of its member names, once there are too many to compare one by one.
    var nameChecksums: Set<UInt64> = []
  }

  // Exclusivity is unchecked because the run-time check takes longer than most of the work between
  // two checks. No access to these properties is in progress while `encode(to:)` of a value runs.
  @exclusivity(unchecked) private var bytes: [UInt8] = []
  /// The innermost value that is being encoded.
  @exclusivity(unchecked) private var value: OpenValue
  /// The offsets of the members of all open objects; the innermost object comes last.
  @exclusivity(unchecked) private var memberStarts: [Int] = []
  /// The nested writers, and the offsets at which their bytes belong.
  @exclusivity(unchecked) private var insertions: [(offset: Int, writer: JSONWriter)] = []
  @exclusivity(unchecked) private var lastID = 0
  /// The keys that lead to the innermost value.
  @exclusivity(unchecked) private(set) var path: [any CodingKey]
  /// The first error in a call that cannot throw.
  @exclusivity(unchecked) private var deferredError: EncodingError?

  private init(_ kind: Kind = .undecided, path: [any CodingKey] = [], depth: Int = 1) {
    self.path = path
    value = OpenValue(id: 0, depth: depth, firstMember: 0)
    bytes.reserveCapacity(120)
    if kind != .undecided { open(kind, for: encoder) }
  }

  /// The encoder of this writer's outermost value.
  var encoder: JSONValueEncoder {
    JSONValueEncoder(writer: self, valueID: 0, pathLength: path.count)
  }

  /// How deeply containers can be nested: two levels less than a reader accepts, because an export
  /// puts a value into an object, and ``TaggedJSON`` may do so, too.
  private static let maximumDepth = JSONScanner.maximumDepth - 2

  // MARK: The outermost value

  /// The JSON of a value without white space; members keep the order in which they were encoded.
  static func bytes<T: Encodable>(of value: T) throws -> [UInt8] {
    let writer = JSONWriter(depth: 0)
    if try !writer.append(value) {
      throw EncodingError.invalidValue(
        value, EncodingError.Context(codingPath: [], debugDescription: "no value was encoded"))
    }
    if writer.insertions.isEmpty, writer.deferredError == nil { return writer.bytes }
    var output: [UInt8] = []
    try writer.copy(0..<writer.bytes.count, to: &output)
    return output
  }

  /// Appends a range of this writer's bytes with everything that nested writers insert there.
  private func copy(_ range: Range<Int>, to output: inout [UInt8]) throws {
    if let deferredError { throw deferredError }
    var start = range.lowerBound
    for (offset, writer) in insertions where range.contains(offset) {
      output += bytes[start..<offset]
      start = offset
      if !writer.close() { output += "{}".utf8 }
      try writer.copy(0..<writer.bytes.count, to: &output)
    }
    output += bytes[start..<range.upperBound]
  }

  // MARK: Values

  /// Appends a value; returns false if it encodes nothing.
  private func append<T: Encodable>(_ newValue: T) throws -> Bool {
    if Self.appendPrimitive(newValue, to: &bytes) { return true }
    try rejectNotANumber(newValue)
    let outerValue = value
    // The limit counts containers, and this value may turn out to be none: `open` checks that.
    if outerValue.depth > Self.maximumDepth { throw Self.tooDeep }
    lastID += 1
    value = OpenValue(id: lastID, depth: outerValue.depth + 1, firstMember: memberStarts.count)
    defer {
      memberStarts.removeLast(memberStarts.count - value.firstMember)
      value = outerValue
    }
    try newValue.encode(
      to: JSONValueEncoder(writer: self, valueID: lastID, pathLength: path.count))
    return close()
  }

  /// Rejects `Decimal.nan`, for which Foundation's encoder writes JSON that cannot be read.
  private func rejectNotANumber<T>(_ value: T) throws {
    guard exactCast(value, to: Decimal.self) != nil else { return }
    throw EncodingError.invalidValue(
      value, EncodingError.Context(codingPath: path, debugDescription: "not a number"))
  }

  /// Ends the innermost value; returns false if it has encoded nothing.
  private func close() -> Bool {
    switch value.kind {
    case .undecided: return false
    case .primitive: return true
    case .object, .array:
      if value.count > 0 { bytes.removeLast() }
      bytes.append(value.kind.closingBracket)
      return true
    }
  }

  /// Appends a member or element; if that fails, removes all bytes from `start` on.
  private func append<T: Encodable>(
    _ newValue: T, forKey key: some CodingKey, restoringTo start: Int
  ) throws {
    path.append(key)
    defer { path.removeLast() }
    do {
      if try !append(newValue) { bytes += "{}".utf8 }
    } catch {
      truncate(to: start)
      throw error
    }
  }

  private func truncate(to end: Int) {
    bytes.removeLast(bytes.count - end)
    while let last = insertions.last, last.offset >= end { insertions.removeLast() }
  }

  // MARK: Checks

  /// Throws unless the encoder's value is the innermost one and of this kind.
  private func require(_ kind: Kind, for encoder: JSONValueEncoder) throws {
    if value.id != encoder.valueID || value.kind != kind { throw misuse(of: encoder) }
  }

  @inline(never)
  private func misuse(of encoder: JSONValueEncoder) -> EncodingError {
    EncodingError.invalidValue(
      "",
      EncodingError.Context(
        codingPath: encoder.codingPath,
        debugDescription: "encoded twice, as two kinds of value, or after its encode(to:)"))
  }

  private static var tooDeep: EncodingError {
    EncodingError.invalidValue(
      "",
      EncodingError.Context(
        codingPath: [],
        debugDescription: "nested more than \(Self.maximumDepth) levels deep"))
  }

  /// Keeps an error that cannot be thrown yet.
  private func deferError(_ error: EncodingError) { deferredError = deferredError ?? error }

  // MARK: Calls of the encoder and its containers

  /// Makes the encoder's value an object or an array, if it is not one yet.
  func open(_ kind: Kind, for encoder: JSONValueEncoder) {
    if value.id == encoder.valueID, value.kind == .undecided {
      if value.depth > Self.maximumDepth { deferError(Self.tooDeep) }
      value.kind = kind
      bytes.append(kind.rawValue)
    } else if value.id != encoder.valueID || value.kind != kind {
      deferError(misuse(of: encoder))
    }
  }

  /// Encodes the content of a single-value container.
  func encode<T: Encodable>(_ newValue: T, for encoder: JSONValueEncoder) throws {
    guard value.id == encoder.valueID else { throw misuse(of: encoder) }
    let start = bytes.count
    if Self.appendPrimitive(newValue, to: &bytes) {
      if value.kind != .undecided {
        truncate(to: start)
        throw misuse(of: encoder)
      }
      value.kind = .primitive
    } else {
      try rejectNotANumber(newValue)
      // It shares the encoder, so it may also add members to an object that was opened before.
      let before = value
      do {
        try newValue.encode(to: encoder)
      } catch {
        // The caller may try another value. Members added to an object from before stay.
        if before.kind == .undecided {
          truncate(to: start)
          memberStarts.removeLast(memberStarts.count - before.firstMember)
          value = before
        }
        throw error
      }
      if value.kind == .undecided { open(.object, for: encoder) }
    }
  }

  func encode<T: Encodable>(
    _ newValue: T, forKey key: some CodingKey, for encoder: JSONValueEncoder
  ) throws {
    try require(.object, for: encoder)
    let name = appendName(key.stringValue)
    if !Self.appendPrimitive(newValue, to: &bytes) {
      try append(newValue, forKey: key, restoringTo: name.lowerBound)
    }
    endMember(name, replacing: indexOfMember(name))
  }

  func encodeElement<T: Encodable>(_ newValue: T, for encoder: JSONValueEncoder) throws {
    try require(.array, for: encoder)
    if !Self.appendPrimitive(newValue, to: &bytes) {
      try append(
        newValue, forKey: JSONValueEncoder.Key(value.count), restoringTo: bytes.count)
    }
    endElement()
  }

  func count(for encoder: JSONValueEncoder) -> Int {
    value.id == encoder.valueID ? value.count : 0
  }

  // MARK: Members and elements

  /// Appends a name and its colon, and returns their range.
  private func appendName(_ name: String) -> Range<Int> {
    let start = bytes.count
    JSONString.append(name, to: &bytes)
    bytes.append(UInt8(ascii: ":"))
    return start..<bytes.count
  }

  /// - Parameter duplicate: The ``indexOfMember(_:)`` of the name. It takes long for a name that it
  ///   was asked for before, so it is asked once.
  private func endMember(_ name: Range<Int>, replacing duplicate: Int?) {
    memberStarts.append(name.lowerBound)
    endElement()
    // As in Foundation's encoder, the last value of a key counts.
    if let duplicate { removeMember(at: duplicate) }
  }

  private func endElement() {
    bytes.append(UInt8(ascii: ","))
    value.count += 1
  }

  private static let seed = UInt64.random(in: 0...UInt64.max)

  /// The index of the innermost object's member with the name whose bytes are at `name`.
  private func indexOfMember(_ name: Range<Int>) -> Int? {
    bytes.withUnsafeBytes { bytes in
      if value.count >= 16 {
        if value.nameChecksums.isEmpty { addNameChecksums(in: bytes) }
        if value.nameChecksums.insert(Self.checksum(bytes, name)).inserted { return nil }
      }
      var index = value.firstMember
      while index < memberStarts.count {
        // The colon is compared too, so equal bytes are equal names.
        let start = memberStarts[index]
        var length = 0
        while length < name.count, bytes[start + length] == bytes[name.lowerBound + length] {
          length += 1
        }
        if length == name.count { return index }
        index += 1
      }
      return nil
    }
  }

  private func addNameChecksums(in bytes: UnsafeRawBufferPointer) {
    for start in memberStarts[value.firstMember...] {
      var end = start
      _ = JSONString.parse(bytes, at: &end)
      value.nameChecksums.insert(Self.checksum(bytes, start..<end + 1))
    }
  }

  private static func checksum(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) -> UInt64 {
    Checksum.sum(UnsafeRawBufferPointer(rebasing: bytes[range]), seed: seed)
  }

  private func removeMember(at index: Int) {
    let range = memberStarts[index]..<memberStarts[index + 1]
    bytes.removeSubrange(range)
    insertions.removeAll { range.contains($0.offset) }
    for later in insertions.indices where insertions[later].offset >= range.upperBound {
      insertions[later].offset -= range.count
    }
    memberStarts.remove(at: index)
    for later in memberStarts.indices[index...] { memberStarts[later] -= range.count }
    value.count -= 1
  }

  // MARK: Nested writers

  /// Whether the encoder's value is of this kind and can contain one more; otherwise the error is
  /// kept.
  private func canNest(in kind: Kind, for encoder: JSONValueEncoder) -> Bool {
    if value.id != encoder.valueID || value.kind != kind {
      deferError(misuse(of: encoder))
    } else if value.depth > Self.maximumDepth {
      deferError(Self.tooDeep)
    } else {
      return true
    }
    return false
  }

  /// A writer for the value of a key; for a container that the key already has, one that adds to
  /// it.
  func nestedWriter(
    _ kind: Kind, forKey key: some CodingKey, for encoder: JSONValueEncoder
  ) -> JSONWriter {
    let nested = JSONWriter(kind, path: encoder.codingPath + [key], depth: value.depth + 1)
    guard canNest(in: .object, for: encoder) else { return nested }
    let name = appendName(key.stringValue)
    let duplicate = indexOfMember(name)
    if kind != .undecided, let member = duplicate {
      let start = memberStarts[member] + name.count
      if let existing = insertions.first(where: { $0.offset == start })?.writer,
        existing.value.kind == kind
      {
        truncate(to: name.lowerBound)
        return existing
      }
      let end = member + 1 < memberStarts.count ? memberStarts[member + 1] : name.lowerBound
      if !nested.addContents(of: self, start..<end - 1) {
        deferError(misuse(of: nested.encoder))
      }
    }
    insertions.append((name.upperBound, nested))
    endMember(name, replacing: duplicate)
    return nested
  }

  /// A writer for the next element of an array.
  func nestedWriterForElement(_ kind: Kind, for encoder: JSONValueEncoder) -> JSONWriter {
    let key = JSONValueEncoder.Key(count(for: encoder))
    let nested = JSONWriter(kind, path: encoder.codingPath + [key], depth: value.depth + 1)
    guard canNest(in: .array, for: encoder) else { return nested }
    insertions.append((bytes.count, nested))
    endElement()
    return nested
  }

  /// Adds the contents of an object or array that another writer has at `range`; returns false if
  /// that is not a container of this writer's kind.
  private func addContents(of other: JSONWriter, _ range: Range<Int>) -> Bool {
    var json: [UInt8] = []
    guard (try? other.copy(range, to: &json)) != nil else { return false }
    if value.kind == .object, let members = JSONScanner.members(of: json) {
      for (memberName, content) in members {
        let name = appendName(memberName)
        bytes += content.bytes
        endMember(name, replacing: indexOfMember(name))
      }
    } else if value.kind == .array, let elements = JSONScanner.elements(of: json) {
      for element in elements {
        bytes += element.bytes
        endElement()
      }
    } else {
      return false
    }
    return true
  }
}
