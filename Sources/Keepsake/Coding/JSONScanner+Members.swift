extension JSONScanner {
  /// A member of an object, or a part of the document that is not JSON.
  struct Member {
    /// nil if that part has no name that can be read.
    let name: String?
    /// The first byte of the value, or of what is wrong.
    let position: Int
    let value: Result<Value, Problem>
  }

  /// Says what is wrong, as a short clause.
  struct Problem: Error {
    let reason: String
  }

  /// The members of a document that should be an object, one by one: what is not JSON costs only
  /// the member that it is in.
  static func members(ofDamaged document: [UInt8]) -> [Member] {
    document.withUnsafeBytes { bytes in
      var scanner = JSONScanner(bytes: bytes, maximumDepth: maximumDepth)
      var members: [Member] = []
      scanner.scanObject(&members)
      return members
    }
  }

  private mutating func scanObject(_ members: inout [Member]) {
    skipComments(&members)
    guard skip(.openingBrace) else { return note(nil, in: &members) }
    var isAfterComma = false
    while true {
      skipComments(&members)
      guard let token = nextToken() else { return note(nil, in: &members) }
      if token == .closingBrace {
        if isAfterComma { note(nil, in: &members, "a value is missing after the comma") }
        position += 1
        skipComments(&members)
        if nextToken() != nil { note(nil, in: &members, "the document goes on after its end") }
        return
      }
      scanMember(&members)
      isAfterComma = skip(.comma)
    }
  }

  private mutating func scanMember(_ members: inout [Member]) {
    let start = position
    guard let name = name() else {
      note(nil, in: &members)
      return skipMember(from: start)
    }
    _ = nextToken()
    let valueStart = position
    guard let value = value(atDepth: 1) else {
      note(name, in: &members)
      return skipMember(from: valueStart)
    }
    let text = String(
      decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<position]), as: UTF8.self)
    guard text.utf8.elementsEqual(bytes[start..<position]) else {
      let validCount = text.unicodeScalars.prefix { $0 != "\u{FFFD}" }.reduce(0) {
        $0 + UTF8.width($1)
      }
      let problem = Problem(reason: "bytes that are not UTF-8")
      members.append(Member(name: name, position: start + validCount, value: .failure(problem)))
      return
    }
    let member = Member(name: name, position: valueStart, value: .success(value))
    // Before the comments that follow it, so that the positions of members increase.
    let index = members.count
    skipComments(&members)
    switch nextToken() {
    case .comma, .closingBrace, nil: members.insert(member, at: index)
    case .quote:
      members.insert(member, at: index)
      note(nil, in: &members, "a comma is missing")
    default:
      note(name, in: &members)
      skipMember(from: valueStart)
    }
  }

  // MARK: Going on after what is wrong

  /// Moves to the comma or the brace that ends the member whose value or name begins at `start`.
  private mutating func skipMember(from start: Int) {
    position = start
    var depth = 0
    while position < bytes.count {
      switch bytes[position] {
      case .comma where depth == 0, .closingBrace where depth == 0: return
      case .openingBrace, .openingBracket: depth += 1
      case .closingBrace, .closingBracket: depth = max(0, depth - 1)
      case .quote:
        skipText()
        // A text without its closing quote has taken the comma with it.
        if depth == 0, position < bytes.count, bytes[position] == .newline { return }
      case .slash where skipComment(): continue
      default: break
      }
      position += 1
    }
    position = bytes.count
  }

  /// Moves to the quote that ends a text, or to the end of its line.
  private mutating func skipText() {
    position += 1
    while position < bytes.count, bytes[position] != .quote, bytes[position] != .newline {
      position += bytes[position] == .backslash ? 2 : 1
    }
  }

  private mutating func skipComments(_ members: inout [Member]) {
    while nextToken() == .slash {
      let start = position
      guard skipComment() else { return }
      let end = position
      position = start
      note(nil, in: &members)
      position = end
    }
  }

  /// Moves past a comment as JavaScript has them.
  private mutating func skipComment() -> Bool {
    for (start, end) in [("//", "\n"), ("/*", "*/")]
    where bytes[position...].starts(with: start.utf8) {
      position += 2
      while position < bytes.count, !bytes[position...].starts(with: end.utf8) { position += 1 }
      position = min(bytes.count, position + end.utf8.count)
      return true
    }
    return false
  }

  // MARK: Saying what is wrong

  /// Notes what is wrong: `reason`, or what is wrong with the token at the position.
  private func note(_ name: String?, in members: inout [Member], _ reason: String? = nil) {
    let problem = reason.map { (position: position, reason: $0) } ?? self.problem()
    members.append(
      Member(
        name: name, position: problem.position,
        value: .failure(Problem(reason: problem.reason))))
  }

  private func problem() -> (position: Int, reason: String) {
    guard position < bytes.count else { return (position, "the document ends too early") }
    if position == tooDeepPosition {
      return (position, "nested more than \(Self.maximumDepth) levels deep")
    }
    let rest = bytes[position...]
    switch bytes[position] {
    case .quote: if let problem = problem(ofTextAt: position) { return problem }
    case .slash, UInt8(ascii: "#"): return (position, "JSON has no comments")
    case UInt8(ascii: "'"): return (position, "JSON has double quotes only")
    case .closingBrace, .closingBracket: return (position, "a value is missing")
    case .minus, 0x30...0x39:
      if rest.starts(with: "-Infinity".utf8) { return (position, "JSON has no Infinity") }
      var copy = self
      if !copy.skipNumber() { return (position, "no number, or one that no Double can hold") }
    default:
      for word in ["NaN", "Infinity"] where rest.starts(with: word.utf8) {
        return (position, "JSON has no \(word)")
      }
    }
    return (position, "this is not JSON")
  }

  private func problem(ofTextAt start: Int) -> (position: Int, reason: String)? {
    var position = start + 1
    while position < bytes.count {
      switch bytes[position] {
      case .quote: return nil
      case .newline: return (start, "the text does not end in its line")
      case ..<0x20: return (position, "a control character must be escaped")
      case .backslash:
        let escape = position
        if let reason = problem(ofEscapeAt: &position) { return (escape, reason) }
      default: position += 1
      }
    }
    return (start, "the text does not end")
  }

  /// What is wrong with an escape; the position moves past it if nothing is.
  private func problem(ofEscapeAt position: inout Int) -> String? {
    position += 2
    guard position <= bytes.count else { return nil }
    let (unknown, half) = ("an escape that JSON does not have", "half of a surrogate pair")
    guard bytes[position - 1] == UInt8(ascii: "u") else {
      return #""\/bfnrt"#.utf8.contains(bytes[position - 1]) ? nil : unknown
    }
    guard let unit = JSONString.parseCodeUnit(bytes, at: &position) else { return unknown }
    if unit & 0xF800 != 0xD800 { return nil }
    guard unit & 0xFC00 == 0xD800, bytes[position...].starts(with: #"\u"#.utf8) else { return half }
    position += 2
    let low = JSONString.parseCodeUnit(bytes, at: &position)
    return low.map { $0 & 0xFC00 == 0xDC00 } == true ? nil : half
  }
}

extension UInt8 {
  fileprivate static let slash = UInt8(ascii: "/")
  fileprivate static let backslash = UInt8(ascii: "\\")
  fileprivate static let newline = UInt8(ascii: "\n")
}
