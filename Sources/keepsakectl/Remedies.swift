/// What the user of a command line can do instead of the Swift calls that the library names.
enum Remedies {
  private static let atTerminal =
    "Run the command at a terminal, or pass the passphrase with --\(Prompt.option)"

  /// Phrases of the library, the longer ones first. `APP` is the name of the user's app.
  private static let phrases: [(swift: String, command: String)] = [
    (
      "Call SecureVault.protect(with:) with a passphrase, or pass a credential or a closure to "
        + "StorageSystem.bootstrap.", "Run `keepsakectl vault protect APP`."
    ),
    ("call SecureVault.protect(with: .keyFile)", "run `keepsakectl vault protect APP --key-file`"),
    ("Call SecureVault.protect(with:)", "Run `keepsakectl vault protect APP`"),
    ("Call SecureVault.shared.removeRecovery", "Run `keepsakectl vault remove-recovery APP`"),
    ("call SecureVault.lock() and then unlock", "run the command again"),
    ("Call SecureVault.unlock(passphrase:) first", atTerminal),
    ("Call SecureVault.unlock first", "Run the command again"),
    ("Call unlock() without one", "Enter none"),
    (
      "Add it to the key sources of StorageSystem.bootstrap", "Only the app has it: use the app"
    ),
    (
      "Pass one to StorageSystem.bootstrap, such as SecureVault.askTerminal", atTerminal
    ),
    ("Run the program in a terminal, or pass the secret to it in another way", atTerminal),
    ("Fix the authenticate closure, or ask the user again", "Enter the passphrase again"),
    (
      "Restore the header from a backup, or raise SecureVault.shared.maxWorkFactor if it is not "
        + "forged",
      "Restore the header from a backup, or use the app if it is not forged"
    ),
    ("Use a service in a directory: SecureVault.Service(_:in:)", "Use the vault of this machine"),
    (", or pass the directories to StorageSystem.bootstrap", ""),
    (", or pass a directory for documents to StorageSystem.bootstrap", ""),
    (", the XDG variables, TMPDIR or StorageSystem.bootstrap", ", the XDG variables or TMPDIR"),
    (" with XDG_STATE_HOME or StorageSystem.bootstrap", " with XDG_STATE_HOME"),
    ("call removeAll or delete the file", "delete them or the file"),
    ("Call push on the ValkeyBacking, or run `", "Run `"),
    ("Call pushSecrets on the ValkeyBacking, or run `", "Run `"),
    ("; adopt uses the server's", "; `keepsakectl adopt` uses the server's"),
    ("adoptSecrets and `adopt --vault` use", "`keepsakectl adopt --vault` uses"),
    ("Make important changes with confirm: .replicas(1)", "Let the app wait for a replica"),
    ("wait for its replicas with confirm: .replicas(1)", "let the app wait for its replicas"),
    ("lock() has closed the vault", "the vault was locked"),
  ]

  /// A sentence of the library without its Swift calls.
  static func withoutSwift(_ text: String) -> String {
    phrases.reduce(text) { $0.replacing($1.swift, with: $1.command) }
  }
}
