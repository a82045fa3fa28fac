import Foundation
import Testing

@testable import Keepsake

/// All that an app can store, in one directory, as a process opens it anew.
struct App {
  enum Store: CaseIterable { case settings, engine, secrets, cache, files }

  /// What was found under a key.
  enum Found: Equatable {
    case value(String)
    case nothing
    case failed(StorageError.Code)
  }

  struct Place: Hashable {
    let store: Store
    let key: String

    /// What ``fill()`` stores there.
    var value: String { "\(store) \(key)" }
  }

  static let keys = ["a", "b"]
  static let places = Store.allCases.flatMap { store in keys.map { Place(store: store, key: $0) } }

  let directory: TemporaryDirectory
  let failures = Failures()
  private let settings: Defaults.Store
  private let own: Defaults.Store
  private let secrets: SecureVault.Store
  private let cache: DiskCache.Store
  private let files: Folder

  init(_ directory: TemporaryDirectory) {
    self.directory = directory
    settings = directory.store(failures: failures)
    own = directory.store(engine: FileEngine(Folder(directory.file("engine"))))
    secrets = directory.secrets(failures: failures, keySources: [.keyFile])
    cache = directory.cache(failures: failures)
    files = Folder(directory.file("files"))
  }

  /// Stores something in each place; the first of the settings twice.
  func fill() throws {
    try settings.set("earlier", forKey: "a")
    for place in Self.places { try set(place.value, at: place) }
    try settings.synchronize()
  }

  func set(_ value: String, at place: Place) throws {
    switch place.store {
    case .settings: try settings.set(value, forKey: place.key)
    case .engine: try own.set(value, forKey: place.key)
    case .secrets: try secrets.set(value, forKey: place.key)
    case .cache: try cache.set(value, forKey: place.key)
    case .files: try files.save(value, as: "d/\(place.key).txt")
    }
  }

  func get(_ place: Place) throws -> String? {
    switch place.store {
    case .settings: return try settings.get(place.key)
    case .engine: return try own.get(place.key)
    case .secrets: return try secrets.get(place.key)
    case .cache: return try cache.model(place.key)
    case .files:
      // Unlike a text, which has to be UTF-8, any bytes.
      let data: Data? = try files.load("d/\(place.key).txt")
      return data.map { String(decoding: $0, as: UTF8.self) }
    }
  }

  func find(_ place: Place) throws -> Found {
    do {
      return try get(place).map { .value($0) } ?? .nothing
    } catch {
      let error = try #require(error as? StorageError)
      let isClear = !error.remedy.isEmpty && (error.path ?? error.key) != nil
      #expect(isClear, "\(error)")
      return .failed(error.code)
    }
  }

  func findAll(_ stores: [Store] = Store.allCases) throws -> [Place: Found] {
    var found: [Place: Found] = [:]
    for place in Self.places where stores.contains(place.store) { found[place] = try find(place) }
    return found
  }
}
