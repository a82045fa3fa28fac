import Keepsake

extension Doctor {
  mutating func examineSecrets() throws {
    guard let vault else { return }
    let names = try vault.list(recursively: true, includingHidden: true)
    try examinePermissions(of: vault, names)
    try noteLinkedLockFiles(names, in: vault)
    let store = SecureVault.shared
    for path in try store.replacedVaults {
      note(
        path, "a restore has replaced this vault, which still opens with what opened it then",
        "Delete it when you need none of its secrets.")
    }
    if try store.hasKeyFileBeside {
      note(
        try path("", in: vault),
        "its key file is in the same directory as the vault, so a copy of that directory opens it",
        "Protect it with a credential or a passphrase, or keep such copies secret.")
    }
    if let unsafe = try store.unsafeDirectory {
      note(
        unsafe.path, "others can put another vault in place of the app's: \(unsafe.reason)",
        unsafe.remedy)
    }
    if let protection = try store.protection, try store.isLocked {
      report.skipped.append("the secrets, which are protected by a \(protection)")
      return
    }
    let (services, errors) = Diagnostics.collectingErrors { SecureVault.services() }
    for error in errors { try note(error) }
    for service in services { try examineSecrets(of: SecureVault.service(service)) }
    if errors.isEmpty, try store.hasOldKeys {
      note(
        try path("", in: vault),
        "it still has old keys: changing them was interrupted, or a secret was damaged",
        "Run `keepsakectl vault rotate \(report.app)`.")
    }
  }

  private mutating func examineSecrets(of service: SecureVault.Store) throws {
    let (keys, errors) = try Diagnostics.collectingErrors { try service.keys() }
    let knownPaths = Set(report.findings.map(\.path))
    for error in errors where error.path.map(knownPaths.contains) != true { try note(error) }
    try Progress.each("Opening secrets of \(service.service)", keys) { key in
      try Task.checkCancellation()
      report.secrets += 1
      do throws(StorageError) {
        // Opening this one would prompt the user.
        if try service.entry(key)?.access == .userPresence { return }
        try service.withSecret(key) { _ in }
      } catch {
        try note(error)
      }
    }
  }
}
