import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The commands that begin with `cache`.
enum CacheCommands {
  private struct Entry: Encodable {
    var cache: String
    var key: String
    var bytes: Int
    var created: String
    /// Null for an entry that never expires.
    var expires: Nullable<String>
  }

  private struct Size: Encodable {
    var cache: String
    var entries: Int
    var bytes: Int
  }

  /// What the entries of a cache have in common: their ages, and when they expire.
  private struct Stats: Encodable {
    var cache: String
    var entries: Int
    /// Of the values.
    var bytes: Int
    var bytesOnDisk: Int
    /// In seconds; null without entries.
    var medianAge: Nullable<Int>
    var greatestAge: Nullable<Int>
    /// The number of entries that expire within the hour, the day after that, the week after that,
    /// later, and never.
    var expireWithinHour = 0
    var expireWithinDay = 0
    var expireWithinWeek = 0
    var expireLater = 0
    var expireNever = 0

    init(_ cache: DiskCache.Store, _ entries: [DiskCache.Entry], bytesOnDisk: Int, now: Date) {
      self.cache = cache.name.name
      self.entries = entries.count
      bytes = entries.reduce(0) { $0 + $1.size }
      self.bytesOnDisk = bytesOnDisk
      let ages = entries.map { max(0, Int(now.timeIntervalSince($0.created))) }.sorted()
      medianAge = Nullable(value: ages.isEmpty ? nil : ages[ages.count / 2])
      greatestAge = Nullable(value: ages.last)
      for entry in entries {
        guard let expires = entry.expires else {
          expireNever += 1
          continue
        }
        switch expires.timeIntervalSince(now) {
        case ...3_600: expireWithinHour += 1
        case ...86_400: expireWithinDay += 1
        case ...604_800: expireWithinWeek += 1
        default: expireLater += 1
        }
      }
    }
  }

  private struct SweepResult: Encodable {
    var cache: String
    var expired: Int
  }

  private typealias Found = (cache: String, key: String, entry: DiskCache.Entry)

  /// The cache that the arguments name, or all caches of the app.
  private static func caches(_ arguments: Arguments) throws -> [DiskCache.Store] {
    try arguments.bootstrapApp()
    let names = try Diagnostics.names { try DiskCache.shared.caches() }
    if names.isEmpty { throw Failure.nothingStored(by: arguments.app, "no cache") }
    guard let storeName = arguments.storeName else { return names.map { DiskCache.named($0) } }
    let name = DiskCache.Name(storeName)
    guard names.contains(name) else {
      throw Failure.missing(
        "cache \"\(storeName)\"", of: arguments.app, existing: names.map(\.name))
    }
    return [DiskCache.named(name)]
  }

  private static func entries(of caches: [DiskCache.Store]) -> [Found] {
    var found: [Found] = []
    for cache in caches {
      let keys = Diagnostics.attempt { try cache.keys() } ?? []
      Progress.each("Reading \(cache.name)", keys.sorted()) { key in
        let entry = Diagnostics.attempt { try cache.entry(key) } ?? nil
        if let entry { found.append((cache.name.name, key, entry)) }
      }
    }
    return found
  }

  private static func show(_ entries: [Found], asJSON: Bool) throws {
    if asJSON {
      try Output.show(
        json: entries.map { cache, key, entry in
          Entry(
            cache: cache, key: key, bytes: entry.size, created: entry.created.ISO8601Format(),
            expires: Nullable(value: entry.expires?.ISO8601Format()))
        })
    } else {
      try Table.show(
        ["CACHE", "KEY", "SIZE", "CREATED", "EXPIRES"],
        entries.map { cache, key, entry in
          [
            cache, key, "\(ByteCount(entry.size))", Output.time(entry.created),
            entry.expires.map(Output.time) ?? "never",
          ]
        })
    }
  }

  static func list(_ arguments: Arguments) throws {
    try show(entries(of: try caches(arguments)), asJSON: arguments.hasOption("json"))
  }

  static func expiry(_ arguments: Arguments) throws {
    func expiry(_ found: Found) -> Date { found.entry.expires ?? .distantFuture }
    let expiring = entries(of: try caches(arguments)).filter { $0.entry.expires != nil }
    return try show(
      expiring.sorted { expiry($0) < expiry($1) }, asJSON: arguments.hasOption("json"))
  }

  static func sizes(_ arguments: Arguments) throws {
    let sizes = try caches(arguments).compactMap { cache in
      Diagnostics.attempt {
        Size(cache: cache.name.name, entries: try cache.keys().count, bytes: try cache.totalSize)
      }
    }
    if arguments.hasOption("json") {
      try Output.show(json: sizes)
    } else {
      try Table.show(
        ["CACHE", "ENTRIES", "ON DISK"],
        sizes.map { [$0.cache, "\($0.entries)", "\(ByteCount($0.bytes))"] })
    }
  }

  static func stats(_ arguments: Arguments) throws {
    let now = Date()
    let stats = try caches(arguments).compactMap { cache in
      Diagnostics.attempt {
        let found = entries(of: [cache]).map(\.entry)
        return Stats(cache, found, bytesOnDisk: try cache.totalSize, now: now)
      }
    }
    if arguments.hasOption("json") {
      try Output.show(json: stats)
    } else {
      try Table.show(
        [
          "CACHE", "ENTRIES", "SIZE", "ON DISK", "MEDIAN AGE", "OLDEST", "END IN 1 H", "1 DAY",
          "7 DAYS", "LATER", "NEVER",
        ],
        stats.map { stats in
          [
            stats.cache, "\(stats.entries)", "\(ByteCount(stats.bytes))",
            "\(ByteCount(stats.bytesOnDisk))", age(stats.medianAge.value),
            age(stats.greatestAge.value), "\(stats.expireWithinHour)", "\(stats.expireWithinDay)",
            "\(stats.expireWithinWeek)", "\(stats.expireLater)", "\(stats.expireNever)",
          ]
        })
    }
  }

  /// An age in its largest unit.
  private static func age(_ seconds: Int?) -> String {
    switch seconds {
    case nil: "-"
    case .some(let seconds) where seconds < 60: "\(seconds) s"
    case .some(let seconds) where seconds < 3_600: "\(seconds / 60) min"
    case .some(let seconds) where seconds < 172_800: "\(seconds / 3_600) h"
    case .some(let seconds): "\(seconds / 86_400) days"
    }
  }

  static func sweep(_ arguments: Arguments) throws {
    var results: [SweepResult] = []
    Progress.each("Sweeping", try caches(arguments)) { cache in
      let expired = Diagnostics.attempt { try cache.removeExpired() }
      if let expired { results.append(SweepResult(cache: cache.name.name, expired: expired)) }
    }
    if arguments.hasOption("json") {
      try Output.show(json: results)
    } else {
      try Table.show(["CACHE", "EXPIRED"], results.map { [$0.cache, "\($0.expired)"] })
    }
  }

  static func clear(_ arguments: Arguments) throws {
    let caches = try caches(arguments)
    let names = caches.map(\.name.name).joined(separator: ", ")
    if !arguments.hasOption("yes") {
      guard isatty(STDIN_FILENO) == 1 else {
        throw Failure.usage("there is no terminal to ask whether to clear \(names). Add --yes.")
      }
      Output.ask("Clear \(names) of \(arguments.app)? [y/N] ")
      guard let answer = readLine(), ["y", "yes"].contains(answer.lowercased()) else {
        throw Failure(message: "nothing was deleted. Answer y, or add --yes.")
      }
    }
    var cleared: [String] = []
    Progress.each("Clearing", caches) { cache in
      if Diagnostics.attempt({ try cache.removeAll() }) != nil { cleared.append(cache.name.name) }
    }
    if !cleared.isEmpty {
      try Output.write("Cleared \(Output.escaped(cleared.joined(separator: ", "))).")
    }
  }
}
