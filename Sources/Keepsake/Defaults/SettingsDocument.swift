package import FoundationEssentials

/// A document of settings: a JSON object or a property list.
package struct SettingsDocument {
  private(set) var values: [(key: String, value: StoredValue)] = []
  /// What cannot be stored, in the order of the document. The key is nil if it cannot be read.
  package private(set) var problems: [StorageError] = []

  /// - Throws: ``StorageError`` of code `decodingFailed` if nothing of the document can be read.
  package init(_ document: Data) throws(StorageError) {
    let mark = JSONScanner.byteOrderMark
    let text = document.starts(with: mark) ? document.dropFirst(mark.count) : document
    guard let first = text.first(where: { !JSONScanner.isWhitespace($0) }) else {
      throw Self.unreadable("the document is empty")
    }
    switch first {
    case UInt8(ascii: "{"), UInt8(ascii: "/"): read(json: Array(text))
    default: try read(propertyList: text)
    }
  }

  /// Leaves out all other keys.
  package mutating func keep(_ isKept: (String) -> Bool) {
    values.removeAll { !isKept($0.key) }
    problems.removeAll { $0.key.map { !isKept($0) } ?? false }
  }

  private mutating func read(json document: [UInt8]) {
    var lines = LineCounter(document)
    for member in JSONScanner.members(ofDamaged: document) {
      func problem(_ reason: String) -> StorageError {
        Self.invalid("\(lines.place(of: member.position)): \(reason)", key: member.name)
      }
      switch member.value {
      case .failure(let failure): problems.append(problem(failure.reason))
      case .success(let json) where json.hasDuplicateNames:
        problems.append(problem("an object has two members of the same name"))
      case .success(let json) where json.bytes.elementsEqual("null".utf8): continue
      case .success(let json):
        if let name = member.name, let value = TaggedJSON.value(json.bytes) {
          values.append((name, value))
        } else {
          problems.append(problem("the value is not \(TaggedJSON.form(of: json.bytes))"))
        }
      }
    }
  }

  private mutating func read(propertyList document: Data) throws(StorageError) {
    guard let members = try? Defaults.Value.members(ofPropertyList: document) else {
      throw Self.unreadable("the document is neither a JSON object nor a property list")
    }
    for (key, member) in members.sorted(by: { $0.key < $1.key }) {
      let member = try? member.get()
      if case .null? = member { continue }
      if let value = (try? Codec.encode(member)) ?? nil {
        values.append((key, value))
      } else {
        problems.append(
          Self.invalid("the value cannot be read, or is nested too deeply", key: key))
      }
    }
  }

  private static func unreadable(_ reason: String) -> StorageError {
    StorageError(
      .decodingFailed, operation: "import", reason: reason,
      remedy: "Import a JSON object or property list with one entry per setting.")
  }

  private static func invalid(_ reason: String, key: String?) -> StorageError {
    StorageError(
      .decodingFailed, operation: "import", key: key, reason: reason,
      remedy: "Correct the document; nothing was stored.")
  }
}

/// Finds the lines of positions in a text, each of which follows the one before.
private struct LineCounter {
  private let text: [UInt8]
  private var line = 1
  private var column = 1
  private var position = 0

  init(_ text: [UInt8]) { self.text = text }

  mutating func place(of target: Int) -> String {
    while position < target {
      let byte = text[position]
      position += 1
      if byte == UInt8(ascii: "\n") {
        (line, column) = (line + 1, 1)
      } else if byte & 0xC0 != 0x80 {
        column += 1
      }
    }
    return "line \(line), column \(column)"
  }
}
