// A cache to measure in, and where its files lie.
import Foundation
import Keepsake

/// A cache in a directory of its own, with all subdirectories made, so that no set has to.
struct EmptyCache {
  static let name = "cache"

  let host: String
  let root: String
  let name: DiskCache.Name
  let store: DiskCache.Store
  let floor: FloorCache

  init(in host: String) throws {
    // For the user alone: in any other a set has to give its files the directory's mode.
    try FileManager.default.createDirectory(
      atPath: host, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    self.host = host
    name = DiskCache.Name(Self.name, in: URL(filePath: host))
    store = DiskCache.named(name)
    try store.set(Data(), forKey: "")
    root = "\(host)/\(Self.name)"
    for number in 0..<FloorCache.directoryCount {
      try FileManager.default.createDirectory(
        atPath: "\(root)/\(FloorCache.directoryName(number))", withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700])
    }
    floor = try FloorCache(in: root, lockFile: "\(host)/floor.lock")
  }

  func fill(_ count: Int, _ value: Data) throws {
    for number in 0..<count {
      try store.set(value, forKey: Caching.key(number), expiry: .days(7))
    }
    sync()
  }

  /// Where the values of these keys lie.
  func payloads(_ keys: [String]) throws -> [String] { try Self.payloads(keys, store) }

  static func payloads(_ keys: [String], _ store: DiskCache.Store) throws -> [String] {
    try keys.map { key in
      guard let url = try store.fileURL(key) else { throw SystemFailure(code: ENOENT) }
      return url.path(percentEncoded: false)
    }
  }

  /// The same for a cache whose files have moved: one that is asked would know them after that.
  static func payloads(
    _ keys: [String], _ store: DiskCache.Store, like paths: [String]
  ) throws -> [String] {
    guard let root = try store.folderURL?.path(percentEncoded: false) else {
      throw SystemFailure(code: ENOENT)
    }
    return paths.map { root + "/" + $0.split(separator: "/").suffix(2).joined(separator: "/") }
  }
}
