import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// The caches of an app, entry by entry.
enum Cache {
  private struct Entry: Encodable {
    var cache: String
    var key: String
    var bytes: Int
    var created: String
    /// None: never by itself.
    var expires: Nullable<String>
  }

  private struct Size: Encodable {
    var cache: String
    var entries: Int
    var bytes: Int
  }

  private struct Swept: Encodable {
    var cache: String
    var expired: Int
  }

  /// The cache that was named, or all of the app's.
  private static func caches(_ arguments: Arguments) throws -> [DiskCache.Store] {
    try arguments.enterApp()
    let names = try Reports.strictly { DiskCache.caches() }
    guard !names.isEmpty else {
      throw Failure(
        message: "\(arguments.app) has no cache here. `keepsakectl list` shows who has.")
    }
    guard let place = arguments.place else { return names.map { DiskCache.named($0) } }
    let name = DiskCache.Name(place)
    guard names.contains(name) else {
      let others = names.map(\.name).joined(separator: ", ")
      throw Failure(message: "\(arguments.app) has no cache \(place). It has: \(others).")
    }
    return [DiskCache.named(name)]
  }

  private static func entries(
    _ arguments: Arguments
  ) throws -> [(cache: String, key: String, entry: DiskCache.Entry)] {
    var entries: [(cache: String, key: String, entry: DiskCache.Entry)] = []
    for cache in try caches(arguments) {
      let keys = try cache.keys()
      var progress = Progress("Looking at \(cache.name)", of: keys.count)
      for key in keys.sorted() {
        progress.step()
        if let entry = try cache.entry(key) { entries.append((cache.name.name, key, entry)) }
      }
    }
    Progress.clear()
    return entries
  }

  private static func show(
    _ entries: [(cache: String, key: String, entry: DiskCache.Entry)], asJSON: Bool
  ) throws {
    if asJSON {
      try Output.show(
        json: entries.map { cache, key, entry in
          Entry(
            cache: cache, key: key, bytes: entry.size, created: entry.created.ISO8601Format(),
            expires: Nullable(value: entry.expires?.ISO8601Format()))
        })
    } else {
      Output.show(
        ["CACHE", "KEY", "SIZE", "CREATED", "ENDS"],
        entries.map { cache, key, entry in
          [
            cache, key, "\(ByteCount(entry.size))", Output.time(entry.created),
            entry.expires.map(Output.time) ?? "never",
          ]
        })
    }
  }

  static func list(_ arguments: Arguments) throws -> Int32 {
    try show(try entries(arguments), asJSON: arguments.has("json"))
    return 0
  }

  static func expiry(_ arguments: Arguments) throws -> Int32 {
    let ending = try entries(arguments).filter { $0.entry.expires != nil }
    let sorted = ending.sorted {
      $0.entry.expires ?? .distantFuture < $1.entry.expires ?? .distantFuture
    }
    try show(sorted, asJSON: arguments.has("json"))
    return 0
  }

  static func sizes(_ arguments: Arguments) throws -> Int32 {
    let sizes = try caches(arguments).map { cache in
      Size(cache: cache.name.name, entries: try cache.keys().count, bytes: try cache.totalSize)
    }
    if arguments.has("json") {
      try Output.show(json: sizes)
    } else {
      Output.show(
        ["CACHE", "ENTRIES", "ON DISK"],
        sizes.map { [$0.cache, "\($0.entries)", "\(ByteCount($0.bytes))"] })
    }
    return 0
  }

  static func sweep(_ arguments: Arguments) throws -> Int32 {
    let caches = try caches(arguments)
    var progress = Progress("Sweeping", of: caches.count)
    let swept = try caches.map { cache in
      progress.step()
      return Swept(cache: cache.name.name, expired: try cache.removeExpired())
    }
    Progress.clear()
    if arguments.has("json") {
      try Output.show(json: swept)
    } else {
      Output.show(["CACHE", "EXPIRED"], swept.map { [$0.cache, "\($0.expired)"] })
    }
    return 0
  }

  static func clear(_ arguments: Arguments) throws -> Int32 {
    let caches = try caches(arguments)
    let names = caches.map(\.name.name).joined(separator: ", ")
    if !arguments.has("yes") {
      guard isatty(STDIN_FILENO) == 1 else {
        throw Failure.usage("nobody can be asked whether to clear \(names). Add --yes.")
      }
      Output.ask("Clear \(names) of \(arguments.app)? [y/N] ")
      guard let answer = readLine(), ["y", "yes"].contains(answer.lowercased()) else {
        throw Failure(message: "nothing was removed. Answer y, or add --yes.")
      }
    }
    var progress = Progress("Clearing", of: caches.count)
    for cache in caches {
      progress.step()
      try cache.removeAll()
    }
    Progress.clear()
    print("Cleared \(Output.visible(names)).")
    return 0
  }
}
