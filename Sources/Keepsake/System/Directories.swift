internal import CKeepsake
public import FoundationEssentials
internal import KeepsakeLibc

extension StorageSystem {
  /// The directories in which an app's data lies, for
  /// ``StorageSystem/bootstrap(app:directories:engines:keySources:authenticate:)``.
  ///
  /// A directory that is nil stays where the platform puts it: on Linux as the XDG Base Directory
  /// Specification and `systemd.exec(5)` say, on Apple systems below `Library`.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(
  ///   app: "com.example.notes",
  ///   directories: .init(configuration: URL(filePath: "/srv/notes/settings")))
  /// ```
  public struct Directories: Sendable {
    /// Where settings lie.
    public var configuration: URL?
    /// Where secrets and the app's own files lie.
    public var data: URL?
    /// Where the vault's key file lies.
    public var state: URL?
    /// Where caches lie.
    public var cache: URL?
    /// Where the documents lie that the app makes for its user: ``Folder/documents``.
    public var documents: URL?
    /// Where short-lived files lie: ``Folder/temporary``.
    public var temporary: URL?

    /// Names the directories to use in place of the platform's.
    public init(
      configuration: URL? = nil, data: URL? = nil, state: URL? = nil, cache: URL? = nil,
      documents: URL? = nil, temporary: URL? = nil
    ) {
      self.configuration = configuration
      self.data = data
      self.state = state
      self.cache = cache
      self.documents = documents
      self.temporary = temporary
    }
  }
}

/// Finds a directory of the app on this system.
struct DirectoryFinder: Sendable {
  enum Purpose: Sendable {
    case configuration, data, state, cache
  }

  let app: String
  var chosen = StorageSystem.Directories()
  var environment: @Sendable (String) -> String? = { name in
    getenv(name).map { String(cString: $0) }
  }
  /// The user's home as the system's user database has it.
  var registeredHome: @Sendable () -> String? = DirectoryFinder.passwdHome

  func directory(_ purpose: Purpose) throws(StorageError) -> String {
    let (own, systemd, xdg, fallback) =
      switch purpose {
      case .configuration:
        (chosen.configuration, "CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME", "/.config")
      case .data: (chosen.data, "STATE_DIRECTORY", "XDG_DATA_HOME", "/.local/share")
      case .state: (chosen.state, "STATE_DIRECTORY", "XDG_STATE_HOME", "/.local/state")
      case .cache: (chosen.cache, "CACHE_DIRECTORY", "XDG_CACHE_HOME", "/.cache")
      }
    if let own { return try Self.path(of: own, operation: "bootstrap") }
    #if os(Linux)
    if let own = directory(ofUnit: systemd) { return own }
    // "All paths set in these environment variables must be absolute. If an implementation
    // encounters a relative path […] it should consider the path invalid and ignore it."
    if let base = environment(xdg), base.hasPrefix("/") { return base + "/" + app }
    // Units without a home have theirs for configuration, if any, from somebody else: few may write
    // to it.
    if purpose == .configuration, homeIfAny() == nil,
      let state = directory(ofUnit: "STATE_DIRECTORY")
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

  /// A directory that systemd made for the unit. There may be several, separated by colons; the
  /// first is the app's own.
  private func directory(ofUnit variable: String) -> String? {
    guard let first = environment(variable)?.split(separator: ":").first, first.hasPrefix("/")
    else { return nil }
    return String(first)
  }

  /// `<documents of the user>/<app>`, as the user's `user-dirs.dirs` has it.
  func documents() throws(StorageError) -> String {
    if let own = chosen.documents { return try Self.path(of: own, operation: "bootstrap") }
    let home = try home(
      remedy: "Set HOME, or give StorageSystem.bootstrap a directory for documents.")
    let named = UserDirectories.directory("DOCUMENTS", in: userDirectories(home), home: home)
    let documents = named ?? home + "/Documents"
    return documents + "/" + app
  }

  /// The file in which the user's directories are named; empty where there is none, or it cannot be
  /// read.
  private func userDirectories(_ home: String) -> [UInt8] {
    #if os(Linux)
    var configuration = home + "/.config"
    if let base = environment("XDG_CONFIG_HOME"), base.hasPrefix("/") { configuration = base }
    if let file = try? File.openIfPresent(configuration + "/user-dirs.dirs"),
      let bytes = try? file.contents()
    {
      return Array(bytes)
    }
    #endif
    return []
  }

  /// The directory for short-lived files.
  func temporary() throws(StorageError) -> String {
    if let own = chosen.temporary { return try Self.path(of: own, operation: "bootstrap") }
    var base = "/tmp"
    if let named = environment("TMPDIR"), named.hasPrefix("/") { base = named }
    return "\(base)/\(app)-\(geteuid())"
  }

  /// Makes the directory for short-lived files unless it is there; not the one in which all users
  /// have theirs, which would be this user's alone then.
  func makeTemporaryDirectory() throws(StorageError) {
    if chosen.temporary != nil { return }
    let path = try temporary()
    do throws(StorageError) {
      try FileSystem.makeDirectory(path, mode: 0o700)
    } catch {
      guard error.code == .notFound else { throw error }
      throw StorageError(
        .notFound, operation: "open", path: FileSystem.parent(of: path),
        reason: "there is no directory for short-lived files",
        remedy: "Set TMPDIR to a directory that is there.")
    }
    // Somebody else may have made it just now.
    try requirePrivate(path)
  }

  /// Throws if others can write to the directory for short-lived files, where it is there: they
  /// have theirs beside it, and could have made this one, with files in it that are to be read.
  func requirePrivate(_ path: String) throws(StorageError) {
    if chosen.temporary != nil { return }
    guard let status = try FileSystem.status(path, followsLinks: false) else { return }
    guard status.isDirectory, status.owner == geteuid(), status.mode & 0o022 == 0 else {
      throw StorageError(
        .accessDenied, operation: "open", path: path,
        reason: "it is not a directory that only this user can write to",
        remedy: "Remove it, or set TMPDIR to a directory of this user's.")
    }
  }

  /// What must not be emptied by accident, as far as it can be found.
  func protectedDirectories() -> [String] {
    // Where there is none of a kind it is not in danger.
    let documents = try? documents()
    let found = [
      try? home(), documents.map { FileSystem.parent(of: $0) }, try? directory(.configuration),
      try? directory(.data), try? directory(.state), try? directory(.cache),
    ]
    return found.compactMap { $0 } + usersDirectories()
  }

  /// The directories that hold the user's own files, as far as they can be found.
  private func usersDirectories() -> [String] {
    guard let home = try? home() else { return [] }
    let names = [
      "Desktop", "Downloads", "Documents", "Music", "Pictures", "Public", "Templates", "Videos",
    ]
    return names.map { home + "/" + $0 }
      + UserDirectories.all(in: userDirectories(home), home: home)
  }

  private func home(
    remedy: String =
      "Set HOME or the XDG variables, or give StorageSystem.bootstrap the directories; "
      + "under systemd use StateDirectory= and CacheDirectory=."
  ) throws(StorageError) -> String {
    if let home = homeIfAny() { return home }
    throw StorageError(
      .notFound, operation: "open", reason: "this user has no home directory", remedy: remedy)
  }

  private func homeIfAny() -> String? {
    if let home = environment("HOME"), home.hasPrefix("/"), home != "/" { return home }
    if let home = registeredHome(), home.hasPrefix("/"), home != "/" { return home }
    return nil
  }

  private static func passwdHome() -> String? {
    var entry = passwd()
    var found: UnsafeMutablePointer<passwd>?
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { buffer in
      guard let start = buffer.baseAddress,
        getpwuid_r(getuid(), &entry, start, buffer.count, &found) == 0,
        found != nil, let home = entry.pw_dir
      else { return nil }
      return String(cString: home)
    }
  }

  /// The path of a file URL.
  static func path(of url: URL, operation: String) throws(StorageError) -> String {
    var path = url.path(percentEncoded: false)
    guard url.isFileURL, path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
      throw StorageError(
        .misuse, operation: operation, path: path, reason: "not the URL of an absolute file path",
        remedy: "Make the URL with URL(filePath:).")
    }
    // By bytes: what stands before a slash can be one character with it.
    while path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") {
      path = String(Substring(path.utf8.dropLast()))
    }
    return path
  }
}

/// What the process is, as far as storage is concerned.
enum ProcessIdentity {
  /// The running executable's name, which names the app until `bootstrap` does.
  static let executableName: String = {
    #if os(Linux)
    // Not there in some containers: then the path by which it was started has to do, as arguments
    // are read from there as well.
    if let path = try? FileSystem.linkTarget("/proc/self/exe") {
      // A binary that was replaced while it ran.
      let name = FileSystem.name(of: path)
      return name.hasSuffix(" (deleted)") ? String(name.dropLast(10)) : name
    }
    if let path = keepsake_started_path() { return FileSystem.name(of: String(cString: path)) }
    #endif
    return CommandLine.arguments.first.map { FileSystem.name(of: $0) } ?? "keepsake"
  }()

  /// Whether tests are being run: their data must not reach the user's own.
  static let isTestRunner: Bool = {
    let name = executableName
    return name.hasSuffix(".xctest") || name.hasSuffix("-test-runner") || name == "xctest"
      || name == "swiftpm-testing-helper" || CommandLine.arguments.contains("--testing-library")
  }()
}
