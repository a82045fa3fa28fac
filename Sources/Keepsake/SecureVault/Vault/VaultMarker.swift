/// The file that marks the directory of a vault, also for a program that was built without vaults.
enum VaultMarker {
  static let fileName = "vault.hdr"
}
