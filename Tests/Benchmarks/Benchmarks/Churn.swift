// A cache at its size limit: each set of a new key makes room by removing old entries.
import Foundation
import GRDB
import Glibc
import Keepsake

struct Churn {
  private let directory: String
  private let isQuick: Bool

  init(directory: String, isQuick: Bool) {
    self.directory = directory
    self.isQuick = isQuick
  }

  func measure(_ bench: inout Bench) throws {
    try measure(&bench, size: 1_024, count: isQuick ? 200 : 2_000)
    try measure(&bench, size: 65_536, count: isQuick ? 50 : 400)
  }

  /// - Parameter count: How many entries each contestant keeps, about.
  private func measure(_ bench: inout Bench, size: Int, count: Int) throws {
    let cache = try EmptyCache(in: "\(directory)/churn-\(size)")
    let value = Caching.value(size)
    let store = cache.store
    var isLimited = false
    var number = 0
    let keepsake: Subject = {
      for _ in 0..<$0 {
        number += 1
        try store.set(value, forKey: Caching.key(number), expiry: .days(7))
      }
      // Removing entries in the background is part of the work.
      while isLimited, try store.totalSize > store.sizeLimit ?? .max { usleep(100) }
    }
    let floor = FloorChurn(cache.floor, value, count: count)
    let peers: [(name: String, stronger: String?, peer: any ChurnPeer)] = [
      (PeerLimitedTable.name, nil, try PeerLimitedTable(in: cache.parent)),
      (PeerCulledTable.name, nil, try PeerCulledTable(in: cache.parent)),
      (PeerDocuments.name, Atomic.isStronger, try PeerLimitedDocuments(in: cache.parent)),
    ]
    let others = peers.map { name, stronger, peer in
      var number = 0
      return Peer<Subject>(name, stronger: stronger) {
        for _ in 0..<$0 {
          number += 1
          try peer.set(value, forKey: Caching.key(number))
        }
      }
    }
    for fill in [keepsake, floor.set] + others.map(\.work) { try fill(count) }
    store.sizeLimit = try store.totalSize
    isLimited = true
    for (_, _, peer) in peers { try peer.startLimiting() }
    sync()
    try bench.measure(
      "DiskCache.set at the limit", size: size, count: count,
      // Long enough that all contestants remove entries several times.
      batch: .seconds(60), most: count / 2, rounds: 7,
      keepsake: keepsake, floor: floor.set, peers: others)
  }
}

/// Only the system calls: each set removes the oldest entry.
private final class FloorChurn {
  private let cache: FloorCache
  private let value: Data
  private let count: Int
  private var next = 0

  init(_ cache: FloorCache, _ value: Data, count: Int) {
    self.cache = cache
    self.value = value
    self.count = count
  }

  func set(_ repetitions: Int) throws {
    for _ in 0..<repetitions {
      try cache.set(value, cache.entry(next))
      if next >= count { try cache.remove(cache.entry(next - count)) }
      next += 1
    }
  }
}

/// Another cache that removes what was stored first.
private protocol ChurnPeer {
  func set(_ value: Data, forKey key: String) throws
  /// From now on, keeps about as much as it holds now.
  func startLimiting() throws
}

// MARK: - SQLite

/// A table of which a tenth is removed when it exceeds its limit.
private final class PeerLimitedTable: ChurnPeer {
  static let name = PeerTable.name

  private let pool: DatabasePool
  private var size = 0
  private var limit = Int.max

  init(in parent: String) throws {
    pool = try DatabasePool(path: "\(parent)/limited.sqlite")
    try pool.writeWithoutTransaction { try $0.execute(sql: "PRAGMA synchronous = NORMAL") }
    try pool.write {
      try $0.execute(
        sql: """
          CREATE TABLE entry (
            number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value BLOB NOT NULL, expires REAL)
          """)
    }
  }

  func startLimiting() { limit = size }

  func set(_ value: Data, forKey key: String) throws {
    try pool.write { database in
      // The new row gets the highest number, so the lowest ones are the oldest.
      try database.cachedStatement(
        sql: "INSERT OR REPLACE INTO entry (key, value, expires) VALUES (?, ?, ?)"
      ).execute(arguments: [key, value, Date.now.timeIntervalSince1970 + lifetime])
      size += value.count
      if size <= limit { return }
      let oldest =
        "SELECT number FROM entry ORDER BY number LIMIT (SELECT count(*) / 10 FROM entry)"
      try database.cachedStatement(
        sql: "DELETE FROM entry WHERE number IN (\(oldest))"
      ).execute()
      size = try Int.fetchOne(database, sql: "SELECT sum(length(value)) FROM entry") ?? 0
    }
  }
}

/// The tables, triggers and statements of Python's DiskCache, which removes up to ten entries with
/// each set, and keeps values of 32 KiB and more in files.
private final class PeerCulledTable: ChurnPeer {
  static let name = "Python's DiskCache in SQL"

  private let queue: DatabaseQueue
  private let directory: String
  private let pageSize: Int
  private var limit = Int.max

  init(in parent: String) throws {
    directory = try makeDirectory("\(parent)/culled").path(percentEncoded: false)
    var configuration = Configuration()
    configuration.prepareDatabase {
      for setting in [
        "auto_vacuum = 1", "cache_size = 8192", "journal_mode = wal", "mmap_size = 67108864",
        "synchronous = 1",
      ] { try $0.execute(sql: "PRAGMA \(setting)") }
    }
    queue = try DatabaseQueue(path: "\(directory)/cache.db", configuration: configuration)
    pageSize = try queue.read { try Int.fetchOne($0, sql: "PRAGMA page_size") } ?? 4_096
    try queue.write {
      try $0.execute(
        sql: """
          CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value);
          INSERT INTO Settings VALUES ('count', 0), ('size', 0);
          CREATE TABLE Cache (
            rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL,
            access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0,
            mode INTEGER DEFAULT 0, filename TEXT, value BLOB);
          CREATE UNIQUE INDEX Cache_key_raw ON Cache (key, raw);
          CREATE INDEX Cache_expire_time ON Cache (expire_time);
          CREATE INDEX Cache_store_time ON Cache (store_time);
          CREATE TRIGGER count_insert AFTER INSERT ON Cache FOR EACH ROW BEGIN
            UPDATE Settings SET value = value + 1 WHERE key = 'count'; END;
          CREATE TRIGGER count_delete AFTER DELETE ON Cache FOR EACH ROW BEGIN
            UPDATE Settings SET value = value - 1 WHERE key = 'count'; END;
          CREATE TRIGGER size_insert AFTER INSERT ON Cache FOR EACH ROW BEGIN
            UPDATE Settings SET value = value + NEW.size WHERE key = 'size'; END;
          CREATE TRIGGER size_delete AFTER DELETE ON Cache FOR EACH ROW BEGIN
            UPDATE Settings SET value = value - OLD.size WHERE key = 'size'; END;
          """)
    }
  }

  func startLimiting() throws { limit = try queue.read { try volume($0) } }

  private func volume(_ database: Database) throws -> Int {
    let pages = try Int.fetchOne(database.cachedStatement(sql: "PRAGMA page_count")) ?? 0
    let size = try Int.fetchOne(
      database.cachedStatement(sql: "SELECT value FROM Settings WHERE key = 'size'"))
    return pages * pageSize + (size ?? 0)
  }

  func set(_ value: Data, forKey key: String) throws {
    let now = Date.now.timeIntervalSince1970
    let fileName = value.count < 32_768 ? nil : try write(value)
    var removed: [String] = []
    try queue.writeWithoutTransaction { database in
      try database.inTransaction(.immediate) {
        removed = try set(value, key, fileName, now, database)
        return .commit
      }
    }
    for name in removed {
      unlink("\(directory)/\(name)")
      rmdir("\(directory)/\(name.prefix(5))")
      rmdir("\(directory)/\(name.prefix(2))")
    }
  }

  /// Returns the names of files that are to be removed.
  private func set(
    _ value: Data, _ key: String, _ fileName: String?, _ now: Double, _ database: Database
  ) throws -> [String] {
    let known = try GRDB.Row.fetchOne(
      database.cachedStatement(sql: "SELECT rowid, filename FROM Cache WHERE key = ? AND raw = ?"),
      arguments: [key, 1])
    // Only new keys are measured.
    if known != nil { throw Failure("the key exists") }
    try database.cachedStatement(
      sql: """
        INSERT INTO Cache (key, raw, store_time, expire_time, access_time, access_count, tag, size,
          mode, filename, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """
    ).execute(arguments: [
      key, 1, now, now + lifetime, now, 0, nil, fileName == nil ? 0 : value.count, 1, fileName,
      fileName == nil ? value : nil,
    ])
    let expired =
      "FROM Cache WHERE expire_time IS NOT NULL AND expire_time < ? "
      + "ORDER BY expire_time LIMIT ?"
    let names = try GRDB.Row.fetchAll(
      database.cachedStatement(sql: "SELECT filename \(expired)"), arguments: [now, 10])
    if !names.isEmpty { throw Failure("an entry has expired") }
    guard try volume(database) >= limit else { return [] }
    let oldest = "FROM Cache ORDER BY store_time LIMIT ?"
    let removed = try Optional<String>.fetchAll(
      database.cachedStatement(sql: "SELECT filename \(oldest)"), arguments: [10])
    try database.cachedStatement(
      sql: "DELETE FROM Cache WHERE rowid IN (SELECT rowid \(oldest))"
    ).execute(arguments: [10])
    return removed.compactMap { $0 }
  }

  private func write(_ value: Data) throws -> String {
    let digits = UUID().uuidString.replacing("-", with: "")
    let parent = "\(digits.prefix(2))/\(digits.dropFirst(2).prefix(2))"
    let name = "\(parent)/\(digits.dropFirst(4)).val"
    mkdir("\(directory)/\(digits.prefix(2))", 0o700)
    mkdir("\(directory)/\(parent)", 0o700)
    let file = try check(open("\(directory)/\(name)", O_WRONLY | O_CREAT | O_EXCL, 0o600))
    defer { close(file) }
    let isWhole = value.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) == $0.count }
    if !isWhole { throw SystemFailure(code: errno) }
    return name
  }
}

// MARK: - Files

/// A JSON file for each value. If they exceed the limit, the oldest are removed until nine tenths
/// are left.
private final class PeerLimitedDocuments: ChurnPeer {
  private let documents: PeerDocuments
  private let directory: URL
  private var size = 0
  private var limit = Int.max

  init(in parent: String) throws {
    documents = try PeerDocuments(in: parent)
    directory = URL(filePath: "\(parent)/documents", directoryHint: .isDirectory)
  }

  func startLimiting() { limit = size }

  func set(_ value: Data, forKey key: String) throws {
    try documents.set(value, forKey: key)
    size += value.count
    if size > limit { try removeOldest(sizeOfEach: value.count) }
  }

  private func removeOldest(sizeOfEach: Int) throws {
    let dates = try FileManager.default.contentsOfDirectory(
      at: directory, includingPropertiesForKeys: [.contentModificationDateKey]
    ).map { file in
      (file, try file.resourceValues(forKeys: [.contentModificationDateKey]))
    }
    let oldestFirst = dates.sorted {
      $0.1.contentModificationDate ?? .distantPast < $1.1.contentModificationDate ?? .distantPast
    }
    for (file, _) in oldestFirst where size > limit / 10 * 9 {
      try FileManager.default.removeItem(at: file)
      size -= sizeOfEach
    }
  }
}
