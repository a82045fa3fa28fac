// SQLite by GRDB, as a program would set it up that wants it fast and safe: a write-ahead log,
// cached statements, one statement a transaction of its own.
import Foundation
import GRDB

final class PeerTable: Sendable {
  static let name = "SQLite (GRDB)"

  private let pool: DatabasePool
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()

  /// - Parameter isDurable: Whether what was set survives a power cut once the call has returned;
  ///   otherwise the log is synced when it is moved into the database.
  init(at path: String, isDurable: Bool = false) throws {
    var configuration = Configuration()
    // Several processes may write.
    configuration.busyMode = .timeout(10)
    pool = try DatabasePool(path: path, configuration: configuration)
    // A pool chooses WAL mode by itself and NORMAL with it, so that FULL has to come afterwards.
    try pool.writeWithoutTransaction {
      try $0.execute(sql: "PRAGMA synchronous = \(isDurable ? "FULL" : "NORMAL")")
      let mode = try String.fetchOne($0, sql: "PRAGMA journal_mode")
      let level = try Int.fetchOne($0, sql: "PRAGMA synchronous")
      guard mode == "wal", level == (isDurable ? 2 : 1) else {
        throw Failure("SQLite is not set up as it should be")
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

  /// What is there and has not expired.
  func get<Value: DatabaseValueConvertible>(
    _ key: String, _ type: Value.Type = Value.self
  ) throws -> Value? {
    // A single statement sees one state of the database without a transaction around it.
    try pool.unsafeRead { database in
      let statement = try database.cachedStatement(
        sql: "SELECT value FROM entry WHERE key = ? AND (expires IS NULL OR expires > ?)")
      return try Value.fetchOne(
        statement, arguments: [key, Date.now.timeIntervalSince1970])
    }
  }

  /// Likewise for a value in JSON.
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

  /// Adds one to a number, in one step for all processes.
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

  /// Many at once.
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

  /// The table keeps no type of its own for truth values.
  static func fromDatabaseValue(_ value: DatabaseValue) -> Setting? {
    Int.fromDatabaseValue(value).map(Setting.int)
      ?? String.fromDatabaseValue(value).map(Setting.string)
  }
}
