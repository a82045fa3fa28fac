internal import FoundationEssentials

/// Finds the directories of an app.
struct DirectoryFinder: Sendable {
  enum Purpose: Sendable {
    case configuration, data, state, cache
  }

  let app: String
  var chosen = StorageSystem.Directories()
  var environment: @Sendable (String) throws(StorageError) -> String? = ProcessEnvironment
    .directoryVariable
  /// The user's home directory according to the system's user database.
  var registeredHome: @Sendable () throws(StorageError) -> String? = ProcessEnvironment
    .registeredHome

  /// Why a home directory cannot be used.
  var problemOfHome: @Sendable (String) -> String? = FileSystem.problem(ofHome:)

  func directory(_ purpose: Purpose) throws(StorageError) -> String {
    let (chosen, systemd, xdg, fallback) =
      switch purpose {
      case .configuration:
        (chosen.configuration, "CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME", "/.config")
      case .data: (chosen.data, "STATE_DIRECTORY", "XDG_DATA_HOME", "/.local/share")
      case .state: (chosen.state, "STATE_DIRECTORY", "XDG_STATE_HOME", "/.local/state")
      case .cache: (chosen.cache, "CACHE_DIRECTORY", "XDG_CACHE_HOME", "/.cache")
      }
    if let chosen { return try Self.path(of: chosen, operation: "bootstrap") }
    #if os(Linux)
    if let directory = try unitDirectory(systemd) { return directory }
    // "All paths set in these environment variables must be absolute. If an implementation
    // encounters a relative path […] it should consider the path invalid and ignore it."
    if let base = try environment(xdg), base.hasPrefix("/") { return base + "/" + app }
    // The configuration directory of a systemd unit without a home is usually written by an
    // administrator, and often read-only for the unit.
    if purpose == .configuration, try homeIfAny() == nil,
      let state = try unitDirectory("STATE_DIRECTORY")
    {
      return state
    }
    return try home() + fallback + "/" + app
    #else
    let library =
      switch purpose {
      case .configuration: "/Library/Preferences/"
      case .data, .state: "/Library/Application Support/"
      case .cache: "/Library/Caches/"
      }
    return try home() + library + app
    #endif
  }

  /// The directory that systemd created for the unit. The variable may list several, separated by
  /// colons; the first one is the app's own.
  private func unitDirectory(_ variable: String) throws(StorageError) -> String? {
    guard let first = try environment(variable)?.split(separator: ":").first, first.hasPrefix("/")
    else { return nil }
    return String(first)
  }

  // MARK: Documents

  /// `<documents of the user>/<app>`, according to the user's `user-dirs.dirs`.
  func documents() throws(StorageError) -> String {
    if let chosen = chosen.documents { return try Self.path(of: chosen, operation: "bootstrap") }
    let home = try home(
      remedy: "Set HOME, or pass a directory for documents to StorageSystem.bootstrap.")
    let named = XDGUserDirectories.directory("DOCUMENTS", in: try userDirectories(home), home: home)
    let documents = named ?? home + "/Documents"
    return documents + "/" + app
  }

  /// The contents of the user's `user-dirs.dirs`; empty if it is missing or cannot be read.
  private func userDirectories(_ home: String) throws(StorageError) -> [UInt8] {
    #if os(Linux)
    var configuration = home + "/.config"
    if let base = try environment("XDG_CONFIG_HOME"), base.hasPrefix("/") { configuration = base }
    if let file = try? File.openIfPresent(configuration + "/user-dirs.dirs"),
      let bytes = try? file.contents()
    {
      return Array(bytes)
    }
    #endif
    return []
  }

  // MARK: Temporary directory

  /// The temporary directory.
  func temporary() throws(StorageError) -> String {
    if let chosen = chosen.temporary { return try Self.path(of: chosen, operation: "bootstrap") }
    var base = "/tmp"
    if let named = try environment("TMPDIR"), named.hasPrefix("/") { base = named }
    return "\(base)/\(app)-\(ProcessEnvironment.userID)"
  }

  /// Creates the temporary directory if it is missing.
  ///
  /// Its parent is never created: all users share it, but a new one would belong to this user.
  func makeTemporaryDirectory() throws(StorageError) {
    if chosen.temporary != nil { return }
    let path = try temporary()
    do throws(StorageError) {
      // It stays this user's own even in another user's directory.
      try FileSystem.makeDirectory(path, mode: 0o700, followsOwner: false)
    } catch {
      guard error.code == .notFound else { throw error }
      throw StorageError(
        .notFound, operation: "open", path: FileSystem.parent(of: path),
        reason: "the temporary directory does not exist",
        remedy: "Set TMPDIR to an existing directory.")
    }
    // Another user may have created it just now.
    try requirePrivate(path)
  }

  /// Throws if other users could have created files in the temporary directory, whose parent all
  /// users share.
  func requirePrivate(_ path: String) throws(StorageError) {
    if chosen.temporary != nil { return }
    guard let status = try FileSystem.status(path, followsLinks: false) else { return }
    guard status.isDirectory, status.owner == ProcessEnvironment.userID, status.mode & 0o022 == 0
    else {
      throw StorageError(
        .accessDenied, operation: "open", path: path,
        reason: "other users could write to the temporary directory, or it is not a directory",
        remedy: "Delete what is there, or set TMPDIR to a directory that belongs to this user.")
    }
  }

  // MARK: Directories that must not be cleared

  /// Directories whose contents must not be deleted by accident, as far as they can be found.
  func protectedDirectories() -> [String] {
    // A directory that cannot be found needs no protection.
    let (home, documents) = (try? home(), try? documents())
    let found = [
      home, documents.map { FileSystem.parent(of: $0) }, try? directory(.configuration),
      try? directory(.data), try? directory(.state), try? directory(.cache),
    ].compactMap { $0 }
    guard let home else { return found }
    let names = [
      "Desktop", "Downloads", "Documents", "Music", "Pictures", "Public", "Templates", "Videos",
    ]
    return found + names.map { home + "/" + $0 }
      + XDGUserDirectories.all(in: (try? userDirectories(home)) ?? [], home: home)
  }

  // MARK: Home

  private func home(
    remedy: String =
      "Set HOME or the XDG variables, or pass the directories to StorageSystem.bootstrap; "
      + "under systemd use StateDirectory= and CacheDirectory=."
  ) throws(StorageError) -> String {
    if let home = try homeIfAny() {
      if let problem = problemOfHome(home) {
        throw StorageError(
          .notFound, operation: "open", path: home, reason: "the home directory \(problem)",
          remedy: remedy)
      }
      return home
    }
    throw StorageError(
      .notFound, operation: "open", reason: "this user has no home directory", remedy: remedy)
  }

  private func homeIfAny() throws(StorageError) -> String? {
    if let home = try environment("HOME"), home.hasPrefix("/"), home != "/" { return home }
    if let home = try registeredHome(), home.hasPrefix("/"), home != "/" { return home }
    return nil
  }

  // MARK: URLs

  /// The path of a file URL.
  static func path(of url: URL, operation: String) throws(StorageError) -> String {
    var path = url.path(percentEncoded: false)
    guard url.isFileURL, path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
      throw StorageError(
        .misuse, operation: operation, path: path,
        reason: "the URL is not an absolute file URL",
        remedy: "Create it with URL(filePath:).")
    }
    // Compares bytes: a slash and a combining mark after it form one `Character`.
    while path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") {
      path = String(Substring(path.utf8.dropLast()))
    }
    return path
  }
}

extension DirectoryFinder {
  /// A finder whose directories are all below `directory`, which is removed later.
  static func temporary(app: String, in directory: String) -> DirectoryFinder {
    func url(_ name: String) -> URL { URL(filePath: "\(directory)/\(name)/\(app)") }
    return DirectoryFinder(
      app: app,
      chosen: .init(
        configuration: url("config"), data: url("data"), state: url("state"),
        cache: url("cache"), documents: url("documents"), temporary: url("temporary")))
  }
}
