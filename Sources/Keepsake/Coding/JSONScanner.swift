/// Reads JSON strictly as RFC 8259 defines it, without converting it to values, so that no digit of
/// a number is lost.
///
/// It rejects what the RFC lets an implementation reject: documents that are nested more than
/// ``maximumDepth`` levels deep and numbers beyond the range of `Double`, as Foundation's decoder
/// does.
struct JSONScanner {
  /// A valid JSON value without white space between its tokens.
  struct Value {
    fileprivate(set) var bytes: [UInt8] = []
    /// Whether an object in it has two members whose names are equal as Swift strings.
    ///
    /// That is valid JSON, but decoders pick one of the two.
    fileprivate(set) var hasDuplicateNames = false
  }

  /// How deeply containers can be nested. Foundation's decoder has the same limit.
  static let maximumDepth = 512

  static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

  static func isWhitespace(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09
  }

  /// The value of a document; nil if it is not JSON.
  static func value(of document: [UInt8], maximumDepth: Int = maximumDepth) -> Value? {
    scan(document, maximumDepth) { scanner in scanner.value() }
  }

  /// The members of a document that is an object, in their order and including any duplicates; nil
  /// if it is not JSON or not an object.
  static func members(of document: [UInt8]) -> [(name: String, value: Value)]? {
    var members: [(name: String, value: Value)] = []
    for member in Self.members(ofDamaged: document) {
      guard let name = member.name, case .success(let value) = member.value else { return nil }
      members.append((name, value))
    }
    return members
  }

  /// The elements of a document that is an array; nil if it is not JSON or not an array.
  static func elements(of document: [UInt8]) -> [Value]? {
    scan(document) { scanner in scanner.elements() }
  }

  /// Whether the bytes are a JSON number and nothing else.
  static func isNumber(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var scanner = JSONScanner(bytes: bytes, maximumDepth: 0)
    return scanner.skipNumber() && scanner.position == bytes.count
  }

  private static func scan<R>(
    _ document: [UInt8], _ maximumDepth: Int = maximumDepth, _ body: (inout JSONScanner) -> R?
  ) -> R? {
    document.withUnsafeBytes { bytes in
      // Checks all strings at once; outside strings only ASCII is accepted anyway.
      guard String(utf8: bytes) != nil else { return nil }
      var scanner = JSONScanner(bytes: bytes, maximumDepth: maximumDepth)
      // RFC 8259, section 8.1, lets readers ignore the mark that some editors add.
      if bytes.starts(with: byteOrderMark) { scanner.position = byteOrderMark.count }
      guard let result = body(&scanner), scanner.nextToken() == nil else { return nil }
      return result
    }
  }

  let bytes: UnsafeRawBufferPointer
  private let maximumDepth: Int
  /// The next byte to read. After a failure, the first byte of the token that is wrong.
  var position = 0
  /// The container that is nested too deeply; nil if there is none so far.
  private(set) var tooDeepPosition: Int?

  init(bytes: UnsafeRawBufferPointer, maximumDepth: Int) {
    self.bytes = bytes
    self.maximumDepth = maximumDepth
  }

  // MARK: Documents

  private mutating func elements() -> [Value]? {
    guard skip(.openingBracket) else { return nil }
    var elements: [Value] = []
    if skip(.closingBracket) { return elements }
    repeat {
      guard let value = value(atDepth: 1) else { return nil }
      elements.append(value)
    } while skip(.comma)
    return skip(.closingBracket) ? elements : nil
  }

  // MARK: Values

  private struct Container {
    let closing: UInt8
    /// The names of an object's members so far; nil for an array.
    var names: Set<String>?
  }

  /// The value at the position.
  ///
  /// Keeps the open containers in an array, not on the stack: threads may have little of it.
  mutating func value(atDepth depth: Int = 0) -> Value? {
    var value = Value()
    var containers: [Container] = []
    repeat {
      guard let token = nextToken() else { return nil }
      let start = position
      switch token {
      case .openingBrace, .openingBracket:
        let isObject = token == .openingBrace
        let closing: UInt8 = isObject ? .closingBrace : .closingBracket
        guard depth + containers.count < maximumDepth else {
          tooDeepPosition = position
          return nil
        }
        value.bytes.append(token)
        position += 1
        if skip(closing) {
          value.bytes.append(closing)
        } else {
          containers.append(Container(closing: closing, names: isObject ? [] : nil))
          guard beginMember(&containers, &value) else { return nil }
          continue
        }
      case .quote:
        guard string() != nil else { return nil }
        value.bytes += bytes[start..<position]
      case .minus, 0x30...0x39:
        guard skipNumber() else {
          position = start
          return nil
        }
        value.bytes += bytes[start..<position]
      default:
        guard skipLiteral() else { return nil }
        value.bytes += bytes[start..<position]
      }
      // After a value: what comes next in its container, or the ends of as many as end here.
      while let closing = containers.last?.closing {
        if skip(.comma) {
          value.bytes.append(.comma)
          guard beginMember(&containers, &value) else { return nil }
          break
        }
        guard skip(closing) else { return nil }
        value.bytes.append(closing)
        containers.removeLast()
      }
    } while !containers.isEmpty
    return value
  }

  /// Scans the name of the innermost container's next member and its colon; does nothing in an
  /// array. Returns false if there is no name.
  private mutating func beginMember(_ containers: inout [Container], _ value: inout Value) -> Bool {
    guard containers[containers.count - 1].names != nil else { return true }
    guard nextToken() == .quote else { return false }
    let start = position
    guard let name = string() else { return false }
    value.bytes += bytes[start..<position]
    guard skip(.colon) else { return false }
    value.bytes.append(.colon)
    let isNew = containers[containers.count - 1].names?.insert(name).inserted
    if isNew == false { value.hasDuplicateNames = true }
    return true
  }

  // MARK: Tokens

  /// The first byte after white space, to which the position moves; nil at the end.
  mutating func nextToken() -> UInt8? {
    while position < bytes.count, Self.isWhitespace(bytes[position]) { position += 1 }
    return position < bytes.count ? bytes[position] : nil
  }

  /// Moves past `token` if that is what comes next.
  mutating func skip(_ token: UInt8) -> Bool {
    guard nextToken() == token else { return false }
    position += 1
    return true
  }

  /// The name of a member. Skips the colon after it, too.
  mutating func name() -> String? {
    guard nextToken() == .quote, let name = string(), skip(.colon) else { return nil }
    return name
  }

  /// The string at the position.
  private mutating func string() -> String? {
    let start = position
    guard let text = JSONString.parse(bytes, at: &position) else { return nil }
    // Rebased, because a slice checks its bounds at each byte where nothing is optimized.
    let literal = UnsafeRawBufferPointer(rebasing: bytes[start..<position])
    guard literal.allSatisfy({ $0 >= 0x20 }) else {
      position = start
      return nil
    }
    return text
  }

  private mutating func skipLiteral() -> Bool {
    for literal in ["true", "false", "null"] as [StaticString] {
      let literal = UnsafeRawBufferPointer(
        start: literal.utf8Start, count: literal.utf8CodeUnitCount)
      if bytes[position...].starts(with: literal) {
        position += literal.count
        return true
      }
    }
    return false
  }

  mutating func skipNumber() -> Bool {
    let start = position
    _ = skipOne { $0 == .minus }
    if !skipOne({ $0 == 0x30 }), !skipDigits() { return false }
    if skipOne({ $0 == UInt8(ascii: ".") }), !skipDigits() { return false }
    if skipOne({ $0 | 0x20 == UInt8(ascii: "e") }) {
      _ = skipOne { $0 == .minus || $0 == UInt8(ascii: "+") }
      guard skipDigits() else { return false }
    } else if position - start < 300 {
      // Below 1e300.
      return true
    }
    return Double(String(decoding: bytes[start..<position], as: UTF8.self))?.isFinite ?? false
  }

  /// Moves past one byte if it satisfies the condition.
  private mutating func skipOne(_ isExpected: (UInt8) -> Bool) -> Bool {
    guard position < bytes.count, isExpected(bytes[position]) else { return false }
    position += 1
    return true
  }

  /// Moves past one digit or more; returns false if there is none.
  private mutating func skipDigits() -> Bool {
    let start = position
    while skipOne({ (0x30...0x39).contains($0) }) {}
    return position > start
  }
}

extension UInt8 {
  static let openingBrace = UInt8(ascii: "{")
  static let closingBrace = UInt8(ascii: "}")
  static let openingBracket = UInt8(ascii: "[")
  static let closingBracket = UInt8(ascii: "]")
  static let comma = UInt8(ascii: ",")
  static let colon = UInt8(ascii: ":")
  static let quote = UInt8(ascii: "\"")
  static let minus = UInt8(ascii: "-")
}
