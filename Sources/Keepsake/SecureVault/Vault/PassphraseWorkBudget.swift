#if SecureVault
/// The work that a process does for the passphrases of one header.
///
/// Anyone who can write to the vault's directory can forge a header. Nothing authenticates it
/// before a slot has been opened, and each attempt costs what the slot says.
struct PassphraseWorkBudget {
  /// The greatest cost of one slot, unless ``SecureVault/Store/maxWorkFactor`` is set: 512 MiB and
  /// about two seconds.
  static let defaultMaxLogN: UInt8 = 19

  private let maxLogN: UInt8
  private var spent = 0

  init(maxLogN: UInt8) { self.maxLogN = maxLogN }

  /// The greatest cost of all slots together, in the unit of scrypt's N: one slot of the greatest
  /// cost, or four slots of the usual cost.
  private static func maxSum(_ maxLogN: UInt8) -> Int { max(4 << 17, 1 << Int(maxLogN)) }

  /// Throws if trying the slot would cost too much.
  mutating func spend(on slot: KeySlot, _ path: String) throws(StorageError) {
    guard slot.kind == .passphrase else { return }
    let cost = 1 << Int(slot.logN)
    guard slot.logN <= maxLogN, spent + cost <= Self.maxSum(maxLogN) else {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path,
        reason: "the vault header demands too much work for a passphrase (work factor "
          + "\(slot.logN), at most \(maxLogN))",
        remedy: "Restore the header from a backup, or raise SecureVault.shared.maxWorkFactor if it "
          + "is not forged.")
    }
    spent += cost
  }

  /// Whether a header with these slots can be tried whole.
  static func allow(_ slots: [KeySlot], maxLogN: UInt8) -> Bool {
    slots.lazy.filter { $0.kind == .passphrase }.reduce(0) { $0 + 1 << Int($1.logN) }
      <= maxSum(maxLogN)
  }
}
#endif
