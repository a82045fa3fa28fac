import FoundationEssentials
import Keepsake

/// Which apps have anything, as their folders show: only one app's stores can be open in a process.
enum Apps {
  private struct App: Encodable {
    var app: String
    var suites = 0
    var secrets = 0
    var caches = 0
  }

  private static let ownName = "keepsakectl"

  static func list(_ arguments: Arguments) throws -> Int32 {
    if !arguments.words.isEmpty { return try Contents.show(arguments) }
    try StorageSystem.bootstrap(app: ownName)
    var apps: [String: App] = [:]
    func add(_ folder: URL, _ count: (Folder, inout App) throws -> Void) {
      let parent = Folder(folder.deletingLastPathComponent())
      for name in Reports.attempt({ try names(of: folder.lastPathComponent, in: parent) }) ?? [] {
        var app = apps[name] ?? App(app: name)
        Reports.attempt { try count(parent.subfolder(name), &app) }
        if app.suites + app.secrets + app.caches > 0 { apps[name] = app }
      }
    }
    // This program's own places, where it has nothing, lie beside all others.
    if let file = try Defaults.shared.fileURL {
      add(file.deletingLastPathComponent()) { $1.suites = try suites(in: $0) }
    }
    add(try SecureVault.shared.folderURL.deletingLastPathComponent()) {
      $1.secrets = try secrets(in: $0)
    }
    if let folder = try DiskCache.shared.folderURL {
      add(folder.deletingLastPathComponent().deletingLastPathComponent()) {
        $1.caches = try caches(in: $0)
      }
    }

    let found = apps.values.sorted { $0.app < $1.app }
    if arguments.has("json") {
      try Output.show(json: found)
    } else if found.isEmpty {
      Output.note("No app has anything here.")
    } else {
      Table.show(
        ["APP", "SUITES", "SECRETS", "CACHES"],
        found.map { [$0.app, "\($0.suites)", "\($0.secrets)", "\($0.caches)"] })
    }
    return Reports.status
  }

  /// The folders of apps: all, or that of a systemd unit, which is not named as this program.
  private static func names(of own: String, in parent: Folder) throws -> [String] {
    own == ownName ? try folders(in: parent).map { String($0.dropLast()) } : [own]
  }

  private static func folders(in folder: Folder, _ path: String = "") throws -> [String] {
    try folder.list(path).filter { $0.hasSuffix("/") }
  }

  /// Other programs have files of lines of JSON as well, but no such lock beside them.
  private static func suites(in folder: Folder) throws -> Int {
    let names = Set(try folder.list(includingHidden: true))
    return names.count { name in
      name.hasSuffix(".jsonl") && names.contains(".\(name.dropLast(6)).lock")
    }
  }

  private static func secrets(in folder: Folder) throws -> Int {
    // An app's folder may have any file of this name.
    guard try folders(in: folder).contains("vault/") else { return 0 }
    let services = try folders(in: folder, "vault").filter { $0.count == 33 }
    return try services.reduce(0) { count, service in
      count + (try folder.list("vault/" + service).count { $0.count == 32 })
    }
  }

  private static func caches(in folder: Folder) throws -> Int {
    guard try folders(in: folder).contains("caches/") else { return 0 }
    return try folders(in: folder, "caches").count { name in
      try folder.exists("caches/\(name)CACHEDIR.TAG")
    }
  }
}

/// What one app has; null stands for what cannot be looked at.
private struct Contents: Encodable {
  struct Suite: Encodable {
    var name: String
    var keys: Nullable<Int>
  }
  struct Service: Encodable {
    var name: String
    var secrets: Nullable<Int>
  }
  struct Cache: Encodable {
    var name: String
    var entries: Nullable<Int>
    var bytes: Nullable<Int>
  }

  var app: String
  var suites: [Suite]
  /// What the vault is under.
  var vault: Nullable<String>
  /// None where the vault does not open by itself.
  var services: Nullable<[Service]>
  var caches: [Cache]

  init(of app: String) {
    self.app = app
    let suites = Reports.attempt { try Reports.strictly { Defaults.suites() } } ?? []
    self.suites = suites.map { suite in
      let keys = Reports.attempt { try Defaults.suite(suite).keys().count }
      return Suite(name: suite.name, keys: Nullable(value: keys))
    }
    let secrets = Reports.attempt {
      let vault = SecureVault.shared
      let protection = try vault.protection
      // A vault without its header is under nothing, and says so here.
      return (protection, try vault.isLocked ? nil : Reports.attempt { try Self.services() })
    }
    let protection = secrets?.0
    vault = Nullable(value: protection.map { "\($0)" })
    services = Nullable(value: protection == nil ? nil : secrets?.1)
    let caches = Reports.attempt { try Reports.strictly { DiskCache.caches() } } ?? []
    self.caches = caches.map { name in
      let counts = Reports.attempt {
        let cache = DiskCache.named(name)
        return (try cache.keys().count, try cache.totalSize)
      }
      return Cache(
        name: name.name, entries: Nullable(value: counts?.0), bytes: Nullable(value: counts?.1))
    }
  }

  private static func services() throws -> [Service] {
    try Reports.strictly { SecureVault.services() }.map { service in
      let secrets = Reports.attempt { try SecureVault.service(service).keys().count }
      return Service(name: service.name, secrets: Nullable(value: secrets))
    }
  }

  private var rows: [[String]] {
    let unknown = "not readable"
    var rows = suites.map { suite in
      ["settings", suite.name, suite.keys.value.map { Output.count($0, "key") } ?? unknown]
    }
    if let vault = vault.value {
      let isOpen = services.value != nil
      rows.append(["vault", "", "under a \(vault)" + (isOpen ? "" : ", locked")])
    }
    rows += (services.value ?? []).map { service in
      [
        "service", service.name,
        service.secrets.value.map { Output.count($0, "secret") } ?? unknown,
      ]
    }
    rows += caches.map { cache in
      let size = cache.bytes.value.map { ", \(ByteCount($0))" } ?? ""
      let entries = cache.entries.value.map { Output.count($0, "entry", "entries") }
      return ["cache", cache.name, entries.map { $0 + size } ?? unknown]
    }
    return rows
  }

  static func show(_ arguments: Arguments) throws -> Int32 {
    try arguments.enterApp()
    let contents = Contents(of: arguments.app)
    let rows = contents.rows
    if rows.isEmpty, Reports.status == 0 { throw Failure.nothing(of: arguments.app) }
    if arguments.has("json") {
      try Output.show(json: contents)
    } else if !rows.isEmpty {
      Table.show(["KIND", "NAME", "HOLDS"], rows)
    }
    return Reports.status
  }
}
