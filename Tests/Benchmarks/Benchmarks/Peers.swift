// What a program would use instead of the disk cache, and instead of the vault.
import Crypto
import Foundation
import GRDB

/// A file of JSON for each value, as it is written in many programs.
struct PlainCache {
  static let name = "JSON + write(.atomic)"

  private struct Entry: Codable {
    var expires: Date
    var value: Data
  }

  private let folder: URL
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  init(in host: String) throws {
    folder = URL(filePath: "\(host)/plain", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  }

  func get(_ key: String) throws -> Data? {
    let entry = try decoder.decode(Entry.self, from: Data(contentsOf: file(key)))
    return entry.expires > Date() ? entry.value : nil
  }

  func set(_ value: Data, forKey key: String) throws {
    let entry = Entry(expires: Date(timeIntervalSinceNow: 7 * 86_400), value: value)
    try encoder.encode(entry).write(to: file(key), options: .atomic)
  }

  private func file(_ key: String) throws -> URL {
    folder.appending(path: try fileName(key), directoryHint: .notDirectory)
  }
}

private func fileName(_ key: String) throws -> String {
  if let name = key.addingPercentEncoding(withAllowedCharacters: .alphanumerics) { return name }
  throw SystemFailure(code: EINVAL)
}

/// A table of SQLite: a write-ahead log that is synced when it is moved into the database.
struct TableCache {
  static let name = "SQLite (GRDB)"

  private let pool: DatabasePool

  init(in host: String) throws {
    var configuration = Configuration()
    configuration.prepareDatabase { try $0.execute(sql: "PRAGMA synchronous = NORMAL") }
    // A pool is in WAL mode by itself.
    pool = try DatabasePool(path: "\(host)/table.sqlite", configuration: configuration)
    try pool.write {
      try $0.execute(
        sql: "CREATE TABLE entry (key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL)")
    }
  }

  func get(_ key: String) throws -> Data? {
    try pool.read { database in
      let statement = try database.cachedStatement(
        sql: "SELECT value FROM entry WHERE key = ? AND expires > ?")
      let now = Date().timeIntervalSince1970
      return try Data.fetchOne(statement, arguments: [key, now])
    }
  }

  func set(_ value: Data, forKey key: String) throws {
    try pool.write { database in
      let statement = try database.cachedStatement(
        sql: """
          INSERT INTO entry (key, value, expires) VALUES (?, ?, ?)
          ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires
          """)
      let expires = Date(timeIntervalSinceNow: 7 * 86_400).timeIntervalSince1970
      try statement.execute(arguments: [key, value, expires])
    }
  }
}

/// A file for each secret, sealed with swift-crypto under a key that the program keeps in memory.
struct CryptoVault {
  static let name = "AES.GCM"
  static let durableName = "AES.GCM + durable file"
  static let atomicName = "AES.GCM + write(.atomic)"

  private let folder: URL
  private let key = SymmetricKey(size: .bits256)

  init(in host: String) throws {
    folder = URL(filePath: "\(host)/crypto", directoryHint: .isDirectory)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  }

  func get(_ key: String) throws -> Data {
    let box = try AES.GCM.SealedBox(combined: Data(contentsOf: url(key)))
    return try AES.GCM.open(box, using: self.key, authenticating: Data(key.utf8))
  }

  func setAtomically(_ value: Data, forKey key: String) throws {
    try sealed(value, key).write(to: url(key), options: .atomic)
  }

  func setDurably(_ value: Data, forKey key: String) throws {
    let (box, name) = (try sealed(value, key), try fileName(key))
    let path = folder.path(percentEncoded: false)
    let token = String(UInt64.random(in: .min ... .max), radix: 16)
    try FloorVault.setDurably(
      path + name, temporary: "\(path).\(token).tmp", in: path
    ) { file in
      box.withUnsafeBytes { write(file, $0.baseAddress, $0.count) == $0.count }
    }
  }

  private func sealed(_ value: Data, _ key: String) throws -> Data {
    let box = try AES.GCM.seal(value, using: self.key, authenticating: Data(key.utf8))
    guard let combined = box.combined else { throw SystemFailure(code: EINVAL) }
    return combined
  }

  private func url(_ key: String) throws -> URL {
    folder.appending(path: try fileName(key), directoryHint: .notDirectory)
  }
}
