/// The bytes of a journal: a header line, then a line for each change. Pure: no I/O.
///
/// ```
/// ["keepsake","1:<id>","1:<id>","1:<id>"]
/// ["<sum><kind><length>","<key>",<value>]
/// ```
///
/// Each line is a JSON array. `sum` is the ``Checksum`` of everything from `kind` to the end of the
/// value, seeded with the file's random id. `length` is the number of bytes between the first
/// string's closing quote and the closing bracket. A record counts as soon as it has all those
/// bytes and the right sum, whatever follows. No record contains a raw newline, so reading
/// continues after the next newline if a record is damaged. An unfinished record at the end is
/// closed with ``abandoned``.
enum JournalFormat {
  static let version = UInt8(ascii: "1")
  static let headerSize = 76
  /// Closes a record that its writer did not finish.
  static let abandoned = Array("~\n".utf8)

  private static let prefix = Array(#"["keepsake","#.utf8)
  private static let copyStarts = [13, 34, 55]
  private static let copySize = 18

  /// What a record does.
  enum Kind: Equatable {
    case value(StoredValue.Kind)
    /// The key was removed.
    case removed
    /// All keys were removed. Version 1 has this record, but ``Journal`` replaces the file instead.
    case cleared

    init?(byte: UInt8) {
      switch byte {
      case UInt8(ascii: "r"): self = .removed
      case UInt8(ascii: "c"): self = .cleared
      default:
        guard let kind = StoredValue.Kind(rawValue: byte) else { return nil }
        self = .value(kind)
      }
    }

    var byte: UInt8 {
      switch self {
      case .value(let kind): kind.rawValue
      case .removed: UInt8(ascii: "r")
      case .cleared: UInt8(ascii: "c")
      }
    }
  }

  // MARK: Header

  enum Header: Equatable {
    case valid(id: UInt64, isIntact: Bool)
    /// The file is empty, or its header was cut off. It has no records.
    case incomplete
    case unsupported
    case foreign
  }

  static func header(id: UInt64) -> [UInt8] {
    var copy = [version, UInt8(ascii: ":")] + [UInt8](repeating: 0, count: 16)
    copy.withUnsafeMutableBufferPointer { Hexadecimal.write(id, to: $0[2...]) }
    let quoted = [UInt8(ascii: "\"")] + copy + [UInt8(ascii: "\"")]
    let comma = [UInt8(ascii: ",")]
    return prefix + quoted + comma + quoted + comma + quoted + Array("]\n".utf8)
  }

  /// Reads each byte of the header by majority of three copies, so that no single damaged byte
  /// makes the file unreadable.
  static func header(of bytes: UnsafeRawBufferPointer) -> Header {
    if bytes.allSatisfy({ $0 == 0 }) { return .incomplete }
    guard bytes.count >= headerSize else {
      let example = header(id: 0)
      let isPrefix = bytes.indices.allSatisfy { index in
        bytes[index] == example[index]
          || example[index] == UInt8(ascii: "0") && Hexadecimal.digit(bytes[index]) != nil
      }
      return isPrefix ? .incomplete : .foreign
    }
    var copy: [UInt8] = []
    for position in 0..<copySize {
      let votes = copyStarts.map { bytes[$0 + position] }
      if votes[0] == votes[1] || votes[0] == votes[2] {
        copy.append(votes[0])
      } else if votes[1] == votes[2] {
        copy.append(votes[1])
      } else {
        return .foreign
      }
    }
    var id: UInt64 = 0
    for byte in copy[2...] {
      guard let digit = Hexadecimal.digit(byte) else { return .foreign }
      id = id << 4 | digit
    }
    guard copy[1] == UInt8(ascii: ":"), (0x31...0x39).contains(copy[0]) else { return .foreign }
    guard copy[0] == version else { return .unsupported }
    let isIntact = bytes[..<headerSize].elementsEqual(header(id: id))
    return .valid(id: id, isIntact: isIntact)
  }

  // MARK: Writing

  /// Appends one record. `value` is JSON, and empty for a kind without a value.
  static func append(
    _ kind: Kind, key: String, value: [UInt8], seed: UInt64, to output: inout [UInt8]
  ) {
    append(kind, key: key, seed: seed, to: &output) { output in
      if value.isEmpty { return }
      output.append(UInt8(ascii: ","))
      output.append(contentsOf: value)
    }
  }

  /// Appends the record of a key's new value; nil removes the key.
  static func append(
    _ value: StoredValue?, key: String, seed: UInt64, to output: inout [UInt8]
  ) {
    let kind = value.map { Kind.value($0.kind) } ?? .removed
    append(kind, key: key, seed: seed, to: &output) { output in
      guard let value else { return }
      output.append(UInt8(ascii: ","))
      value.append(to: &output)
    }
  }

  /// Encodes directly into `output`, because making arrays for the parts would take longer than
  /// encoding them. Reserves no capacity, which would make `output` grow by one record at a time.
  @inline(__always)
  private static func append(
    _ kind: Kind, key: String, seed: UInt64, to output: inout [UInt8],
    appendValue: (inout [UInt8]) -> Void
  ) {
    let start = output.count + 2
    output.append(
      contentsOf: UnsafeBufferPointer(
        start: recordStart.utf8Start, count: recordStart.utf8CodeUnitCount))
    output.append(kind.byte)
    let lengthIndex = output.count
    output.append(quote)
    if kind.byte != Kind.cleared.byte {
      output.append(comma)
      JSONString.append(key, to: &output)
    }
    appendValue(&output)
    // The length precedes the bytes that it counts.
    let length = output.count - lengthIndex - 1
    JSONNumber.withDigits(of: Int64(length)) { output.insert(contentsOf: $0, at: lengthIndex) }
    output.withUnsafeMutableBufferPointer { bytes in
      let summed = UnsafeRawBufferPointer(
        UnsafeMutableBufferPointer(rebasing: bytes[(start + 16)...]))
      let sum = Checksum.sum(summed, seed: seed)
      Hexadecimal.write(sum, to: bytes[start..<start + 16])
    }
    output.append(bracket)
    output.append(newline)
  }

  /// The start of a record, with zeros for the sum.
  private static let recordStart: StaticString = "[\"0000000000000000"

  // MARK: Reading

  struct Record {
    let kind: Kind
    let key: String
    /// The range of the value's JSON.
    let value: Range<Int>
    /// The size of the whole line in bytes.
    let size: Int
  }

  /// How the bytes end.
  enum Tail: Equatable {
    case complete
    /// The last record counts, but these bytes of its ending are missing.
    case unterminated([UInt8])
    /// The last record is unfinished and does not count.
    case torn

    /// What a writer appends before its own record.
    var closing: [UInt8] {
      switch self {
      case .complete: []
      case .unterminated(let missing): missing
      case .torn: JournalFormat.abandoned
      }
    }
  }

  struct Parsed {
    /// Where reading continues when more has been written.
    var end: Int
    var tail = Tail.complete
    /// The number of damaged places.
    var damage = 0
  }

  /// Calls `visit` with each record in `bytes`, beginning at `start`.
  static func parse(
    _ bytes: UnsafeRawBufferPointer, from start: Int, seed: UInt64, visit: (Record) -> Void
  ) -> Parsed {
    var result = Parsed(end: start)
    var position = start
    /// Moves past the next newline; returns false if there is none.
    func skipLine(from start: Int) -> Bool {
      guard let newline = bytes[start...].firstIndex(of: newline) else { return false }
      position = newline + 1
      return true
    }
    while position < bytes.count {
      result.end = position
      if bytes[position] == newline {
        position += 1
        continue
      }
      if bytes[position] == bracket {  // the missing ending of the record before
        if position + 1 == bytes.count {
          result.tail = .unterminated([newline])
          return result
        }
        if bytes[position + 1] == newline {
          position += 2
          continue
        }
      }
      guard let (record, end) = record(in: bytes, at: position, seed: seed) else {
        let start = position
        guard skipLine(from: start) else {
          result.tail = .torn
          return result
        }
        // `position` is after the newline, which follows the mark.
        let isAbandoned = position - 2 >= start && bytes[position - 2] == abandoned[0]
        if !isAbandoned { result.damage += 1 }
        continue
      }
      visit(record)
      if end + 1 < bytes.count, bytes[end] == bracket, bytes[end + 1] == newline {
        position = end + 2
      } else if end == bytes.count || end + 1 == bytes.count && bytes[end] == bracket {
        result.end = end
        result.tail = .unterminated(end == bytes.count ? [bracket, newline] : [newline])
        return result
      } else {
        result.damage += 1
        if end + 2 >= bytes.count {
          position = bytes.count
        } else if bytes[end + 2] == UInt8(ascii: "[") {
          position = end + 2
        } else if !skipLine(from: end) {
          position = bytes.count
        }
      }
    }
    result.end = position
    return result
  }

  private static let newline = UInt8(ascii: "\n")
  private static let bracket = UInt8(ascii: "]")
  private static let quote = UInt8(ascii: "\"")
  private static let comma = UInt8(ascii: ",")

  /// The record that begins at `start`, and the end of its body; nil unless its sum is right.
  private static func record(
    in bytes: UnsafeRawBufferPointer, at start: Int, seed: UInt64
  ) -> (Record, end: Int)? {
    guard bytes.count - start > 20, bytes[start] == UInt8(ascii: "["), bytes[start + 1] == quote
    else { return nil }
    var sum: UInt64 = 0
    for byte in bytes[(start + 2)..<(start + 18)] {
      // A sum is written in lowercase.
      guard let digit = Hexadecimal.digit(byte), !(0x41...0x46).contains(byte) else {
        return nil
      }
      sum = sum << 4 | digit
    }
    guard let kind = Kind(byte: bytes[start + 18]) else { return nil }
    var position = start + 19
    var length = 0
    while position < bytes.count, (0x30...0x39).contains(bytes[position]) {
      length = length * 10 + Int(bytes[position] - 0x30)
      guard length <= bytes.count else { return nil }
      position += 1
    }
    guard position < bytes.count, bytes[position] == quote else { return nil }
    let body = position + 1
    guard length <= bytes.count - body else { return nil }
    let end = body + length
    let summed = UnsafeRawBufferPointer(rebasing: bytes[(start + 18)..<end])
    guard Checksum.sum(summed, seed: seed) == sum else { return nil }
    let size = end + 2 - start
    if kind == .cleared {
      return length == 0 ? (Record(kind: kind, key: "", value: end..<end, size: size), end) : nil
    }
    let within = UnsafeRawBufferPointer(rebasing: bytes[..<end])
    position = body + 1
    guard length > 2, bytes[body] == comma,
      let key = JSONString.parse(within, at: &position)
    else { return nil }
    if kind == .removed {
      return position == end
        ? (Record(kind: kind, key: key, value: end..<end, size: size), end) : nil
    }
    guard position + 1 < end, bytes[position] == comma else { return nil }
    return (Record(kind: kind, key: key, value: (position + 1)..<end, size: size), end)
  }
}
