/// Turns the bytes that a server sends into replies, as they arrive (RESP2, the Redis serialization
/// protocol specification).
///
/// It is written here because a hostile server must not be able to end or block the program.
/// libhiredis 0.14, which Debian 12 has, allocates 16 GB for the 13 bytes of `*2147483647` and
/// CRLF, before an element has arrived. Here a length is only a number: memory grows with the bytes
/// that arrive, within a limit that the caller chooses. Incomplete arrays are on a
/// stack of bounded depth, so nothing is recursive.
struct ReplyParser: Sendable {
  enum Failure: Error, Equatable {
    /// The bytes are not RESP2.
    case malformed
    /// The reply is, or says that it will be, larger than the limit.
    case tooLarge
  }

  /// How many arrays may be inside each other.
  static let maximumDepth = 16
  /// The longest simple string or error that is accepted.
  static let maximumLineLength = 64 << 10
  /// What a reply takes besides its bytes.
  static let overhead = MemoryLayout<Reply>.stride

  /// How many bytes of memory a whole reply may take.
  let limit: Int

  private enum Phase {
    case line
    /// After the CR at the end of a line.
    case lineFeed
    /// In a bulk string of this length, or in the CRLF that ends it.
    case bulk(length: Int)
    case failed(Failure)
  }

  private struct PartialArray {
    var remaining: Int
    var elements: [Reply]
  }

  private var phase = Phase.line
  /// The type and the text of the line that is being read.
  private var line: [UInt8] = []
  private var bulk: [UInt8] = []
  /// From the outermost to the innermost.
  private var arrays: [PartialArray] = []
  /// What the reply takes so far, with the bulk string that was announced.
  private var cost = 0

  init(limit: Int) { self.limit = limit }

  /// Consumes bytes up to the end of the next reply, or all of them if it is not complete.
  ///
  /// - Throws: A failure, now and from each later call: the place where the next reply begins is
  ///   not known any more.
  mutating func next(_ input: inout UnsafeRawBufferPointer) throws(Failure) -> Reply? {
    do throws(Failure) {
      while !input.isEmpty {
        if let value = try step(&input), let reply = add(value) { return reply }
      }
      return nil
    } catch {
      phase = .failed(error)
      (line, bulk, arrays) = ([], [], [])
      throw error
    }
  }

  /// Consumes at least one byte. Returns a value that is complete, which may be an element.
  private mutating func step(_ input: inout UnsafeRawBufferPointer) throws(Failure) -> Reply? {
    switch phase {
    case .line:
      let end = input.firstIndex { $0 == Self.carriageReturn || $0 == Self.newline }
      try appendToLine(UnsafeRawBufferPointer(rebasing: input[..<(end ?? input.endIndex)]))
      guard let end else {
        input = UnsafeRawBufferPointer(rebasing: input[input.endIndex...])
        return nil
      }
      guard input[end] == Self.carriageReturn else { throw .malformed }
      input = UnsafeRawBufferPointer(rebasing: input[(end + 1)...])
      phase = .lineFeed
      return nil
    case .lineFeed:
      try expect(Self.newline, &input)
      phase = .line
      defer { line.removeAll(keepingCapacity: true) }
      return try valueOfLine()
    case .bulk(let length):
      let end = length + 2
      let count = min(end - bulk.count, input.count)
      appendToBulk(UnsafeRawBufferPointer(rebasing: input[..<count]), end)
      input = UnsafeRawBufferPointer(rebasing: input[count...])
      if bulk.count < end { return nil }
      guard bulk[length...] == [Self.carriageReturn, Self.newline] else { throw .malformed }
      phase = .line
      bulk.removeLast(2)
      defer { bulk = [] }
      return .bytes(bulk)

    case .failed(let failure): throw failure
    }
  }

  private static let carriageReturn = UInt8(ascii: "\r")
  private static let newline = UInt8(ascii: "\n")

  private func expect(_ byte: UInt8, _ input: inout UnsafeRawBufferPointer) throws(Failure) {
    guard input.first == byte else { throw .malformed }
    input = UnsafeRawBufferPointer(rebasing: input.dropFirst())
  }

  // MARK: Lines

  private mutating func appendToLine(_ part: UnsafeRawBufferPointer) throws(Failure) {
    line.append(contentsOf: part)
    // A length or a number is never longer than this.
    let maximum: Int
    switch line.first {
    case UInt8(ascii: "+"), UInt8(ascii: "-"): maximum = min(Self.maximumLineLength, limit)
    case UInt8(ascii: ":"), UInt8(ascii: "$"), UInt8(ascii: "*"): maximum = 21
    case nil: return
    default: throw .malformed
    }
    guard line.count <= maximum else { throw maximum == 21 ? .malformed : .tooLarge }
  }

  /// The value that a line is; nil if it announces one.
  private mutating func valueOfLine() throws(Failure) -> Reply? {
    let text = line.dropFirst()
    switch line.first {
    case UInt8(ascii: "+"):
      try charge(text.count)
      return .status(Array(text))
    case UInt8(ascii: "-"):
      try charge(text.count)
      return .error(ErrorReply(text))
    case UInt8(ascii: ":"):
      try charge(0)
      guard let number = Self.integer(text) else { throw .malformed }
      return .integer(number)
    case UInt8(ascii: "$"):
      guard let length = try lengthOfLine() else { return .null }
      try charge(length)
      phase = .bulk(length: length)
      return nil
    case UInt8(ascii: "*"):
      guard let count = try lengthOfLine() else { return .null }
      try charge(0)
      if count == 0 { return .array([]) }
      guard arrays.count < Self.maximumDepth else { throw .tooLarge }
      guard count <= (limit - cost) / Self.overhead else { throw .tooLarge }
      arrays.append(PartialArray(remaining: count, elements: []))
      arrays[arrays.count - 1].elements.reserveCapacity(min(count, 16))
      return nil
    default: throw .malformed
    }
  }

  /// The length that a line announces; nil for -1, which means null.
  private mutating func lengthOfLine() throws(Failure) -> Int? {
    guard let number = Self.integer(line.dropFirst()), number >= -1 else { throw .malformed }
    if number == -1 {
      try charge(0)
      return nil
    }
    guard let length = Int(exactly: number) else { throw .tooLarge }
    return length
  }

  /// Counts a value with that many bytes towards the limit.
  private mutating func charge(_ count: Int) throws(Failure) {
    // The cost never exceeds the limit, so that no sum overflows.
    guard count <= limit - cost - Self.overhead else { throw .tooLarge }
    cost += count + Self.overhead
  }

  /// The number that the digits mean; nil if they are not one number of 64 bits.
  static func integer(_ text: some Collection<UInt8>) -> Int64? {
    Int64(String(decoding: text, as: UTF8.self))
  }

  // MARK: Values

  /// Grows with what has arrived, at most to what was announced.
  private mutating func appendToBulk(_ part: UnsafeRawBufferPointer, _ length: Int) {
    let needed = bulk.count + part.count
    if needed > bulk.capacity { bulk.reserveCapacity(min(length, max(needed, 2 * bulk.count))) }
    bulk.append(contentsOf: part)
  }

  /// Adds a value to the array that it is an element of. Returns the reply if it is complete.
  private mutating func add(_ value: Reply) -> Reply? {
    var value = value
    while var array = arrays.popLast() {
      array.elements.append(value)
      array.remaining -= 1
      if array.remaining > 0 {
        arrays.append(array)
        return nil
      }
      value = .array(array.elements)
    }
    cost = 0
    return value
  }
}
