@testable import Keepsake

/// A whole journal: its header, its records, their values, and reading on at the end.
@Sendable func tryJournal(_ input: UnsafeRawBufferPointer) {
  let id = seed(of: input)
  readJournal(input, seed: id)
  // The sums keep the bytes behind them from nearly every change: with them put right, these count
  // too.
  var summed = Array(input)
  sumRecords(in: &summed, seed: id)
  summed.withUnsafeBytes { readJournal($0, seed: id) }
}

/// That of the header where there is one: the records can be read with any.
private func seed(of input: UnsafeRawBufferPointer) -> UInt64 {
  guard case .valid(let id, let isIntact) = JournalFormat.header(of: input) else { return 0 }
  let isCanonical = input.prefix(JournalFormat.headerSize).elementsEqual(
    JournalFormat.header(id: id))
  check(isIntact == isCanonical, "an intact header is the very one that is written")
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
    check(record.size > 0, "a record takes bytes")
    check(record.value.lowerBound >= end, "records stand one after the other")
    check(record.value.upperBound <= bytes.count, "a value lies in its file")
    end = record.value.upperBound
    lines.append(
      Line(kind: record.kind, key: Array(record.key.utf8), value: Array(bytes[record.value])))
  }
  check((end...bytes.count).contains(parsed.end), "reading goes on behind the last record")
  return (lines, parsed)
}

private func readJournal(_ bytes: UnsafeRawBufferPointer, seed: UInt64) {
  let start = min(bytes.count, JournalFormat.headerSize)
  let (lines, whole) = records(bytes, from: start, seed: seed)
  for line in lines { writeAgain(line) }

  // A reader that comes while somebody writes sees a prefix, and later reads on where it stopped.
  let cut = start + Int(Checksum.sum(bytes, seed: 1) % UInt64(bytes.count - start + 1))
  let prefix = UnsafeRawBufferPointer(rebasing: bytes[..<cut])
  let (first, parsed) = records(prefix, from: start, seed: seed)
  let isRaw = lines.contains { $0.value.contains(0x0A) || $0.key.contains(0x0A) }
  check(isRaw || lines.starts(with: first), "a prefix has no record that the whole has not")
  if whole.damage == 0, parsed.damage == 0, !isRaw {
    let (rest, _) = records(bytes, from: parsed.end, seed: seed)
    check(first + rest == lines, "reading on gives what reading at once gives")
  }

  // Whoever writes next closes what is there, and is understood by all.
  if whole.damage == 0 {
    var closed = Array(bytes) + whole.tail.closing
    JournalFormat.append(.int(1), key: "next", seed: seed, to: &closed)
    closed.withUnsafeBytes { closed in
      let (after, parsed) = records(closed, from: start, seed: seed)
      check(parsed.damage == 0 && parsed.tail == .complete, "a closed journal is whole")
      check(after.dropLast() == lines[...], "closing loses no record")
      check(after.last?.key == Array("next".utf8), "what is appended is there")
    }
  }
}

/// A value that can be read is written so that it reads back the same.
private func writeAgain(_ line: Line) {
  guard let value = line.stored else { return }
  var bytes: [UInt8] = []
  JournalFormat.append(value, key: String(decoding: line.key, as: UTF8.self), seed: 7, to: &bytes)
  bytes.withUnsafeBytes { bytes in
    let (lines, parsed) = records(bytes, from: 0, seed: 7)
    check(parsed.damage == 0 && lines.count == 1, "a record that is written is one record")
    check(lines.first?.key == line.key, "a key reads back")
    check(lines.first?.stored == value, "a value reads back")
  }
}

/// Puts the sum in front of each line that has a place for one and says how long it is.
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
