internal import CKeepsake
internal import KeepsakeLibc

/// Facts about this process and its user that only the system knows.
enum ProcessEnvironment {
  static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

  static var processID: Int32 { getpid() }

  /// The effective user, who owns the files that this process creates.
  static var userID: UInt32 { geteuid() }

  /// The path that the program was started with, which needs no `/proc`; nil if it is unknown.
  static var startedPath: String? { keepsake_started_path().map { String(cString: $0) } }

  /// The user's home directory according to the system's user database.
  static func registeredHome() -> String? {
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

  /// Runs `body` when the process exits normally.
  static func atExit(_ body: @escaping @convention(c) () -> Void) { atexit(body) }

  /// Writes one line to standard error. A failure is ignored: it could be reported nowhere else.
  ///
  /// Does nothing if the program closed or replaced the stream that it was started with: its
  /// descriptor may then be any file.
  static func writeToStandardError(_ line: String) {
    guard keepsake_has_standard_error() else { return }
    var text = line + "\n"
    text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}
