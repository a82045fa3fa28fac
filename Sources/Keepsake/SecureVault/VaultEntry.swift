#if SecureVault
public import FoundationEssentials

extension SecureVault {
  /// What it takes to read a secret.
  public enum Access: Hashable, Sendable {
    /// The vault has to be open.
    case whenUnlocked
    /// A person has to type a passphrase each time: what Face ID and Touch ID items are on Apple
    /// systems.
    ///
    /// The value is sealed once more, under a key that only this passphrase opens: the one that the
    /// vault is under, or else one that is chosen with the first such secret. The `authenticate`
    /// closure of bootstrap asks for it, when such a secret is read and when it is set.
    case userPresence
  }

  /// What is known of a secret besides its value.
  public struct Entry: Hashable, Sendable {
    /// When it was first stored.
    public let created: Date
    /// When its value was last stored; a change of keys does not count.
    public let modified: Date
    /// What it takes to read it.
    public let access: Access

    init(_ names: EntryNames, isPresenceRequired: Bool) {
      created = Date(nanoseconds: names.created)
      modified = Date(nanoseconds: names.modified)
      access = isPresenceRequired ? .userPresence : .whenUnlocked
    }
  }
}
#endif
