@testable import Keepsake

/// A whole journal: its header, its records and their values, and later reading of appended bytes.
@Sendable func tryJournal(_ input: UnsafeRawBufferPointer) {
  let id = seed(of: input)
  readJournal(input, seed: id)
  // Nearly every change invalidates a checksum. Correct them, so that changed bytes are parsed.
  var summed = Array(input)
  sumRecords(in: &summed, seed: id)
  summed.withUnsafeBytes { readJournal($0, seed: id) }
}

/// The id in the header, or 0 without one: records can be parsed with any seed.
private func seed(of input: UnsafeRawBufferPointer) -> UInt64 {
  guard case .valid(let id, let isIntact) = JournalFormat.header(of: input) else { return 0 }
  let isCanonical = input.prefix(JournalFormat.headerSize).elementsEqual(
    JournalFormat.header(id: id))
  check(isIntact == isCanonical, "an intact header has the bytes that are written")
  return id
}

private struct Line: Equatable {
  let kind: JournalFormat.Kind
  let key: [UInt8]
  let value: [UInt8]

  var stored: StoredValue? {
    guard case .value(let kind) = kind else { return nil }
    return value.withUnsafeBytes { StoredValue(kind: kind, json: $0) }
  }
}

private func records(
  _ bytes: UnsafeRawBufferPointer, from start: Int, seed: UInt64
) -> ([Line], JournalFormat.Parsed) {
  var lines: [Line] = []
  var end = start
  let parsed = JournalFormat.parse(bytes, from: start, seed: seed) { record in
    check(record.size > 0, "a record is not empty")
    check(record.value.lowerBound >= end, "records do not overlap")
    check(record.value.upperBound <= bytes.count, "a value is inside the file")
    end = record.value.upperBound
    lines.append(
      Line(kind: record.kind, key: Array(record.key.utf8), value: Array(bytes[record.value])))
  }
  check((end...bytes.count).contains(parsed.end), "parsing ends after the last record")
  return (lines, parsed)
}

private func readJournal(_ bytes: UnsafeRawBufferPointer, seed: UInt64) {
  let start = min(bytes.count, JournalFormat.headerSize)
  let (lines, whole) = records(bytes, from: start, seed: seed)
  for line in lines { checkRoundTrip(line) }

  // A reader during a write sees a prefix, and later continues where it stopped.
  let cut = start + Int(Checksum.sum(bytes, seed: 1) % UInt64(bytes.count - start + 1))
  let prefix = UnsafeRawBufferPointer(rebasing: bytes[..<cut])
  let (first, parsed) = records(prefix, from: start, seed: seed)
  let isRaw = lines.contains { $0.value.contains(0x0A) || $0.key.contains(0x0A) }
  check(isRaw || lines.starts(with: first), "the records of a prefix are those of the whole")
  if whole.damage == 0, parsed.damage == 0, !isRaw {
    let (rest, _) = records(bytes, from: parsed.end, seed: seed)
    check(first + rest == lines, "reading in two parts gives the same records")
  }

  // The next writer completes the last line, and all readers understand the result.
  if whole.damage == 0 {
    var closed = Array(bytes) + whole.tail.closing
    JournalFormat.append(.int(1), key: "next", seed: seed, to: &closed)
    closed.withUnsafeBytes { closed in
      let (after, parsed) = records(closed, from: start, seed: seed)
      check(parsed.damage == 0 && parsed.tail == .complete, "a completed journal is intact")
      check(after.dropLast() == lines[...], "completing the last line loses no record")
      check(after.last?.key == Array("next".utf8), "an appended record is found")
    }
  }
}

/// Writes a value and expects it to read back.
private func checkRoundTrip(_ line: Line) {
  guard let value = line.stored else { return }
  var bytes: [UInt8] = []
  JournalFormat.append(value, key: String(decoding: line.key, as: UTF8.self), seed: 7, to: &bytes)
  bytes.withUnsafeBytes { bytes in
    let (lines, parsed) = records(bytes, from: 0, seed: 7)
    check(parsed.damage == 0 && lines.count == 1, "a written record is one record")
    check(lines.first?.key == line.key, "a key reads back")
    check(lines.first?.stored == value, "a value reads back")
  }
}

/// Corrects the checksum of each line that has one and states its length.
private func sumRecords(in bytes: inout [UInt8], seed: UInt64) {
  var start = JournalFormat.headerSize
  while start < bytes.count {
    let lineEnd = bytes[start...].firstIndex(of: 0x0A) ?? bytes.count
    let digits = bytes[start..<lineEnd].dropFirst(19).prefix { (0x30...0x39).contains($0) }.prefix(
      9)
    let body = digits.endIndex + 1
    if let length = Int(String(decoding: digits, as: UTF8.self)), body + length <= bytes.count {
      let sum = bytes[(start + 18)..<(body + length)].withUnsafeBytes {
        Checksum.sum($0, seed: seed)
      }
      bytes.withUnsafeMutableBufferPointer {
        Hexadecimal.write(sum, to: $0[(start + 2)..<(start + 18)])
      }
    }
    start = lineEnd + 1
  }
}
