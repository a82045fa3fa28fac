import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The commands that begin with `cache`.
enum CacheCommands {
  private struct Entry: Encodable {
    var cache: String
    var key: String
    var bytes: Int
    var created: Date
    /// Null for an entry that never expires.
    @Nullable var expires: Date?
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
    @Nullable var medianAge: Int?
    @Nullable var greatestAge: Int?
    /// The number of entries that expire within the hour, the day after that, the week after that,
    /// later, and never.
    var expireWithinHour = 0
    var expireWithinDay = 0
    var expireWithinWeek = 0
    var expireLater = 0
    var expireNever = 0

    init(_ cache: DiskCache.Store, _ entries: [Entry], bytesOnDisk: Int, now: Date) {
      self.cache = cache.name.name
      self.entries = entries.count
      bytes = entries.reduce(0) { $0 + $1.bytes }
      self.bytesOnDisk = bytesOnDisk
      let ages = entries.map { max(0, Int(now.timeIntervalSince($0.created))) }.sorted()
      medianAge = ages.isEmpty ? nil : ages[ages.count / 2]
      greatestAge = ages.last
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

  private static func entries(of caches: [DiskCache.Store]) -> [Entry] {
    var entries: [Entry] = []
    for cache in caches {
      let keys = Diagnostics.attempt { try cache.keys() } ?? []
      Progress.each("Reading \(cache.name)", keys.sorted()) { key in
        let entry = Diagnostics.attempt { try cache.entry(key) } ?? nil
        if let entry {
          entries.append(
            Entry(
              cache: cache.name.name, key: key, bytes: entry.size, created: entry.created,
              expires: entry.expires))
        }
      }
    }
    return entries
  }

  private static func show(_ entries: [Entry], for arguments: Arguments) throws {
    try Table.show(entries, for: arguments, ["CACHE", "KEY", "SIZE", "CREATED", "EXPIRES"]) {
      [
        $0.cache, $0.key, "\(ByteCount($0.bytes))", Output.time($0.created),
        $0.expires.map(Output.time) ?? "never",
      ]
    }
  }

  static func list(_ arguments: Arguments) throws {
    try show(entries(of: try caches(arguments)), for: arguments)
  }

  static func expiry(_ arguments: Arguments) throws {
    func expiry(_ entry: Entry) -> Date { entry.expires ?? .distantFuture }
    let expiring = entries(of: try caches(arguments)).filter { $0.expires != nil }
    try show(expiring.sorted { expiry($0) < expiry($1) }, for: arguments)
  }

  static func sizes(_ arguments: Arguments) throws {
    let sizes = try caches(arguments).compactMap { cache in
      Diagnostics.attempt {
        Size(cache: cache.name.name, entries: try cache.keys().count, bytes: try cache.totalSize)
      }
    }
    try Table.show(sizes, for: arguments, ["CACHE", "ENTRIES", "ON DISK"]) {
      [$0.cache, "\($0.entries)", "\(ByteCount($0.bytes))"]
    }
  }

  static func stats(_ arguments: Arguments) throws {
    let now = Date()
    let stats = try caches(arguments).compactMap { cache in
      Diagnostics.attempt {
        Stats(cache, entries(of: [cache]), bytesOnDisk: try cache.totalSize, now: now)
      }
    }
    let headings = [
      "CACHE", "ENTRIES", "SIZE", "ON DISK", "MEDIAN AGE", "OLDEST", "END IN 1 H", "1 DAY",
      "7 DAYS", "LATER", "NEVER",
    ]
    try Table.show(stats, for: arguments, headings) {
      [
        $0.cache, "\($0.entries)", "\(ByteCount($0.bytes))", "\(ByteCount($0.bytesOnDisk))",
        age($0.medianAge), age($0.greatestAge), "\($0.expireWithinHour)", "\($0.expireWithinDay)",
        "\($0.expireWithinWeek)", "\($0.expireLater)", "\($0.expireNever)",
      ]
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
    try Table.show(results, for: arguments, ["CACHE", "EXPIRED"]) {
      [$0.cache, "\($0.expired)"]
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
