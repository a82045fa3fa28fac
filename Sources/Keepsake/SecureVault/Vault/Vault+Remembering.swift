#if SecureVault
/// The master key of an open vault in the keyring of the login, for the next process.
///
/// A vault has one only if the caller asked for it. A key of a vault that has a new master key by
/// now opens nothing.
extension Vault {
  private static let prefix = "keepsake:vault:"

  /// What the names of this vault's keys begin with, first that under which a key is looked for.
  /// They depend on where the vault is, so that a key is found although the header is not.
  ///
  /// The first does not depend on links that lead there. If there are any, the second one has the
  /// path with them: they may lead nowhere by now.
  private func namePrefixes() throws(StorageError) -> [String] {
    var paths = [storage.path]
    // The vault of a server has a name instead of a path.
    if storage.path.hasPrefix("/"),
      let realPath = try? FileSystem.resolvingExistingPart(of: storage.path)
    {
      paths.insert(realPath, at: 0)
    }
    if paths.last == paths.first { paths = [paths[0]] }
    return try paths.map { path throws(StorageError) in
      let hash = try Array(path.utf8).withBytes(Digest.sha256)
      return Self.prefix + Hexadecimal.text(hash.prefix(8)) + ":"
    }
  }

  /// Remembers the key of the open vault unless `lock()` was called since. A failure is reported:
  /// the vault is still open.
  func remember(
    _ session: VaultSession, seconds: UInt32, ifNotLockedSince lockCount: Int
  ) {
    do throws(StorageError) {
      for prefix in try namePrefixes().reversed() {
        let name = prefix + Hexadecimal.text(session.header.vaultID[...])
        try session.ring.withMasterKey { key throws(StorageError) in
          try SessionKeyring.add(key, named: name, seconds: seconds)
        }
        if state.withLock({ $0.lockCount != lockCount }) { try SessionKeyring.remove(name) }
      }
    } catch {
      let failure = StorageError(
        error.code, operation: "unlock", path: storage.path,
        reason:
          "the vault is open, but the system does not remember its key (\(error.reason ?? ""))",
        remedy: "Unlock the vault in each process; containers often forbid kernel keyrings.")
      // On another thread: the handler may lock the vault, which waits for this session.
      BackgroundWork.run { [report] in report(failure) }
    }
  }

  /// Opens the vault with a remembered key; nil if there is none that opens it.
  func openRemembered(
    _ header: VaultHeader, _ storage: any VaultStorage
  ) throws(StorageError) -> VaultSession? {
    // Only a vault that asks a user for a passphrase is remembered.
    guard header.hasTypedSlot else { return nil }
    let key = try SecretBytes(count: XAES.keySize)
    let name = try namePrefixes()[0] + Hexadecimal.text(header.vaultID[...])
    guard try SessionKeyring.read(name, into: key.bytes) else { return nil }
    return try VaultSession.open(header, storage) { masterKey throws(StorageError) in
      masterKey.copyMemory(from: UnsafeRawBufferPointer(key.bytes))
    }
  }

  /// The headers that the vault has and had, so far as they are known; nil if there is only one
  /// that cannot be read.
  func knownHeaders(besides openHeader: VaultHeader?) -> [VaultHeader]? {
    do throws(StorageError) {
      return [openHeader, try storage.readHeader()?.0].compactMap { $0 }
    } catch {
      return openHeader.map { [$0] }
    }
  }

  /// Makes all processes of the login forget the keys of the vault here, and of one that was moved
  /// here. Returns a failure.
  ///
  /// - Parameter headers: What the vault has or had; nil for the keys of all vaults.
  func forgetRemembered(_ headers: [VaultHeader]?) -> StorageError? {
    var failure: StorageError?
    do throws(StorageError) {
      let here = try namePrefixes()
      let known = headers?.map { Hexadecimal.text($0.vaultID[...]) }
      let names = try SessionKeyring.names(
        startingWith: Self.prefix, orShownWith: known.map { here + $0 } ?? [Self.prefix])
      // A vault that is remembered here may be remembered under another path too.
      let found = names.compactMap { name in
        here.first(where: name.hasPrefix)
          .map { String(name.dropFirst($0.count).prefix(2 * VaultHeader.idSize)) }
      }.filter { $0.count == 2 * VaultHeader.idSize }
      let ids = known.map { $0 + found }
      for name in names where ids?.contains(where: name.contains) != false {
        do throws(StorageError) {
          try SessionKeyring.remove(name)
        } catch {
          failure = error
        }
      }
    } catch {
      failure = error
    }
    return failure.map { error in
      StorageError(
        error.code, operation: "lock", path: storage.path,
        reason: "the system still remembers the vault's key (\(error.reason ?? ""))",
        remedy: "End the login session, or wait until the key expires.")
    }
  }
}
#endif
