/// The file that marks a vault's directory, also for programs that are built without vaults.
enum VaultMarker {
  static let fileName = "vault.hdr"
}
