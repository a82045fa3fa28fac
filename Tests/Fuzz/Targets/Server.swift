@testable import Keepsake
@testable import KeepsakeValkey

// MARK: Replies

/// What a server sends. The first byte chooses the limit of a reply, and how many bytes after it
/// are the lengths of the pieces that arrive; they are used again and again.
@Sendable func tryReplies(_ input: UnsafeRawBufferPointer) {
  guard let choice = input.first else { return }
  let limit = [64, 1 << 10, 64 << 10, 64 << 20][Int(choice & 3)]
  let lengths = input.dropFirst().prefix(Int(choice >> 2 & 7)).map { Int($0) + 1 }
  let stream = UnsafeRawBufferPointer(rebasing: input.dropFirst(1 + lengths.count))

  let whole = ParsedStream(stream, in: [max(1, stream.count)], limit: limit)
  let pieces = ParsedStream(stream, in: lengths.isEmpty ? [1] : lengths, limit: limit)
  check(pieces == whole, "the result does not depend on the pieces: \(pieces) is not \(whole)")
  checkMemory(stream, in: lengths.isEmpty ? [1] : lengths, limit: limit)

  for reply in whole.replies.map(\.reply) {
    if case .error(let error) = reply {
      for code in [error.code, error.effectiveCode] {
        check((1...32).contains(code.utf8.count), "a code is a short word")
        check(code.utf8.allSatisfy { (65...90).contains($0) }, "a code has only capital letters")
      }
    }
    guard let bytes = encode(reply) else { continue }
    let back = bytes.withUnsafeBytes { ParsedStream($0, in: [bytes.count], limit: limit) }
    check(back.replies == [.init(reply: reply, end: bytes.count)], "a reply reads back")
  }
}

/// The replies in a stream of bytes that arrives in pieces.
private struct ParsedStream: Equatable {
  struct Element: Equatable {
    let reply: Reply
    /// The position of its last byte in the stream.
    let end: Int
  }

  private(set) var replies: [Element] = []
  private(set) var failure: ReplyParser.Failure?

  init(_ stream: UnsafeRawBufferPointer, in lengths: [Int], limit: Int) {
    var parser = ReplyParser(limit: limit)
    do throws(ReplyParser.Failure) {
      try forEachPiece(of: stream, in: lengths) { piece, start throws(ReplyParser.Failure) in
        var rest = piece
        while !rest.isEmpty {
          guard let reply = try parser.next(&rest) else {
            check(rest.isEmpty, "bytes remain only after a reply")
            return
          }
          replies.append(Element(reply: reply, end: start + piece.count - rest.count))
        }
      }
    } catch {
      failure = error
    }
  }
}

private func forEachPiece<E>(
  of stream: UnsafeRawBufferPointer, in lengths: [Int],
  _ body: (_ piece: UnsafeRawBufferPointer, _ start: Int) throws(E) -> Void
) throws(E) {
  var (start, turn) = (0, 0)
  while start < stream.count {
    let end = min(stream.count, start + lengths[turn % lengths.count])
    try body(UnsafeRawBufferPointer(rebasing: stream[start..<end]), start)
    start = end
    turn += 1
  }
}

/// How many bytes of the heap are in use, as AddressSanitizer counts them.
@_silgen_name("__sanitizer_get_current_allocated_bytes")
private func allocatedByteCount() -> Int

/// Expects that the parser holds a small multiple of the bytes that have arrived, and of its limit,
/// which does not count the headers of heap objects and the spare capacity of arrays.
private func checkMemory(_ stream: UnsafeRawBufferPointer, in lengths: [Int], limit: Int) {
  // Arrays whose elements have not arrived have some capacity, at each depth.
  let reserve = ReplyParser.maximumDepth * 16 * ReplyParser.overhead + 4_096
  let before = allocatedByteCount()
  var parser = ReplyParser(limit: limit)
  do throws(ReplyParser.Failure) {
    try forEachPiece(of: stream, in: lengths) { piece, start throws(ReplyParser.Failure) in
      var rest = piece
      while !rest.isEmpty { _ = try parser.next(&rest) }
      let held = allocatedByteCount() - before
      check(
        held <= memoryPerByte * (start + piece.count) + reserve,
        "\(held) bytes are held for the \(start + piece.count) that have arrived")
      check(
        held <= 8 * limit + reserve, "\(held) bytes are held, the limit is \(limit)")
    }
  } catch {
    check(allocatedByteCount() - before < 64, "nothing is held after a failure")
  }
}

/// The memory for a byte of a reply: an element of one byte has a heap object of its own.
private let memoryPerByte = 32

/// The bytes of a reply; nil for errors, whose text is private.
private func encode(_ reply: Reply) -> [UInt8]? {
  func line(_ type: Character, _ text: some Sequence<UInt8>) -> [UInt8] {
    Array(String(type).utf8) + text + [13, 10]
  }
  switch reply {
  case .status(let text): return line("+", text)
  case .error: return nil
  case .integer(let number): return line(":", String(number).utf8)
  case .bytes(let bytes): return line("$", String(bytes.count).utf8) + bytes + [13, 10]
  case .null: return line("$", "-1".utf8)
  case .array(let elements):
    var bytes = line("*", String(elements.count).utf8)
    for element in elements {
      guard let part = encode(element) else { return nil }
      bytes += part
    }
    return bytes
  }
}

// MARK: Tables

/// A message of a table's channel, or the copy of a table on disk.
@Sendable func tryTableMessage(_ input: UnsafeRawBufferPointer) {
  guard let message = TableMessage(Array(input)) else { return }
  check(!message.id.isEmpty, "a table has an identity")
  for word in [message.id, message.previous, message.name] {
    check(!word.utf8.contains(0x20), "an identity and a name are words")
  }
  check(TableMessage.versions.contains(message.version), "versions have bounds")
  let bytes = encode(message)
  // Numbers may have a sign, or begin with zeros.
  check(
    bytes.count < input.count || input.elementsEqual(bytes),
    "a message is written with the same bytes")
  let back = TableMessage(bytes)
  check(back?.id == message.id && back?.version == message.version, "a version reads back")
  check(back?.name == message.name, "a name reads back")
  check(back?.changes?.removesAll == message.changes?.removesAll, "a removal of all reads back")
  let (entries, others) = (back?.changes?.entries ?? [], message.changes?.entries ?? [])
  check(entries.map { Array($0.key.utf8) } == others.map { Array($0.key.utf8) }, "keys read back")
  check(entries.map(\.data) == others.map(\.data), "values read back")
}

private func encode(_ message: TableMessage) -> [UInt8] {
  let (id, version, name) = (message.id, message.version, message.name)
  let prefix = Array("\(id) \(version) \(message.previous) \(name) ".utf8)
  guard let changes = message.changes else {
    return prefix + Array((message.isRestored ? "*" : "?").utf8)
  }
  let copy = TableMessage.bytes(id: id, version: version, name: name, changes)
  let payload = TableMessage.payload(of: changes)
  check(copy.suffix(payload.count) == payload[...], "scripts publish the same bytes")
  return prefix + payload
}

/// What a server sends about a table, as replies: arrays are snapshots, bulk strings are messages
/// of its channel, integers are versions that this process has made, a status confirms the
/// subscription, and a null stands for the end of the connection.
@Sendable func tryTable(_ input: UnsafeRawBufferPointer) {
  let stream = ParsedStream(input, in: [max(1, input.count)], limit: 64 << 10)
  var state = TableState(table: "table")
  check(state.beginFollowing(), "a new table is not followed")
  var load: TableState.Load?
  for reply in stream.replies.map(\.reply) {
    let before = state.contents
    switch reply {
    case .status: load = state.beginReceiving() ?? load
    case .null: state.lose(failure)
    case .bytes(let bytes):
      let message = TableMessage(bytes)
      load = state.receive(message, byteCount: bytes.count) ?? load
      guard state.phase == .current else { continue }
      checkStep(from: before, by: message, to: state.contents)
    case .array:
      guard let (snapshot, askedName, isReplacement) = try? table.contents(of: reply) else {
        continue
      }
      checkCopy(of: snapshot)
      guard let number = load else { continue }
      load =
        state.finishLoading(
          number, snapshot, askedName: askedName, isReplacement: isReplacement
        ).load
    case .integer(let version):
      // This process has made a change. A reply with another version is invalid.
      guard version == 0 || TableMessage.versions.contains(version) else { continue }
      let change = TableChanges([StorageEngines.Entry(key: "own", data: nil)])
      let (baseline, name) = (state.baseline, state.nextName())
      load = state.noteServerVersion(version, name: "c\(version)", since: baseline).load ?? load
      if !state.note(change, version: version, name: name, id: "id") {
        load = state.noteEarly(change, version: version, name: name) ?? load
      }
    case .error: continue
    }
    check(state.phase != .current || state.isSubscribed, "a table is current while it is followed")
    check(state.phase != .loading || load != nil, "a snapshot that is read has a number")
  }
}

private let failure = StorageError(.unreachable, operation: "changes", remedy: "None.")

/// Reads snapshots. It never connects.
private let table: SettingsTable = {
  guard let address = try? ServerAddress("unix:///nowhere") else { fatalError("no address") }
  return SettingsTable(
    TableName(app: "fuzz", suite: "fuzz"), on: Server(address), cache: DiskCache.named(.memory),
    report: { _ in })
}()

/// A table that stays current has made one step, or none for an old message.
private func checkStep(
  from before: TableContents, by message: TableMessage?, to after: TableContents
) {
  guard let message else { fatalError("expected: what is no message leads to a snapshot") }
  var expected = before
  if message.version > before.version, let changes = message.changes {
    check(message.version == before.version + 1, "no version is left out")
    expected.apply(changes)
    expected.version = message.version
  }
  check(after.id == message.id, "the message is of the same table")
  check(after.version == expected.version, "the version is that of the message")
  check(values(after) == values(expected), "the values are those of the message")
}

/// What is stored on disk of a snapshot reads back.
private func checkCopy(of snapshot: TableContents) {
  guard !snapshot.id.isEmpty else { return }
  let bytes = TableMessage.bytes(
    id: snapshot.id, version: snapshot.version, name: snapshot.name,
    TableChanges(snapshot.entries, removesAll: true))
  guard let message = TableMessage(bytes), let changes = message.changes else {
    fatalError("expected: a copy is understood")
  }
  check(message.id == snapshot.id && message.version == snapshot.version, "a version reads back")
  check(message.name == snapshot.name, "a name reads back")
  let back = TableContents(
    id: message.id, version: message.version, name: message.name, entries: changes.entries)
  check(values(back) == values(snapshot), "values read back")
}

private func values(_ contents: TableContents) -> [[UInt8]: [UInt8]] {
  var values: [[UInt8]: [UInt8]] = [:]
  for entry in contents.entries { values[Array(entry.key.utf8)] = entry.data.map { Array($0) } }
  return values
}
