/// The identity of this process as far as storage is concerned.
enum ProcessIdentity {
  /// The name of the running executable, which is the app's name unless `bootstrap` sets one.
  static let executableName: String = {
    #if os(Linux)
    // Some containers have no /proc. There the path that the program was started with must do:
    // reading the arguments needs /proc too.
    if let path = try? FileSystem.linkTarget("/proc/self/exe") {
      // The kernel appends the suffix if the file was replaced while the program runs.
      let name = FileSystem.name(of: path)
      return name.hasSuffix(" (deleted)") ? String(name.dropLast(10)) : name
    }
    if let path = ProcessEnvironment.startedPath { return FileSystem.name(of: path) }
    #endif
    return CommandLine.arguments.first.map { FileSystem.name(of: $0) } ?? "keepsake"
  }()
}
