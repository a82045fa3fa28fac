import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// One store of each kind in a directory, newly opened as by a process that just started.
///
/// Settings are used an hour later: a journal that was just damaged may be one that a program is
/// still restoring, and calls would wait for that.
struct App {
  enum Store: CaseIterable { case settings, engine, secrets, cache, files }

  /// The result of reading an item.
  enum Found: Equatable {
    case value(String)
    case nothing
    case failed(StorageError.Code)
  }

  struct Item: Hashable {
    let store: Store
    let key: String

    /// The value that ``fill()`` stores.
    var value: String { "\(store) \(key)" }
  }

  static let keys = ["a", "b"]
  static let items = Store.allCases.flatMap { store in keys.map { Item(store: store, key: $0) } }

  let directory: TemporaryDirectory
  let failures = Failures()
  private let settings: Defaults.Store
  private let fileEngine: Defaults.Store
  private let secrets: SecureVault.Store
  private let cache: DiskCache.Store
  private let files: Folder

  init(_ directory: TemporaryDirectory) {
    self.directory = directory
    settings = directory.store(failures: failures)
    fileEngine = directory.store(engine: FileEngine(Folder(directory.file("engine"))))
    secrets = directory.secrets(failures: failures, keySources: [.keyFile])
    cache = directory.cache(failures: failures)
    files = Folder(directory.file("files"))
  }

  /// Stores every item; sets the first setting twice, so that the journal holds an older value.
  func fill() throws {
    try settings.set("earlier", forKey: "a")
    for item in Self.items { try set(item.value, for: item) }
    try settings.synchronize()
  }

  func set(_ value: String, for item: Item) throws {
    switch item.store {
    case .settings: try anHourLater { try settings.set(value, forKey: item.key) }
    case .engine: try fileEngine.set(value, forKey: item.key)
    case .secrets: try secrets.set(value, forKey: item.key)
    case .cache:
      if item.key == "a" { return try cache.set(value, forKey: item.key) }
      try cache.set(value, forKey: item.key, tags: ["etag": "1"])
    case .files: try files.save(value, as: "d/\(item.key).txt")
    }
  }

  func get(_ item: Item) throws -> String? {
    switch item.store {
    case .settings: return try anHourLater { try settings.get(item.key) }
    case .engine: return try fileEngine.get(item.key)
    case .secrets: return try secrets.get(item.key)
    case .cache: return try cache.model(item.key)
    case .files:
      // As bytes, because a damaged file may not be UTF-8.
      let data: Data? = try files.load("d/\(item.key).txt")
      return data.map { String(decoding: $0, as: UTF8.self) }
    }
  }

  func find(_ item: Item) throws -> Found {
    do {
      return try get(item).map { .value($0) } ?? .nothing
    } catch {
      let error = try #require(error as? StorageError)
      let isClear = !error.remedy.isEmpty && (error.path ?? error.key) != nil
      #expect(isClear, "\(error)")
      return .failed(error.code)
    }
  }

  func findAll(_ stores: [Store] = Store.allCases) throws -> [Item: Found] {
    var found: [Item: Found] = [:]
    for item in Self.items where stores.contains(item.store) { found[item] = try find(item) }
    return found
  }
}
