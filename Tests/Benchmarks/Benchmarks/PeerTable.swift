// SQLite with GRDB, set up to be fast and safe: a write-ahead log, cached statements, and single
// statements as transactions.
import Foundation
import GRDB

final class PeerTable: Sendable {
  static let name = "SQLite (GRDB)"

  private let pool: DatabasePool
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  /// - Parameter isDurable: Whether a value survives a power cut once the call has returned;
  ///   otherwise the log is synced only at checkpoints.
  init(at path: String, isDurable: Bool = false) throws {
    var configuration = Configuration()
    // Other processes may be writing.
    configuration.busyMode = .timeout(10)
    pool = try DatabasePool(path: path, configuration: configuration)
    // A pool selects WAL mode with NORMAL, so FULL has to be set afterwards.
    try pool.writeWithoutTransaction {
      try $0.execute(sql: "PRAGMA synchronous = \(isDurable ? "FULL" : "NORMAL")")
      let mode = try String.fetchOne($0, sql: "PRAGMA journal_mode")
      let level = try Int.fetchOne($0, sql: "PRAGMA synchronous")
      guard mode == "wal", level == (isDurable ? 2 : 1) else {
        throw Failure("SQLite did not accept its settings")
      }
    }
    try pool.write {
      try $0.execute(
        sql: """
          CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, value ANY NOT NULL, expires REAL)
            WITHOUT ROWID
          """)
    }
  }

  /// The value, unless it has expired.
  func get<Value: DatabaseValueConvertible>(
    _ key: String, _ type: Value.Type = Value.self
  ) throws -> Value? {
    // A single statement needs no transaction to read a consistent state.
    try pool.unsafeRead { database in
      let statement = try database.cachedStatement(
        sql: "SELECT value FROM entry WHERE key = ? AND (expires IS NULL OR expires > ?)")
      return try Value.fetchOne(
        statement, arguments: [key, Date.now.timeIntervalSince1970])
    }
  }

  /// The value decoded from JSON.
  func model<Value: Decodable>(_ key: String, _ type: Value.Type = Value.self) throws -> Value? {
    try get(key, Data.self).map { try decoder.decode(Value.self, from: $0) }
  }

  func contains(_ key: String) throws -> Bool {
    try pool.unsafeRead { database in
      let statement = try database.cachedStatement(
        sql: "SELECT 1 FROM entry WHERE key = ? AND (expires IS NULL OR expires > ?)")
      return try Int.fetchOne(
        statement, arguments: [key, Date.now.timeIntervalSince1970]) != nil
    }
  }

  func set(
    _ value: some DatabaseValueConvertible, forKey key: String, lifetime: TimeInterval? = nil
  ) throws {
    try pool.writeWithoutTransaction { try Self.set(value, key, lifetime, $0) }
  }

  func setModel(
    _ value: some Encodable, forKey key: String, lifetime: TimeInterval? = nil
  ) throws {
    try set(encoder.encode(value), forKey: key, lifetime: lifetime)
  }

  /// Adds one to a number atomically.
  func increment(_ key: String) throws {
    try pool.writeWithoutTransaction { database in
      let statement = try database.cachedStatement(
        sql: """
          INSERT INTO entry (key, value) VALUES (?, 1)
          ON CONFLICT (key) DO UPDATE SET value = value + 1
          """)
      try statement.execute(arguments: [key])
    }
  }

  /// Stores many values in one transaction.
  func fill<Value: DatabaseValueConvertible>(
    _ values: some Sequence<(key: String, value: Value)>, lifetime: TimeInterval? = nil
  ) throws {
    try pool.write { database in
      for (key, value) in values { try Self.set(value, key, lifetime, database) }
    }
  }

  private static func set(
    _ value: some DatabaseValueConvertible, _ key: String, _ lifetime: TimeInterval?,
    _ database: Database
  ) throws {
    let statement = try database.cachedStatement(
      sql: """
        INSERT INTO entry (key, value, expires) VALUES (?, ?, ?)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires
        """)
    let expires = lifetime.map { Date.now.timeIntervalSince1970 + $0 }
    try statement.execute(arguments: [key, value, expires])
  }
}

extension Setting: DatabaseValueConvertible {
  var databaseValue: DatabaseValue {
    switch self {
    case .int(let value): value.databaseValue
    case .bool(let value): value.databaseValue
    case .string(let value): value.databaseValue
    }
  }

  /// SQLite has no type for Booleans.
  static func fromDatabaseValue(_ value: DatabaseValue) -> Setting? {
    Int.fromDatabaseValue(value).map(Setting.int)
      ?? String.fromDatabaseValue(value).map(Setting.string)
  }
}
