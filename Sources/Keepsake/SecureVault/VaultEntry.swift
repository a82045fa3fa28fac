#if SecureVault
public import FoundationEssentials

extension SecureVault {
  /// What reading a secret requires.
  public enum Access: Hashable, Sendable {
    /// The vault must be open.
    case whenUnlocked
    /// The user must enter a passphrase each time, as with Face ID and Touch ID items on Apple
    /// systems.
    ///
    /// The value is also sealed under a key that only this passphrase opens. It is the vault's
    /// passphrase if there is one; otherwise the user chooses it with the first such secret. The
    /// `authenticate` closure of bootstrap asks for it whenever such a secret is read or set.
    case userPresence
  }

  /// The metadata of a secret.
  public struct Entry: Hashable, Sendable {
    /// When the secret was first stored.
    public let created: Date
    /// When its value was last stored. Changing keys does not count.
    public let modified: Date
    /// What reading it requires.
    public let access: Access

    init(_ names: EntryNames, isPresenceRequired: Bool) {
      created = Date(nanoseconds: names.created)
      modified = Date(nanoseconds: names.modified)
      access = isPresenceRequired ? .userPresence : .whenUnlocked
    }
  }
}
#endif
