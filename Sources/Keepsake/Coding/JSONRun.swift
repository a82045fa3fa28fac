internal import FoundationEssentials

/// A stretch of JSON that is written from front to back: the toolchain's encoder makes a tree of
/// dictionaries first, which takes four times as long.
///
/// A value encodes itself within one call, so what it writes goes straight to the end of the text.
/// Only nested containers and super encoders may be written to in any order: they are runs of their
/// own, put in where they belong when all is done.
///
/// Each member and element is followed by a comma; the last comma becomes the bracket.
final class JSONRun {
  enum Shape: UInt8 {
    case nothing = 0
    case scalar = 1
    case object = 0x7B
    case array = 0x5B

    /// In ASCII both closing brackets are two places behind their opening ones.
    var end: UInt8 { rawValue + 2 }
  }

  /// The value that is being encoded.
  private struct Level {
    let id: Int
    /// Which it is of the values within one another.
    let depth: Int
    let firstMember: Int
    var shape = Shape.nothing
    var count = 0
    /// Sums of the names, once they are too many to look at them all.
    var names: Set<UInt64> = []
  }

  // Unchecked, as a check at run time takes longer than most of what is done in between. None of
  // these is handed on while code of others runs.
  @exclusivity(unchecked) private var bytes: [UInt8] = []
  @exclusivity(unchecked) private var level: Level
  /// Where the members of the objects that are being written start, the innermost object's last.
  @exclusivity(unchecked) private var members: [Int] = []
  @exclusivity(unchecked) private var inserts: [(offset: Int, run: JSONRun)] = []
  @exclusivity(unchecked) private var lastID = 0
  /// The keys that lead to the value that is being encoded.
  @exclusivity(unchecked) private(set) var path: [any CodingKey]
  /// What went wrong first where nothing could be thrown.
  @exclusivity(unchecked) private var failure: EncodingError?

  /// As far as the toolchain's decoder goes.
  private static let deepest = 512

  private init(_ shape: Shape = .nothing, path: [any CodingKey] = [], depth: Int = 1) {
    self.path = path
    level = Level(id: 0, depth: depth, firstMember: 0)
    bytes.reserveCapacity(120)
    if shape != .nothing { open(shape, at: place) }
  }

  /// The place of the run's outermost value.
  var place: JSONPlace { JSONPlace(run: self, id: 0, depth: path.count) }

  // MARK: The whole

  /// The JSON of a value without white space, its members in the order in which they were encoded.
  static func bytes<T: Encodable>(of value: T) throws -> [UInt8] {
    let run = JSONRun(depth: 0)
    if try !run.append(value) {
      throw EncodingError.invalidValue(
        value, EncodingError.Context(codingPath: [], debugDescription: "nothing was encoded"))
    }
    if run.inserts.isEmpty, run.failure == nil { return run.bytes }
    var output: [UInt8] = []
    try run.write(0..<run.bytes.count, to: &output)
    return output
  }

  /// Appends what was encoded, all that was put in among it.
  private func write(_ range: Range<Int>, to output: inout [UInt8]) throws {
    if let failure { throw failure }
    var start = range.lowerBound
    for (offset, run) in inserts where range.contains(offset) {
      output += bytes[start..<offset]
      start = offset
      if !run.close() { output += "{}".utf8 }
      try run.write(0..<run.bytes.count, to: &output)
    }
    output += bytes[start..<range.upperBound]
  }

  // MARK: Values

  /// Appends a value; false when it encodes nothing.
  private func append<T: Encodable>(_ value: T) throws -> Bool {
    if JSONScalar.append(value, to: &bytes) { return true }
    try refuse(value)
    let outer = level
    // One more may be no container.
    if outer.depth > Self.deepest { throw Self.tooDeep }
    lastID += 1
    level = Level(id: lastID, depth: outer.depth + 1, firstMember: members.count)
    defer {
      members.removeLast(members.count - level.firstMember)
      level = outer
    }
    try value.encode(to: JSONPlace(run: self, id: lastID, depth: path.count))
    return close()
  }

  /// Refuses what JSON has no word for: the toolchain's encoder writes a `NaN` that nothing can
  /// read.
  private func refuse<T>(_ value: T) throws {
    guard same(value, as: Decimal.self) != nil else { return }
    throw EncodingError.invalidValue(
      value, EncodingError.Context(codingPath: path, debugDescription: "not a number"))
  }

  /// Ends the value that is being encoded; false when there is none.
  private func close() -> Bool {
    switch level.shape {
    case .nothing: return false
    case .scalar: return true
    case .object, .array:
      if level.count > 0 { bytes.removeLast() }
      bytes.append(level.shape.end)
      return true
    }
  }

  /// Appends a value within another; when that fails, what was written from `start` on goes.
  private func append<T: Encodable>(
    _ value: T, at key: some CodingKey, from start: Int
  ) throws {
    path.append(key)
    defer { path.removeLast() }
    do {
      if try !append(value) { bytes += "{}".utf8 }
    } catch {
      cut(to: start)
      throw error
    }
  }

  private func cut(to end: Int) {
    bytes.removeLast(bytes.count - end)
    while let last = inserts.last, last.offset >= end { inserts.removeLast() }
  }

  // MARK: Places

  /// Throws when a value may not be written to a place: while another is within it, and afterwards.
  private func check(_ place: JSONPlace, is shape: Shape) throws {
    if level.id != place.id || level.shape != shape { throw misuse(place) }
  }

  private func misuse(_ place: JSONPlace) -> EncodingError {
    EncodingError.invalidValue(
      "",
      EncodingError.Context(
        codingPath: place.codingPath,
        debugDescription: "encoded twice, as two kinds of value, or after its encode(to:)"))
  }

  private static var tooDeep: EncodingError {
    EncodingError.invalidValue(
      "", EncodingError.Context(codingPath: [], debugDescription: "too many values in each other"))
  }

  private func noteMisuse(_ place: JSONPlace) { failure = failure ?? misuse(place) }

  /// Makes the value at a place an object or an array, if it is not yet.
  func open(_ shape: Shape, at place: JSONPlace) {
    if level.id == place.id, level.shape == .nothing {
      if level.depth > Self.deepest { failure = failure ?? Self.tooDeep }
      level.shape = shape
      bytes.append(shape.rawValue)
    } else if level.id != place.id || level.shape != shape {
      noteMisuse(place)
    }
  }

  /// Writes the only value of a place.
  func encode<T: Encodable>(_ value: T, at place: JSONPlace) throws {
    guard level.id == place.id else { throw misuse(place) }
    let start = bytes.count
    if JSONScalar.append(value, to: &bytes) {
      if level.shape != .nothing {
        cut(to: start)
        throw misuse(place)
      }
      level.shape = .scalar
    } else {
      try refuse(value)
      // It encodes itself to this very place, to which more members may be added.
      let before = level
      do {
        try value.encode(to: place)
      } catch {
        // Another value may be tried; members that were there before stay as they are now.
        if before.shape == .nothing {
          cut(to: start)
          members.removeLast(members.count - before.firstMember)
          level = before
        }
        throw error
      }
      if level.shape == .nothing { open(.object, at: place) }
    }
  }

  // MARK: Members and elements

  func encode<T: Encodable>(_ value: T, forKey key: some CodingKey, at place: JSONPlace) throws {
    try check(place, is: .object)
    let name = appendName(key.stringValue)
    if !JSONScalar.append(value, to: &bytes) {
      try append(value, at: key, from: name.lowerBound)
    }
    endMember(name)
  }

  /// Appends a name and its colon.
  private func appendName(_ name: String) -> Range<Int> {
    let start = bytes.count
    JSONText.append(name, to: &bytes)
    bytes.append(UInt8(ascii: ":"))
    return start..<bytes.count
  }

  private func endMember(_ name: Range<Int>) {
    let earlier = indexOfMember(name)
    members.append(name.lowerBound)
    endElement()
    // The last value of a key holds.
    if let earlier { removeMember(earlier) }
  }

  func encodeElement<T: Encodable>(_ value: T, at place: JSONPlace) throws {
    try check(place, is: .array)
    if !JSONScalar.append(value, to: &bytes) {
      try append(value, at: JSONPlace.Key(level.count), from: bytes.count)
    }
    endElement()
  }

  private func endElement() {
    bytes.append(UInt8(ascii: ","))
    level.count += 1
  }

  func count(at place: JSONPlace) -> Int { level.id == place.id ? level.count : 0 }

  private static let seed = UInt64.random(in: 0...UInt64.max)

  /// The member of the innermost object that has the name which stands at `name`.
  private func indexOfMember(_ name: Range<Int>) -> Int? {
    bytes.withUnsafeBytes { bytes in
      if level.count >= 16 {
        if level.names.isEmpty { noteNames(in: bytes) }
        if level.names.insert(Self.sum(bytes, name)).inserted { return nil }
      }
      var index = level.firstMember
      while index < members.count {
        // The colon makes sure that both end there.
        let start = members[index]
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

  private func noteNames(in bytes: UnsafeRawBufferPointer) {
    for start in members[level.firstMember...] {
      var end = start
      _ = JSONText.string(in: bytes, at: &end)
      level.names.insert(Self.sum(bytes, start..<end + 1))
    }
  }

  private static func sum(_ bytes: UnsafeRawBufferPointer, _ name: Range<Int>) -> UInt64 {
    Checksum.sum(UnsafeRawBufferPointer(rebasing: bytes[name]), seed: seed)
  }

  private func removeMember(_ index: Int) {
    let range = members[index]..<members[index + 1]
    bytes.removeSubrange(range)
    inserts.removeAll { range.contains($0.offset) }
    for later in inserts.indices where inserts[later].offset >= range.upperBound {
      inserts[later].offset -= range.count
    }
    members.remove(at: index)
    for later in members.indices[index...] { members[later] -= range.count }
    level.count -= 1
  }

  // MARK: Runs within runs

  private func mayInsert(_ shape: Shape, at place: JSONPlace) -> Bool {
    if level.id != place.id || level.shape != shape {
      noteMisuse(place)
    } else if level.depth > Self.deepest {
      failure = failure ?? Self.tooDeep
    } else {
      return true
    }
    return false
  }

  /// A run for the value of a key; the one that is there already when the same is asked for again.
  func run(_ shape: Shape, forKey key: some CodingKey, at place: JSONPlace) -> JSONRun {
    let new = JSONRun(shape, path: place.codingPath + [key], depth: level.depth + 1)
    guard mayInsert(.object, at: place) else { return new }
    let name = appendName(key.stringValue)
    if shape != .nothing, let member = indexOfMember(name) {
      let start = members[member] + name.count
      if let run = inserts.first(where: { $0.offset == start })?.run, run.level.shape == shape {
        cut(to: name.lowerBound)
        return run
      }
      let end = member + 1 < members.count ? members[member + 1] : name.lowerBound
      if !new.adopt(self, start..<end - 1) { noteMisuse(new.place) }
    }
    inserts.append((name.upperBound, new))
    endMember(name)
    return new
  }

  /// A run for the next element of an array.
  func runForElement(_ shape: Shape, at place: JSONPlace) -> JSONRun {
    let key = JSONPlace.Key(count(at: place))
    let new = JSONRun(shape, path: place.codingPath + [key], depth: level.depth + 1)
    guard mayInsert(.array, at: place) else { return new }
    inserts.append((bytes.count, new))
    endElement()
    return new
  }

  /// Starts with what an object or array has that was encoded as a value; false if it is neither.
  private func adopt(_ run: JSONRun, _ range: Range<Int>) -> Bool {
    var value: [UInt8] = []
    guard (try? run.write(range, to: &value)) != nil else { return false }
    if level.shape == .object, let parts = JSONSlices.members(of: value) {
      for (text, content) in parts {
        let name = appendName(text)
        bytes += content
        endMember(name)
      }
    } else if level.shape == .array, let parts = JSONSlices.elements(of: value) {
      for part in parts {
        bytes += part
        endElement()
      }
    } else {
      return false
    }
    return true
  }
}
