/// The bytes of a journal that is made at once, with a new id.
struct NewJournal {
  let id: UInt64
  private var content: [UInt8]

  /// - Parameter oldID: The id of the file that it is written into; nil for a new file. The lower
  ///   16 bits count on, so that no earlier word stands for the new contents as well.
  init(into oldID: UInt64? = nil) {
    let random = UInt64.random(in: .min ... .max)
    id = oldID.map { ($0 >> 48) << 48 | (random >> 32) << 16 | ($0 &+ 1) & 0xFFFF } ?? random
    content = JournalFormat.header(id: id, .replaced)
  }

  init(_ entries: borrowing ByteKeyedDictionary<ValueTable.Entry>, into oldID: UInt64? = nil) {
    self.init(into: oldID)
    for (key, entry) in entries.elements { append(entry.value, forKey: key) }
  }

  mutating func append(_ changes: ChangedValues) {
    if changes.isComplete, end > JournalFormat.headerSize {
      JournalFormat.appendCleared(seed: id, to: &content)
    }
    for (key, value) in changes.values { append(value, forKey: key) }
  }

  private mutating func append(_ value: StoredValue, forKey key: String) {
    JournalFormat.append(value, key: key, seed: id, to: &content)
  }

  var end: Int { content.count }

  var word: JournalWord { JournalWord(id: id, end: content.count) }

  /// The whole journal, with its word.
  var bytes: [UInt8] {
    var bytes = content
    bytes.replaceSubrange(
      JournalWord.offset..<JournalWord.offset + JournalWord.size, with: word.bytes)
    return bytes
  }
}
