/// The bytes of a journal: a header line, then a line for each change. Pure: no I/O.
///
/// ```
/// ["keepsake.v1","<word>","1:<id>","1:<id>","1:<id>"]
/// ["<sum><kind><length>","<key>",<value>]
/// ```
///
/// Each line is a JSON array. The ``JournalWord`` says up to which byte the file is valid, and what
/// is beyond it does not count. `sum` is the ``Checksum`` of everything from `kind` to the end of
/// the value, seeded with the file's random id. `length` is the number of bytes between the first
/// string's closing quote and the closing bracket. No record contains a raw newline, so reading
/// continues after the next newline if a record is damaged.
enum JournalFormat {
  static let version = UInt8(ascii: "1")
  static let headerSize = 90

  private static let prefix = Array(#"["keepsake.v1","#.utf8)
  private static let copyStarts = [27, 48, 69]
  private static let copySize = 18

  /// What a record does.
  enum Kind: Equatable {
    case value(StoredValue.Kind)
    /// The key was removed.
    case removed
    /// All keys were removed.
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

    /// Whether a writer may have given the file with this id the header. A file that is written
    /// anew in place keeps the upper 16 bits.
    func isOfSameFile(as id: UInt64) -> Bool {
      if case .valid(let newID, _) = self { newID >> 48 == id >> 48 } else { false }
    }
  }

  static func header(id: UInt64, _ word: JournalWord) -> [UInt8] {
    var copy = [version, UInt8(ascii: ":")] + [UInt8](repeating: 0, count: 16)
    copy.withUnsafeMutableBufferPointer { Hexadecimal.write(id, to: $0[2...]) }
    let copies = [word.bytes, copy, copy, copy].map { [quote] + $0 + [quote] }
    return prefix + Array(copies.joined(separator: [comma])) + [bracket, newline]
  }

  /// The word of a complete header.
  static func word(of bytes: UnsafeRawBufferPointer) -> JournalWord {
    JournalWord(bits: bytes.loadUnaligned(fromByteOffset: JournalWord.offset, as: UInt64.self))
  }

  /// Whether a file begins as a journal does.
  static func isJournal(_ file: File) throws(StorageError) -> Bool {
    try file.read(from: 0, count: prefix.count) == prefix
  }

  /// Reads each byte of the header by majority of three copies, so that no single damaged byte
  /// makes the file unreadable.
  static func header(of bytes: UnsafeRawBufferPointer) -> Header {
    if bytes.allSatisfy({ $0 == 0 }) { return .incomplete }
    guard bytes.count >= headerSize else {
      let start = prefix + [quote]
      return bytes.prefix(start.count).elementsEqual(start.prefix(bytes.count))
        ? .incomplete : .foreign
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
    // The word is judged by what it says.
    let isIntact = bytes[..<headerSize].elementsEqual(header(id: id, word(of: bytes)))
    return .valid(id: id, isIntact: isIntact)
  }

  // MARK: Writing

  /// Appends the record that removes all keys.
  static func appendCleared(seed: UInt64, to output: inout [UInt8]) {
    append(.cleared, key: "", seed: seed, to: &output) { _ in }
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

  /// The records in `bytes`, which end with a complete one, and the number of damaged places.
  static func records(
    in bytes: UnsafeRawBufferPointer, from start: Int, seed: UInt64
  ) -> (records: [Record], damage: Int) {
    var (records, damage): ([Record], Int) = ([], 0)
    var position = start
    while position < bytes.count {
      let found = record(in: bytes, at: position, seed: seed, isSuspect: damage > 0)
      if let (record, end) = found {
        records.append(record)
        if end + 1 < bytes.count, bytes[end] == bracket, bytes[end + 1] == newline {
          position = end + 2
          continue
        }
        position = end
      }
      damage += 1
      // After a wrong ending, the next record may begin in the same line.
      if found != nil, position + 2 < bytes.count, bytes[position + 2] == UInt8(ascii: "[") {
        position += 2
      } else if let newline = bytes[position...].firstIndex(of: newline) {
        position = newline + 1
      } else {
        break
      }
    }
    return (records, damage)
  }

  /// Up to that many bytes are summed before anything else is known of them.
  private static let largestQuickSum = 4 << 10
  private static let newline = UInt8(ascii: "\n")
  private static let bracket = UInt8(ascii: "]")
  private static let quote = UInt8(ascii: "\"")
  private static let comma = UInt8(ascii: ",")

  /// The record that begins at `start`, and the end of its body; nil unless its sum is right.
  ///
  /// - Parameter isSuspect: Whether to look for a newline first, which no record contains. Summing
  ///   each of many damaged records to the end of the file would take minutes.
  private static func record(
    in bytes: UnsafeRawBufferPointer, at start: Int, seed: UInt64, isSuspect: Bool
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
    if isSuspect, length > largestQuickSum, bytes[body..<end].contains(newline) { return nil }
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
