/// Directories that are removed with everything in them when the process exits, or earlier.
enum TemporaryDirectory {
  static func make(_ label: String) throws(StorageError) -> String {
    let path = reservePath(label)
    try FileSystem.createDirectory(path)
    return path
  }

  /// A path for a directory that the first store in it creates.
  static func reservePath(_ label: String) -> String {
    processDirectory.path + "/" + label + "-" + token()
  }

  private static func token() -> String {
    String(UInt64.random(in: .min ... .max), radix: 36)
  }

  private static let processDirectory: (path: String, owner: Int32) = {
    let base = (try? ProcessEnvironment.directoryVariable("TMPDIR")) ?? ""
    ProcessEnvironment.atExit {
      // A forked child must not remove its parent's directory.
      let (path, owner) = TemporaryDirectory.processDirectory
      if owner == ProcessEnvironment.processID { try? FileSystem.removeTree(path) }
    }
    let owner = ProcessEnvironment.processID
    return ("\(base.hasPrefix("/") ? base : "/tmp")/keepsake-\(owner)-\(token())", owner)
  }()
}
