// Secrets: the token store of a command-line tool for a web service. It keeps one login, encrypted.
//
//   swift run keepsake-tokens login USER          reads a token from the terminal or from a pipe
//   swift run keepsake-tokens whoami              shows the user, the date and the protection
//   swift run keepsake-tokens token               prints the token, for scripts
//   swift run keepsake-tokens logout              deletes the login
//   swift run keepsake-tokens logout --erase      deletes it without the passphrase
//   swift run keepsake-tokens protect             requires a passphrase from now on
//   swift run keepsake-tokens protect --key-file  requires none from now on
//
// The tool asks for the passphrase on the terminal and takes none from the environment: child
// processes would inherit it, /proc would show it, and a script would need to keep it in a file. A
// key file does that better. Use it where no user is present, or run the tool as a systemd service
// with LoadCredentialEncrypted=vault.key.

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// User and token are one secret, so that no crash pairs one user with another user's token.
struct Login: Codable {
  var user: String
  var token: String
}

extension SecureVault.Key<Login> {
  static let login = Self("login")
}

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-tokens login USER              store a token, read from standard input
         keepsake-tokens whoami                  show who is logged in
         keepsake-tokens token                   print the token
         keepsake-tokens logout [--erase]        delete the login; --erase needs no passphrase
         keepsake-tokens protect [--key-file]    require a passphrase; --key-file requires none
  """

/// The app's vault, unlocked with the passphrase if it is protected by one.
func openVault() throws -> SecureVault.Store {
  let vault = SecureVault.shared
  guard try vault.unlockAtTerminal(reason: "The token is locked") else { throw noPassphrase }
  return vault
}

let noPassphrase = Exit(message: "No passphrase was given.", status: 77)

func login(in vault: SecureVault.Store) throws -> Login {
  if let login = try vault.get(.login) { return login }
  throw Exit(message: "Not logged in. Run `keepsake-tokens login USER` first.", status: 1)
}

/// A line that is typed hidden on a terminal, or read from standard input if that is no terminal.
func readToken(of user: String) throws -> String {
  let isTerminal = isatty(STDIN_FILENO) == 1
  let token =
    isTerminal ? try SecureVault.askTerminal(.init(prompt: "Token of \(user): ")) : readLine()
  guard let token, !token.isEmpty else { throw Exit(message: "No token was given.", status: 65) }
  // The characters of RFC 6750. Others come from a wrong file or a careless paste.
  guard token.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
    throw Exit(message: "A token has no spaces or control characters. Copy it again.", status: 65)
  }
  return token
}

func run(_ arguments: [String]) throws {
  switch (arguments.first, arguments.dropFirst().first, arguments.count) {
  case ("login", let user?, 2) where !user.isEmpty && !user.hasPrefix("-"):
    let vault = try openVault()
    try vault.set(Login(user: user, token: try readToken(of: user)), for: .login)
    print("Logged in as \(user).")
  case ("whoami", nil, _):
    let vault = try openVault()
    let user = try login(in: vault).user
    let since = try vault.entry(.login)?.modified.ISO8601Format() ?? "now"
    let protection = try vault.protection.map { "a \($0)" } ?? "nothing"
    print("\(user), since \(since), protected by \(protection)")
  case ("token", nil, _):
    print(try login(in: try openVault()).token)
  case ("logout", nil, _):
    try openVault().remove(.login)
    print("Logged out.")
  case ("logout", "--erase", 2):
    try SecureVault.shared.eraseVault()
    print("Logged out. The vault is empty.")
  case ("protect", nil, _):
    let vault = try openVault()
    let request = SecureVault.PassphraseRequest(reason: "Protect the token", isNew: true)
    guard let passphrase = try SecureVault.askTerminal(request) else { throw noPassphrase }
    try vault.protect(with: .passphrase(passphrase))
    print("The token is protected by a passphrase.")
  case ("protect", "--key-file", 2):
    try openVault().protect(with: .keyFile)
    print("The token is protected by a key file.")
  case ("--help", _, _), ("-h", _, _):
    print(usage)
  default:
    throw Exit(message: usage, status: 64)
  }
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  try StorageSystem.bootstrap(app: "keepsake-tokens")
  try run(Array(CommandLine.arguments.dropFirst()))
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch let error as StorageError {
  // The description names paths, keys and a remedy, but never a passphrase or a token.
  fail("\(error)", status: [.locked, .wrongPassphrase].contains(error.code) ? 77 : 73)
}
// If the token goes into a file and the disk is full, the exit code must say so.
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
