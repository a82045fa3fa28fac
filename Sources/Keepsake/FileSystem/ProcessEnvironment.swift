internal import CKeepsake
internal import KeepsakeLibc

/// Facts about this process and its user that only the system knows.
enum ProcessEnvironment {
  /// The variables that decide where files are, with their values when the first store was used.
  ///
  /// If the program changes one of them later, its stores stay together where they are. There are
  /// none in a set-user-ID or set-group-ID program: its caller would choose its files.
  private static let directoryVariables: [String: Result<String, StorageError>] = {
    let names = [
      "HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
      "CONFIGURATION_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "CREDENTIALS_DIRECTORY",
    ]
    var values: [String: Result<String, StorageError>] = [:]
    for name in names {
      guard let value = keepsake_trusted_variable(name) else { continue }
      values[name] =
        String(validatingCString: value).map { .success($0) }
        ?? .failure(notUTF8("the environment variable \(name)"))
    }
    return values
  }()

  /// The value of a variable that decides where files are; nil if it is not set.
  ///
  /// - Throws: An error if it is not UTF-8. A repaired path would be another directory.
  static func directoryVariable(_ name: String) throws(StorageError) -> String? {
    try directoryVariables[name]?.get()
  }

  private static func notUTF8(_ what: String) -> StorageError {
    StorageError(
      .invalidName, operation: "open", reason: "\(what) is not UTF-8",
      remedy: "Set it to a path in UTF-8, or pass the directories to StorageSystem.bootstrap.")
  }

  static var processID: Int32 { getpid() }

  /// Whether the process has loaded Swift Testing or XCTest.
  static var hasTestLibrary: Bool { keepsake_has_test_library() }

  /// The effective user, who owns the files that this process creates.
  static var userID: UInt32 { geteuid() }

  /// Whether this process runs as root, or may do so later. Unlike ``userID``, it takes no system
  /// call.
  static let mayBeRoot = keepsake_may_be_root()

  /// The path that the program was started with, which needs no `/proc`; nil if it is unknown.
  static var startedPath: String? { keepsake_started_path().map { String(cString: $0) } }

  private static let knownHome = Locked<String?>(nil)

  /// The effective user's home directory according to the system's user database. Once it was
  /// found, it stays the same.
  static func registeredHome() throws(StorageError) -> String? {
    try knownHome.withLock { knownHome throws(StorageError) in
      if knownHome == nil { knownHome = try findRegisteredHome() }
      return knownHome
    }
  }

  private static func findRegisteredHome() throws(StorageError) -> String? {
    var entry = passwd()
    var found: UnsafeMutablePointer<passwd>?
    return try withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) {
      buffer throws(StorageError) in
      guard let start = buffer.baseAddress,
        getpwuid_r(geteuid(), &entry, start, buffer.count, &found) == 0,
        found != nil, let home = entry.pw_dir
      else { return nil }
      if let home = String(validatingCString: home) { return home }
      throw notUTF8("the home directory in the user database")
    }
  }

  /// Runs `body` when the process exits normally.
  static func atExit(_ body: @escaping @convention(c) () -> Void) { atexit(body) }

  /// Writes one line to standard error. A failure is ignored: it could be reported nowhere else.
  ///
  /// Does nothing if the program closed or replaced the stream that it was started with: its
  /// descriptor may then be any file.
  static func writeToStandardError(_ line: String) {
    let text = Array((line + "\n").utf8)
    keepsake_write_to_standard_error(text, text.count)
  }
}
