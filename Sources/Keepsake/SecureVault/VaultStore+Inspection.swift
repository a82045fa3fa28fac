#if SecureVault
/// Conditions of the threat model that `keepsakectl doctor` looks for.
extension SecureVault.Store {
  /// The vaults that a restore has replaced and kept beside this one.
  package var replacedVaults: [String] {
    get throws(StorageError) {
      try perform("replacedVaults") { () throws(StorageError) in try directory.replacedVaults() }
    }
  }

  /// Whether a copy of the directory that has the vault also has the key file that opens it.
  package var hasKeyFileBeside: Bool {
    get throws(StorageError) {
      guard try protection == .keyFile else { return false }
      return try perform("hasKeyFileBeside") { () throws(StorageError) in
        let paths = try directory.paths
        return try FileSystem.parent(of: paths.keyFilePath())
          == FileSystem.parent(of: paths.directory)
      }
    }
  }

  /// The directory in which others may put another vault in place of this one, if there is one.
  package var unsafeDirectory: UnsafeDirectory? {
    get throws(StorageError) {
      try perform("unsafeDirectory") { () throws(StorageError) in
        let path = try directory.paths.directory
        let owner = try FileSystem.status(path)?.owner
        let places = try Set([path, FileSystem.resolvingLink(path)])
        for place in places {
          let found = try FileSystem.unsafeDirectory(onTheWayTo: FileSystem.parent(of: place)) {
            $0 == ProcessEnvironment.userID || $0 == owner
          }
          if let found { return found }
        }
        return nil
      }
    }
  }

  /// Whether the vault still has keys that were to be replaced. The vault must be unlocked.
  package var hasOldKeys: Bool {
    get throws(StorageError) {
      try perform("hasOldKeys") { () throws(StorageError) in
        let ring = try vault.currentSession()?.ring
        return ring.map { $0.keyIDs.count > 1 || $0.nameKeyCount > 1 } ?? false
      }
    }
  }
}
#endif
