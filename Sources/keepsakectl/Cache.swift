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

  private typealias Found = (cache: String, key: String, entry: DiskCache.Entry)

  /// The cache that was named, or all of the app's.
  private static func caches(_ arguments: Arguments) throws -> [DiskCache.Store] {
    try arguments.enterApp()
    let names = try Reports.strictly { DiskCache.caches() }
    if names.isEmpty { throw Failure.nothing(of: arguments.app, "no cache") }
    guard let place = arguments.place else { return names.map { DiskCache.named($0) } }
    let name = DiskCache.Name(place)
    guard names.contains(name) else {
      throw Failure.missing("cache \"\(place)\"", of: arguments.app, has: names.map(\.name))
    }
    return [DiskCache.named(name)]
  }

  private static func show(
    _ arguments: Arguments, _ order: ([Found]) -> [Found] = { $0 }
  ) throws -> Int32 {
    var found: [Found] = []
    for cache in try caches(arguments) {
      let keys = Reports.attempt { try cache.keys() } ?? []
      Progress.each("Looking at \(cache.name)", keys.sorted()) { key in
        let entry = Reports.attempt { try cache.entry(key) } ?? nil
        if let entry { found.append((cache.name.name, key, entry)) }
      }
    }
    found = order(found)
    if arguments.has("json") {
      try Output.show(
        json: found.map { cache, key, entry in
          Entry(
            cache: cache, key: key, bytes: entry.size, created: entry.created.ISO8601Format(),
            expires: Nullable(value: entry.expires?.ISO8601Format()))
        })
    } else {
      Table.show(
        ["CACHE", "KEY", "SIZE", "CREATED", "ENDS"],
        found.map { cache, key, entry in
          [
            cache, key, "\(ByteCount(entry.size))", Output.time(entry.created),
            entry.expires.map(Output.time) ?? "never",
          ]
        })
    }
    return Reports.status
  }

  static func list(_ arguments: Arguments) throws -> Int32 { try show(arguments) }

  static func expiry(_ arguments: Arguments) throws -> Int32 {
    func end(_ found: Found) -> Date { found.entry.expires ?? .distantFuture }
    return try show(arguments) { found in
      found.filter { $0.entry.expires != nil }.sorted { end($0) < end($1) }
    }
  }

  static func sizes(_ arguments: Arguments) throws -> Int32 {
    let sizes = try caches(arguments).compactMap { cache in
      Reports.attempt {
        Size(cache: cache.name.name, entries: try cache.keys().count, bytes: try cache.totalSize)
      }
    }
    if arguments.has("json") {
      try Output.show(json: sizes)
    } else {
      Table.show(
        ["CACHE", "ENTRIES", "ON DISK"],
        sizes.map { [$0.cache, "\($0.entries)", "\(ByteCount($0.bytes))"] })
    }
    return Reports.status
  }

  static func sweep(_ arguments: Arguments) throws -> Int32 {
    var swept: [Swept] = []
    Progress.each("Sweeping", try caches(arguments)) { cache in
      let expired = Reports.attempt { try cache.removeExpired() }
      if let expired { swept.append(Swept(cache: cache.name.name, expired: expired)) }
    }
    if arguments.has("json") {
      try Output.show(json: swept)
    } else {
      Table.show(["CACHE", "EXPIRED"], swept.map { [$0.cache, "\($0.expired)"] })
    }
    return Reports.status
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
    var cleared: [String] = []
    Progress.each("Clearing", caches) { cache in
      if Reports.attempt({ try cache.removeAll() }) != nil { cleared.append(cache.name.name) }
    }
    if !cleared.isEmpty { print("Cleared \(Output.visible(cleared.joined(separator: ", "))).") }
    return Reports.status
  }
}
