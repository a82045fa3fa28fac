import Keepsake
import KeepsakeValkey

/// The stores of one app, here or on a server. Numbers that cannot be read are null.
struct AppContents: Encodable {
  private struct Suite: Encodable {
    var name: String
    @Nullable var keys: Int?
  }
  private struct Service: Encodable {
    var name: String
    @Nullable var secrets: Int?
  }
  private struct Cache: Encodable {
    var name: String
    @Nullable var entries: Int?
    @Nullable var bytes: Int?
  }

  private var app: String
  private var suites: [Suite]
  /// What protects the vault; null if there is no vault.
  @Nullable private var vault: String?
  /// Null if the vault does not open without a prompt.
  @Nullable private var services: [Service]?
  private var caches: [Cache]

  /// The suites of this machine or of a server.
  static func suites(of app: String, on server: ValkeyBacking?) throws -> [Defaults.Suite] {
    guard let server else { return try Diagnostics.names { try Defaults.shared.suites() } }
    return try server.suites(app: app).sorted { $0.name < $1.name }
  }

  private init(of app: String, on server: ValkeyBacking?) {
    self.app = app
    let suites = Diagnostics.attempt { try Self.suites(of: app, on: server) } ?? []
    self.suites = suites.map { suite in
      let keys = Diagnostics.attempt { try Defaults.suite(suite).keys().count }
      return Suite(name: suite.name, keys: keys)
    }
    let secrets = Diagnostics.attempt {
      let vault = SecureVault.shared
      let protection = try vault.protection
      // Listing the services reports a missing header; the vault then has no protection.
      return (
        protection, try vault.isLocked ? nil : Diagnostics.attempt { try Self.listServices() }
      )
    }
    let protection = secrets?.0
    vault = protection.map { "\($0)" }
    services = protection == nil ? nil : secrets?.1
    let caches =
      server == nil
      ? Diagnostics.attempt { try Diagnostics.names { try DiskCache.shared.caches() } } : nil
    self.caches = (caches ?? []).map { name in
      let counts = Diagnostics.attempt {
        let cache = DiskCache.named(name)
        return (try cache.keys().count, try cache.totalSize)
      }
      return Cache(name: name.name, entries: counts?.0, bytes: counts?.1)
    }
  }

  private static func listServices() throws -> [Service] {
    try Diagnostics.names { SecureVault.services() }.map { service in
      let secrets = Diagnostics.attempt { try SecureVault.service(service).keys().count }
      return Service(name: service.name, secrets: secrets)
    }
  }

  private var rows: [[String]] {
    let unreadable = "unreadable"
    var rows = suites.map { suite in
      ["settings", suite.name, suite.keys.map { Output.count($0, "key") } ?? unreadable]
    }
    if let vault {
      let state = services == nil ? ", locked" : ""
      rows.append(["vault", "", "protected by a \(vault)" + state])
    }
    rows += (services ?? []).map { service in
      ["service", service.name, service.secrets.map { Output.count($0, "secret") } ?? unreadable]
    }
    rows += caches.map { cache in
      let size = cache.bytes.map { ", \(ByteCount($0))" } ?? ""
      let entries = cache.entries.map { Output.count($0, "entry", "entries") }
      return ["cache", cache.name, entries.map { $0 + size } ?? unreadable]
    }
    return rows
  }

  static func show(_ arguments: Arguments) throws {
    let server = try arguments.bootstrapApp()
    let contents = AppContents(of: arguments.app, on: server)
    let rows = contents.rows
    if rows.isEmpty, Diagnostics.status == 0 {
      throw Failure.nothingStored(
        by: arguments.app, on: server,
        server == nil ? "no settings, secrets or caches" : "no settings or secrets")
    }
    if arguments.hasOption("json") {
      try Output.show(json: contents)
    } else if !rows.isEmpty {
      try Table.show(["KIND", "NAME", "CONTENTS"], rows)
    }
  }
}
