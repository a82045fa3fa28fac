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
    func add(_ parent: URL, _ own: String, _ count: (Folder, inout App) throws -> Void) throws {
      for name in try names(of: own, in: parent) {
        var app = apps[name] ?? App(app: name)
        try count(Folder(parent).subfolder(name), &app)
        if app.suites + app.secrets + app.caches > 0 { apps[name] = app }
      }
    }
    // This program's own places, where it has nothing, lie beside all others.
    if let file = try Defaults.shared.fileURL {
      let folder = file.deletingLastPathComponent()
      try add(folder.deletingLastPathComponent(), folder.lastPathComponent) { folder, app in
        app.suites = try suites(in: folder)
      }
    }
    let data = try SecureVault.shared.folderURL.deletingLastPathComponent()
    try add(data.deletingLastPathComponent(), data.lastPathComponent) { folder, app in
      app.secrets = try secrets(in: folder)
    }
    if let folder = try DiskCache.shared.folderURL {
      let cache = folder.deletingLastPathComponent().deletingLastPathComponent()
      try add(cache.deletingLastPathComponent(), cache.lastPathComponent) { folder, app in
        app.caches = try caches(in: folder)
      }
    }

    let found = apps.values.sorted { $0.app < $1.app }
    if arguments.has("json") {
      try Output.show(json: found)
    } else if !found.isEmpty {
      Output.show(
        ["APP", "SUITES", "SECRETS", "CACHES"],
        found.map { [$0.app, "\($0.suites)", "\($0.secrets)", "\($0.caches)"] })
    }
    return 0
  }

  /// The folders of apps: all, or that of a systemd unit, which is not named as this program.
  private static func names(of own: String, in parent: URL) throws -> [String] {
    guard own == ownName else { return [own] }
    return folders(in: Folder(parent)).map { String($0.dropLast()) }
  }

  /// None of what cannot be looked at: the folders of other programs may be anything.
  private static func folders(in folder: Folder, _ path: String = "") -> [String] {
    ((try? folder.list(path)) ?? []).filter { $0.hasSuffix("/") }
  }

  /// Other programs have files of lines of JSON as well, but no such lock beside them.
  private static func suites(in folder: Folder) throws -> Int {
    let names = Set((try? folder.list(includingHidden: true)) ?? [])
    return names.count { name in
      name.hasSuffix(".jsonl") && names.contains(".\(name.dropLast(6)).lock")
    }
  }

  private static func secrets(in folder: Folder) throws -> Int {
    let services = folders(in: folder, "vault")
    return services.filter { $0.count == 33 }.reduce(0) { count, service in
      count + ((try? folder.list("vault/" + service)) ?? []).count { $0.count == 32 }
    }
  }

  private static func caches(in folder: Folder) throws -> Int {
    folders(in: folder, "caches").count { name in
      (try? folder.exists("caches/\(name)CACHEDIR.TAG")) == true
    }
  }
}

/// What one app has.
private struct Contents: Encodable {
  struct Suite: Encodable {
    var name: String
    var keys: Int
  }
  struct Service: Encodable {
    var name: String
    var secrets: Int
  }
  struct Cache: Encodable {
    var name: String
    var entries: Int
    var bytes: Int
  }

  var app: String
  var suites: [Suite]
  /// What the vault is under.
  var vault: Nullable<String>
  /// None where the vault does not open by itself.
  var services: Nullable<[Service]>
  var caches: [Cache]

  init(of app: String) throws {
    self.app = app
    suites = try Reports.strictly { Defaults.suites() }.map { suite in
      Suite(name: suite.name, keys: try Defaults.suite(suite).keys().count)
    }
    let secrets = SecureVault.shared
    let protection = try secrets.protection
    vault = Nullable(value: protection.map { "\($0)" })
    // A vault without its header is under nothing, and says so here.
    let services = try secrets.isLocked ? nil : Self.services()
    self.services = Nullable(value: protection == nil ? nil : services)
    caches = try Reports.strictly { DiskCache.caches() }.map { name in
      let cache = DiskCache.named(name)
      return Cache(name: name.name, entries: try cache.keys().count, bytes: try cache.totalSize)
    }
  }

  private static func services() throws -> [Service] {
    try Reports.strictly { SecureVault.services() }.map { service in
      Service(name: service.name, secrets: try SecureVault.service(service).keys().count)
    }
  }

  static func show(_ arguments: Arguments) throws -> Int32 {
    try arguments.enterApp()
    let contents = try Contents(of: arguments.app)
    guard !contents.suites.isEmpty || contents.vault.value != nil || !contents.caches.isEmpty else {
      throw Failure.nothing(of: arguments.app)
    }
    if arguments.has("json") {
      try Output.show(json: contents)
      return Reports.status
    }
    var rows = contents.suites.map { ["settings", $0.name, Output.count($0.keys, "key")] }
    if let vault = contents.vault.value {
      rows.append([
        "vault", "", "under a \(vault)" + (contents.services.value == nil ? ", locked" : ""),
      ])
      rows += (contents.services.value ?? []).map { service in
        ["service", service.name, Output.count(service.secrets, "secret")]
      }
    }
    rows += contents.caches.map { cache in
      let entries = Output.count(cache.entries, "entry", "entries")
      return ["cache", cache.name, "\(entries), \(ByteCount(cache.bytes))"]
    }
    Output.show(["KIND", "NAME", "HOLDS"], rows)
    return Reports.status
  }
}

extension Failure {
  static func nothing(of app: String) -> Failure {
    Failure(message: "\(app) has nothing here. `keepsakectl list` shows who has.")
  }
}
