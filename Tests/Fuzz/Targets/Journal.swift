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
  let word = JournalFormat.word(of: input)
  let isCanonical = input.prefix(JournalFormat.headerSize).elementsEqual(
    JournalFormat.header(id: id, word))
  check(isIntact == isCanonical, "an intact header has the bytes that are written")
  if let end = word.end(of: id) {
    check(end >= JournalFormat.headerSize, "a header is published as a whole")
    check(JournalWord(id: id, end: end) == word, "a valid word has the bytes that are written")
  }
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
) -> (lines: [Line], damage: Int) {
  var lines: [Line] = []
  var end = start
  let (records, damage) = JournalFormat.records(in: bytes, from: start, seed: seed)
  for record in records {
    check(record.size > 0, "a record is not empty")
    check(record.value.lowerBound >= end, "records do not overlap")
    check(record.value.upperBound <= bytes.count, "a value is inside the file")
    end = record.value.upperBound
    lines.append(
      Line(kind: record.kind, key: Array(record.key.utf8), value: Array(bytes[record.value])))
  }
  check(damage >= 0 && damage <= bytes.count, "each damaged place has a byte")
  return (lines, damage)
}

private func readJournal(_ bytes: UnsafeRawBufferPointer, seed: UInt64) {
  let start = min(bytes.count, JournalFormat.headerSize)
  let (lines, damage) = records(bytes, from: start, seed: seed)
  for line in lines { checkRoundTrip(line) }

  // A word may say any length, and a file may end anywhere.
  let cut = start + Int(Checksum.sum(bytes, seed: 1) % UInt64(bytes.count - start + 1))
  let prefix = UnsafeRawBufferPointer(rebasing: bytes[..<cut])
  let first = records(prefix, from: start, seed: seed)
  let isRaw = lines.contains { $0.value.contains(0x0A) || $0.key.contains(0x0A) }
  check(isRaw || lines.starts(with: first.lines), "the records of a prefix are those of the whole")

  // A reader that has read a whole prefix continues there.
  if damage == 0, first.damage == 0 {
    let rest = records(bytes, from: cut, seed: seed)
    check(rest.damage == 0 && first.lines + rest.lines == lines, "reading in two parts")
  }

  // The next writer appends to whole records.
  if damage == 0 {
    var appended = Array(bytes)
    JournalFormat.append(.int(1), key: "next", seed: seed, to: &appended)
    appended.withUnsafeBytes { appended in
      let (after, damage) = records(appended, from: start, seed: seed)
      check(damage == 0, "an appended journal is intact")
      check(after.dropLast() == lines[...], "appending loses no record")
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
    let (lines, damage) = records(bytes, from: 0, seed: 7)
    check(damage == 0 && lines.count == 1, "a written record is one record")
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
