#if SecureVault
extension SecureVault.Store {
  /// Copies the vault, with the secrets of all services, as it is at one moment.
  ///
  /// - Parameters:
  ///   - directory: The path of the copy, where nothing exists yet.
  ///   - keyFile: The path for a copy of the key file; nil for no copy.
  package func backUp(to directory: String, keyFile: String?) throws(StorageError) {
    try perform("backUp") { () throws(StorageError) in
      try self.directory.backUp(to: directory, keyFile: keyFile)
    }
  }

  /// Prepares to replace the vault, with the secrets of all services, by a backup.
  ///
  /// - Parameter keyFile: The path of the backup's key file; nil if it has none.
  package func prepareRestore(
    from directory: String, keyFile: String?
  ) throws(StorageError) -> PreparedRestore {
    try perform("prepareRestore") { () throws(StorageError) in
      let vault = try vault
      let prepared = try self.directory.prepareRestore(from: directory, keyFile: keyFile)
      return PreparedRestore { () throws(StorageError) in
        let kept = try prepared.commit()
        vault.state.withLock { $0.forgetVault() }
        return kept
      }
    }
  }
}
#endif
