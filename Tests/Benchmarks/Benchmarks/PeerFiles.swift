// Files as many programs write them: one file of all settings, or one file for each cached value.
import Foundation
import Glibc

/// A setting of one of the most common types.
enum Setting: Codable, Sendable {
  case int(Int)
  case bool(Bool)
  case string(String)

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int.self) {
      self = .int(value)
    } else {
      self = .string(try container.decode(String.self))
    }
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch self {
    case .int(let value): try container.encode(value)
    case .bool(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    }
  }
}

/// Foundation's `.atomic` option syncs the file before it renames it.
enum Atomic {
  static let isStronger = "syncs each file, but not its directory"
  static let isWeaker = "does not sync the directory: a power cut may lose the file"
}

/// A dictionary that is written completely whenever it changes.
final class PeerDictionary {
  static let name = "JSON + .atomic"

  private var values: [String: Setting] = [:]
  private let file: URL
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  init(at path: String) { file = URL(filePath: path) }

  func fill(_ values: [(key: String, value: Setting)]) throws {
    self.values.merge(values.map { ($0.key, $0.value) }) { $1 }
    try write()
  }

  func set(_ value: Setting, forKey key: String) throws {
    values[key] = value
    try write()
  }

  func setModel(_ value: some Encodable, forKey key: String) throws {
    try set(.string(String(decoding: encoder.encode(value), as: UTF8.self)), forKey: key)
  }

  func model<Value: Decodable>(_ key: String, _ type: Value.Type = Value.self) throws -> Value? {
    guard case .string(let text) = values[key] else { return nil }
    return try decoder.decode(Value.self, from: Data(text.utf8))
  }

  private func write() throws { try encoder.encode(values).write(to: file, options: .atomic) }
}

/// A JSON file for each value, with its expiry.
struct PeerDocuments {
  static let name = PeerDictionary.name

  private struct Entry<Value: Codable>: Codable {
    var expires: Date
    var value: Value
  }

  private let directory: URL
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  init(in parent: String) throws { directory = try makeDirectory("\(parent)/documents") }

  func get<Value: Codable>(_ key: String, _ type: Value.Type = Value.self) throws -> Value? {
    guard let data = try? Data(contentsOf: file(in: directory, key)) else { return nil }
    let entry = try decoder.decode(Entry<Value>.self, from: data)
    return entry.expires > Date() ? entry.value : nil
  }

  /// Decodes the document to read the expiry.
  func contains(_ key: String) -> Bool { (try? get(key, Data.self)) ?? nil != nil }

  func set(_ value: some Codable, forKey key: String) throws {
    let entry = Entry(expires: Date(timeIntervalSinceNow: lifetime), value: value)
    try encoder.encode(entry).write(to: file(in: directory, key), options: .atomic)
  }
}

/// A file with only the bytes of each value; its modification date is the expiry.
struct PeerDatedFiles {
  static let name = "Data + .atomic"

  private let directory: URL

  init(in parent: String) throws { directory = try makeDirectory("\(parent)/dated") }

  func get(_ key: String) throws -> Data? {
    let file = try file(in: directory, key)
    return contains(file) ? try? Data(contentsOf: file) : nil
  }

  func contains(_ key: String) throws -> Bool { contains(try file(in: directory, key)) }

  private func contains(_ file: URL) -> Bool {
    let path = file.path(percentEncoded: false)
    guard let attributes = try? FileManager.default.attributesOfItem(atPath: path),
      let expires = attributes[.modificationDate] as? Date
    else { return false }
    return expires > Date()
  }

  func set(_ value: Data, forKey key: String) throws {
    let file = try file(in: directory, key)
    try value.write(to: file, options: .atomic)
    try FileManager.default.setAttributes(
      [.modificationDate: Date(timeIntervalSinceNow: lifetime)],
      ofItemAtPath: file.path(percentEncoded: false))
  }
}

let lifetime: TimeInterval = 7 * 86_400

func makeDirectory(_ path: String) throws -> URL {
  // Accessible only to the user; otherwise a set has to change the mode of its files.
  try FileManager.default.createDirectory(
    atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
  return URL(filePath: path, directoryHint: .isDirectory)
}

/// Encodes the key, which may contain characters that file names may not.
func file(in directory: URL, _ key: String) throws -> URL {
  guard let name = key.addingPercentEncoding(withAllowedCharacters: .alphanumerics) else {
    throw SystemFailure(code: EINVAL)
  }
  return directory.appending(path: name, directoryHint: .notDirectory)
}
