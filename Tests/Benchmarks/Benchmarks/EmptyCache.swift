// A cache for measurements, and the paths of its files.
import Foundation
import Keepsake

/// A cache in its own directory, with all subdirectories, so that no set has to make them.
struct EmptyCache {
  static let name = "cache"

  let parent: String
  let base: String
  let name: DiskCache.Name
  let store: DiskCache.Store
  let floor: FloorCache

  init(in parent: String) throws {
    // Accessible only to the user; otherwise a set has to change the mode of its files.
    try FileManager.default.createDirectory(
      atPath: parent, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    self.parent = parent
    name = DiskCache.Name(Self.name, in: URL(filePath: parent))
    store = DiskCache.named(name)
    try store.set(Data(), forKey: "")
    base = "\(parent)/\(Self.name)"
    for number in 0..<FloorCache.directoryCount {
      try FileManager.default.createDirectory(
        atPath: "\(base)/\(FloorCache.directoryName(number))", withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700])
    }
    floor = try FloorCache(in: base, lockFile: "\(parent)/floor.lock")
  }

  func fill(_ count: Int, _ value: Data) throws {
    for number in 0..<count {
      try store.set(value, forKey: Caching.key(number), expiry: .days(7))
    }
    sync()
  }

  /// The paths of the values of these keys.
  func payloads(_ keys: [String]) throws -> [String] { try Self.payloads(keys, store) }

  static func payloads(_ keys: [String], _ store: DiskCache.Store) throws -> [String] {
    try keys.map { key in
      guard let url = try store.fileURL(key) else { throw SystemFailure(code: ENOENT) }
      return url.path(percentEncoded: false)
    }
  }

  /// The paths after the cache was moved, without asking it, which would make it remember the
  /// files.
  static func payloads(
    _ keys: [String], _ store: DiskCache.Store, like paths: [String]
  ) throws -> [String] {
    guard let base = try store.folderURL?.path(percentEncoded: false) else {
      throw SystemFailure(code: ENOENT)
    }
    return paths.map { base + "/" + $0.split(separator: "/").suffix(2).joined(separator: "/") }
  }
}
