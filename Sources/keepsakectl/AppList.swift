import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The apps that have stored something, found by the names of their directories. A process can open
/// the stores of one app only.
enum AppList {
  private struct App: Encodable {
    var app: String
    var suites = 0
    var secrets = 0
    var caches = 0
  }

  private static let ownName = "keepsakectl"

  static func show(_ arguments: Arguments) throws {
    if !arguments.words.isEmpty { return try AppContents.show(arguments) }
    if arguments.hasOption("server") {
      throw Failure.usage("with --server, list needs the name of an app. Name one.")
    }
    let found = try apps()
    if found.isEmpty, !arguments.hasOption("json") {
      return Output.note("No app has stored anything here.")
    }
    try Table.show(found, for: arguments, ["APP", "SUITES", "SECRETS", "CACHES"]) {
      [$0.app, "\($0.suites)", "\($0.secrets)", "\($0.caches)"]
    }
  }

  /// The names of all apps, sorted.
  static func names() throws -> [String] { try apps().map(\.app) }

  private static func apps() throws -> [App] {
    try StorageSystem.bootstrap(app: ownName)
    var apps: [String: App] = [:]
    func countStores(beside directory: URL, _ count: (Folder, inout App) throws -> Void) {
      let found = Diagnostics.attempt { try appDirectories(beside: directory) } ?? []
      for (name, folder) in found {
        var app = apps[name] ?? App(app: name)
        Diagnostics.attempt { try count(folder, &app) }
        if app.suites + app.secrets + app.caches > 0 { apps[name] = app }
      }
    }
    // This program stores nothing itself, but its directories would be beside the directories of
    // all apps.
    if let file = try Defaults.shared.fileURL {
      countStores(beside: file.deletingLastPathComponent()) { $1.suites = try suites(in: $0) }
    }
    countStores(beside: try SecureVault.shared.folderURL.deletingLastPathComponent()) {
      $1.secrets = try secrets(in: $0)
    }
    if let directory = try DiskCache.shared.folderURL {
      countStores(beside: directory.deletingLastPathComponent().deletingLastPathComponent()) {
        $1.caches = try caches(in: $0)
      }
    }
    return apps.values.sorted { $0.app < $1.app }
  }

  /// The directories beside this program's own.
  ///
  /// In a systemd unit, the variables give the directory of the unit's one app, which does not have
  /// this program's name.
  private static func appDirectories(beside own: URL) throws -> [(name: String, folder: Folder)] {
    let name = own.lastPathComponent
    if name != ownName { return [(name, Folder(own))] }
    return try directories(in: Folder(own.deletingLastPathComponent()))
  }

  /// The directories in a folder. A link to one counts, because it may be a store's own path.
  private static func directories(in folder: Folder) throws -> [(name: String, folder: Folder)] {
    let directory = try folder.url().path(percentEncoded: false)
    return try folder.list().compactMap { name in
      guard name.hasSuffix("/") || access("\(directory)/\(name)/.", F_OK) == 0 else { return nil }
      let name = String(name.prefix { $0 != "/" })
      return (name, Folder(URL(filePath: "\(directory)/\(name)")))
    }
  }

  /// Counts journals by their first bytes, because the app may have other files of JSON lines.
  private static func suites(in folder: Folder) throws -> Int {
    let directory = try folder.url().path(percentEncoded: false)
    return try folder.list(includingHidden: true).count {
      $0.hasSuffix(".jsonl") && isJournal("\(directory)/\($0)")
    }
  }

  /// Whether a file begins as a journal does. A link is followed, as the library does; a file that
  /// cannot be read counts, so that the doctor looks at it.
  private static func isJournal(_ path: String) -> Bool {
    // Opening a pipe must not wait for its writer.
    let file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else { return errno == EACCES }
    defer { close(file) }
    let start = Array(#"["keepsake.v1","#.utf8)
    var bytes = [UInt8](repeating: 0, count: start.count)
    return pread(file, &bytes, start.count, 0) == start.count && bytes == start
  }

  private static func secrets(in folder: Folder) throws -> Int {
    // The app may have a file of this name.
    guard let vault = try directories(in: folder).first(where: { $0.name == "vault" })
    else { return 0 }
    let services = try directories(in: vault.folder).filter { $0.name.count == 32 }
    return try services.reduce(0) { count, service in
      count + (try service.folder.list().count { $0.count == 32 })
    }
  }

  private static func caches(in folder: Folder) throws -> Int {
    guard let caches = try directories(in: folder).first(where: { $0.name == "caches" })
    else { return 0 }
    return try directories(in: caches.folder).count { try $0.folder.exists("CACHEDIR.TAG") }
  }
}
