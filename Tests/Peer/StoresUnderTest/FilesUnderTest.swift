import FoundationEssentials
import Keepsake

/// A ``Folder``.
struct FilesUnderTest: StoreUnderTest {
  enum Call: Codable, Sendable {
    case save(String, Sample)
    /// Saves a text without replacing anything.
    case saveNew(String, Int)
    /// Saves a text in pieces.
    case saveChunks(String, Int)
    case load(String)
    case exists(String)
    case size(String)
    case delete(String)
    case move(String, to: String)
    case copy(String, to: String)
    /// Moves a file with so many bytes from elsewhere.
    case adopt(Int, as: String)
    /// Moves from this directory into a subdirectory.
    case moveInto(String, String, to: String)
    case create(String)
    case clear
    case list
    case totalSize
  }

  let directory: Folder
  /// Where files come from.
  let incoming: URL

  func perform(_ call: Call) throws -> String {
    switch call {
    case .save(let path, let sample):
      try sample.open { value in
        switch value {
        case let text as String: try directory.save(text, as: path)
        case let bytes as Data: try directory.save(bytes, as: path)
        default: throw UnexpectedContents(text: "a file has no type")
        }
      }
    case .saveNew(let path, let number):
      try directory.save(Sample.text(of: number), as: path, replacing: false)
    case .saveChunks(let path, let number):
      let text = Array(Sample.text(of: number).utf8)
      let (first, rest) = (Data(text.prefix(7)), Data(text.dropFirst(7)))
      try blocking { [directory] in
        let chunks = AsyncStream<Data> { continuation in
          continuation.yield(first)
          continuation.yield(rest)
          continuation.finish()
        }
        try await directory.save(chunks: chunks, as: path, total: text.count)
      }
    case .load(let path): return Sample.summary(of: try directory.load(path) as Data)
    case .exists(let path): return "\(try directory.exists(path))"
    case .size(let path): return "\(try directory.size(path))"
    case .delete(let path): try directory.delete(path)
    case .move(let path, let target): try directory.move(path, to: target)
    case .copy(let path, let target): try directory.copy(path, to: target)
    case .adopt(let count, let path):
      try Sample.bytes(of: count).write(to: incoming)
      try directory.adopt(incoming, as: path)
    case .moveInto(let path, let other, let target):
      try directory.move(path, to: target, in: directory.subfolder(other))
    case .create(let path): try directory.subfolder(path).create()
    case .clear: try directory.clear()
    case .list:
      return "\(try directory.list(recursively: true, includingHidden: true).count)"
    case .totalSize: return "\(try directory.totalSize())"
    }
    return "done"
  }

  /// The paths; those of directories end in a slash.
  func names() throws -> [String] {
    try directory.list(recursively: true, includingHidden: true).map(Self.escaped)
  }

  func value(named name: String) throws -> String? {
    if name.hasSuffix("/") { return "directory" }
    return try Sample.summary(of: directory.load(name) as Data)
  }

  func contents() throws -> [String: String] {
    var contents: [String: String] = [:]
    for path in try directory.list(recursively: true, includingHidden: true) {
      contents[Self.escaped(path)] = try value(named: path)
    }
    return contents
  }

  /// The path in ASCII: other compositions of it would be equal keys of a dictionary.
  static func escaped(_ path: String) -> String {
    path.unicodeScalars.map { $0.escaped(asASCII: true) }.joined()
  }
}

extension FilesUnderTest: ByteStore {
  func set(_ bytes: Data, _ name: String) throws { try directory.save(bytes, as: "kept/" + name) }
  func remove(_ name: String) throws { try directory.delete("kept/" + name) }

  func bytes(_ name: String) throws -> Data? {
    try directory.exists("kept/" + name) ? directory.load("kept/" + name) : nil
  }

  func removeAll() throws { try directory.clear() }
  func maintain(_ number: Int) throws { try perform(oneOf: [.totalSize, .list], number) }
}
