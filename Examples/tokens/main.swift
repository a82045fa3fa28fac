// A token store, as a command-line tool for a web service needs one: one login, sealed on the disk.
//
//   swift run keepsake-tokens login USER          reads the token, hidden on a terminal, else from
//   a pipe swift run keepsake-tokens whoami              who is logged in, since when, and how the
//   token is kept swift run keepsake-tokens token | ...         the token itself, for scripts
//   swift run keepsake-tokens logout              forgets the login
//   swift run keepsake-tokens logout --erase      the same for those who have forgotten their
//   passphrase swift run keepsake-tokens protect             from now on a passphrase is needed for
//   all of the above swift run keepsake-tokens protect --key-file  and now it is not any more
//
// The passphrase is asked for on the terminal. There is no environment variable for it: all child
// processes would inherit it, /proc shows it, and a script that sets it has to keep it in some
// file, which is what a key file does better. Where nobody sits use that one, or a service of
// systemd with LoadCredentialEncrypted=vault.key.

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// One secret and not two, so that no crash leaves one user with another one's token.
struct Login: Codable {
  var user: String
  var token: String
}

extension SecureVault.Key<Login> {
  static let login = Self("login")
}

/// What ends the program: a line on standard error, and an exit code of sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-tokens login USER              store a token, read from standard input
         keepsake-tokens whoami                  show who is logged in
         keepsake-tokens token                   print the token
         keepsake-tokens logout [--erase]        forget the login; --erase needs no passphrase
         keepsake-tokens protect [--key-file]    ask for a passphrase from now on, or for nothing
  """

/// The app's vault, open: with the passphrase, if it needs one.
func openVault() throws -> SecureVault.Store {
  let vault = SecureVault.shared
  guard try vault.protection == .passphrase, try vault.isLocked else { return vault }
  try vault.unlock(passphrase: try askPassphrase("The tokens are locked"))
  return vault
}

func askPassphrase(_ reason: String, isNew: Bool = false) throws -> String {
  let request = SecureVault.PassphraseRequest(reason: reason, isNew: isNew)
  let passphrase = try SecureVault.askTerminal(request)
  if let passphrase, !passphrase.isEmpty { return passphrase }
  throw Exit(message: "no passphrase was given", status: 77)
}

func login(in vault: SecureVault.Store) throws -> Login {
  if let login = try vault.get(.login) { return login }
  throw Exit(message: "not logged in: run `keepsake-tokens login USER` first", status: 1)
}

/// A line from the terminal, hidden, or from whatever standard input is.
func readToken(of user: String) throws -> String {
  let isTerminal = isatty(STDIN_FILENO) == 1
  let token = isTerminal ? try SecureVault.askTerminal(prompt: "Token of \(user): ") : readLine()
  guard let token, !token.isEmpty else { throw Exit(message: "no token was given", status: 65) }
  // As RFC 6750 has it: anything else is a wrong file, or came with the clipboard.
  guard token.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
    throw Exit(message: "that is no token: it has spaces or other such characters", status: 65)
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
    print("\(user), since \(since), under \(protection)")
  case ("token", nil, _):
    print(try login(in: try openVault()).token)
  case ("logout", nil, _):
    try openVault().remove(.login)
    print("Logged out.")
  case ("logout", "--erase", 2):
    try SecureVault.shared.eraseVault()
    print("Logged out; the vault is empty.")
  case ("protect", nil, _):
    let vault = try openVault()
    let passphrase = try askPassphrase("Protect the tokens", isNew: true)
    try vault.protect(with: .passphrase(passphrase))
    print("The tokens are under a passphrase.")
  case ("protect", "--key-file", 2):
    try openVault().protect(with: .keyFile)
    print("The tokens are under a key file.")
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
  // Its text names paths and keys, and what to do; never a passphrase or a token.
  fail("\(error)", status: [.locked, .wrongPassphrase].contains(error.code) ? 77 : 73)
}
// A token that did not get into a file is not to be taken for one that did.
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
