import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The commands that begin with `vault`. None takes a secret as an argument, which other users
/// could see. Only `vault show` prints a secret, and `vault add-recovery` a new code.
enum VaultCommands {
  private struct Secret: Encodable {
    var service: String
    var key: String
    var created: Date
    var modified: Date
    var needsPerson: Bool
  }

  /// What can open a vault without a prompt: every credential that systemd provides, and the key
  /// file.
  static var keySources: [SecureVault.KeySource] {
    let directory = getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) } ?? ""
    let names = directory.hasPrefix("/") ? try? Folder(URL(filePath: directory)).list() : nil
    return (names ?? []).map { .credential($0) } + SecureVault.KeySource.standard
  }

  /// The service that the arguments name, in an unlocked vault.
  ///
  /// - Parameter mayCreate: Whether the command can begin a vault.
  private static func open(
    _ arguments: Arguments, mayCreate: Bool = false
  ) throws -> SecureVault.Store {
    let server = try arguments.bootstrapApp()
    let vault = SecureVault.service(arguments.service)
    guard try mayCreate || vault.protection != nil || !services().isEmpty else {
      throw Failure.nothingStored(by: arguments.app, on: server, "no secrets")
    }
    try unlock(
      vault, of: arguments.app, Prompt(arguments),
      rememberFor: arguments.hasOption("remember") ? .minutes(15) : nil)
    return vault
  }

  static func unlock(
    _ vault: SecureVault.Store, of app: String, _ prompt: Prompt,
    rememberFor period: Duration? = nil
  ) throws {
    guard let protection = try vault.protection else { return }
    if try protection == .passphrase || vault.unlockMethods.contains(where: \.isRecovery) {
      do {
        let reason = "The secrets of \(app) are locked"
        if try prompt.unlock(vault, reason: reason, rememberFor: period) { return }
        throw Prompt.missingAnswer
      } catch let error as StorageError where error.code == .locked && protection != .passphrase {
        // For a source that only the app has, the error below says more.
        if protection == .keyFile { throw Prompt.withoutKey(error) }
      }
    }
    guard try vault.isLocked else { return }
    let problem = "the secrets of \(app) are protected by a \(protection)"
    switch protection {
    case .credential(let name):
      throw Failure(
        message: "\(problem) of systemd, which is missing here. Run "
          + "`systemd-run --user -P -p LoadCredential=\(name):FILE keepsakectl ...`.",
        status: 77)
    case .closure:
      throw Failure(
        message: "\(problem), which only the app has. "
          + "Use the app.", status: 77)
    case .keyFile, .passphrase: break
    }
  }

  private static func services() throws -> [SecureVault.Service] {
    try Diagnostics.names { SecureVault.services() }
  }

  private static func missing(_ arguments: Arguments) -> Failure {
    .missing("secret", for: arguments, listCommand: "vault list")
  }

  static func list(_ arguments: Arguments) throws {
    let vault = try open(arguments)
    var services = try services()
    if arguments.storeName != nil {
      guard services.contains(vault.service) else {
        throw Failure.missing(
          "service \"\(vault.service.name)\"", of: arguments.app, existing: services.map(\.name))
      }
      services = [vault.service]
    }
    var secrets: [Secret] = []
    for store in services.map({ SecureVault.service($0) }) {
      let keys = Diagnostics.attempt { try store.keys() } ?? []
      Progress.each("Reading \(store.service)", keys) { key in
        let entry = Diagnostics.attempt { try store.entry(key) } ?? nil
        if let entry {
          secrets.append(
            Secret(
              service: store.service.name, key: key, created: entry.created,
              modified: entry.modified, needsPerson: entry.access == .userPresence))
        }
      }
    }
    let headings = ["SERVICE", "KEY", "CREATED", "MODIFIED", "PROMPTS"]
    try Table.show(secrets, for: arguments, headings) {
      [
        $0.service, $0.key, Output.time($0.created), Output.time($0.modified),
        $0.needsPerson ? "yes" : "no",
      ]
    }
  }

  static func show(_ arguments: Arguments) throws {
    guard Output.isTerminal || arguments.hasOption("reveal") else {
      throw Failure(
        message: "standard output is not a terminal, so a file or another program would get the "
          + "secret. Add --reveal to allow that.", status: 77)
    }
    let vault = try open(arguments)
    let key = arguments.words[1]
    let reason = "Show \(key) of \(arguments.words[0])"
    let shown: Void? = try vault.withSecret(key, reason: reason) { bytes in
      guard Output.isTerminal else { return try Output.write(bytes) }
      let text = bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      try Output.write(Output.escaped(text))
    }
    if shown == nil { throw missing(arguments) }
  }

  static func set(_ arguments: Arguments) throws {
    let vault = try open(arguments, mayCreate: true)
    let key = arguments.words[1]
    let asBytes = arguments.hasOption("bytes")
    let secret = try Prompt.secret("Secret \(key) of \(arguments.words[0])", asBytes: asBytes)
    if asBytes { return try vault.set(secret, forKey: key) }
    guard let text = String(validating: secret, as: UTF8.self) else {
      throw Failure(message: "the secret is not UTF-8 text. Add --bytes to store it.", status: 65)
    }
    try vault.set(text, forKey: key)
  }

  static func protect(_ arguments: Arguments) throws {
    let vault = try open(arguments, mayCreate: true)
    let hadRecovery = try vault.unlockMethods.contains(where: \.isRecovery)
    if arguments.hasOption("key-file") {
      try vault.protect(with: .keyFile)
    } else {
      let request = SecureVault.PassphraseRequest(
        reason: "Protect the secrets of \(arguments.app)", isNew: true)
      try vault.protect(with: .passphrase(try newPassphrase(request, arguments)))
    }
    let protection = try vault.protection ?? .keyFile
    try Output.write("The secrets of \(arguments.app) are protected by a \(protection).")
    if hadRecovery {
      try Output.write(
        "Earlier recovery codes and passphrases no longer open them. Add new ones with "
          + "`keepsakectl vault add-recovery \(arguments.app)`.")
    }
  }

  private static func newPassphrase(
    _ request: SecureVault.PassphraseRequest, _ arguments: Arguments
  ) throws -> String {
    guard let passphrase = try Prompt(arguments).ask(request), !passphrase.isEmpty else {
      throw Prompt.missingAnswer
    }
    return passphrase
  }

  // MARK: Recovery

  private struct UnlockMethod: Encodable {
    var id: String
    var kind: String
    var isRecovery: Bool

    init(_ method: SecureVault.UnlockMethod) {
      id = method.id
      isRecovery = method.isRecovery
      kind =
        switch method.kind {
        case .keySource(let protection): protection.description
        case .recoveryCode: "recovery code"
        case .recoveryPassphrase: "recovery passphrase"
        }
    }
  }

  /// Needs no key, so that a user can see what opens a vault that is locked.
  static func unlockMethods(_ arguments: Arguments) throws {
    let server = try arguments.bootstrapApp()
    let unlockMethods = try SecureVault.shared.unlockMethods.map(UnlockMethod.init)
    if unlockMethods.isEmpty {
      throw Failure.nothingStored(by: arguments.app, on: server, "no secrets")
    }
    try Table.show(unlockMethods, for: arguments, ["ID", "UNLOCK METHOD"]) { [$0.id, $0.kind] }
  }

  static func addRecovery(_ arguments: Arguments) throws {
    let app = arguments.app
    if arguments.hasOption("passphrase") {
      let vault = try open(arguments)
      let request = SecureVault.PassphraseRequest(
        reason: "Let another passphrase open the secrets of \(app)", isNew: true)
      try vault.addRecovery(passphrase: try newPassphrase(request, arguments))
      return try Output.write("Another passphrase opens the secrets of \(app).")
    }
    guard Output.isTerminal else {
      throw Failure(
        message: "standard output is not a terminal, so a file or another program would get the "
          + "recovery code. Run the command at a terminal.", status: 77)
    }
    let code = try open(arguments).addRecovery()
    try Output.write(
      """
      This code opens the secrets of \(app), whatever happens to their key.
      Write it down now: it is not shown again. Anyone who has it can read the secrets.

        \(code)
      """)
  }

  static func removeRecovery(_ arguments: Arguments) throws {
    let vault = try open(arguments)
    var unlockMethods = try vault.unlockMethods.filter(\.isRecovery)
    if let id = arguments.words.dropFirst().first {
      guard let method = unlockMethods.first(where: { $0.id == id }) else {
        throw Failure(
          message: "\(arguments.app) has no recovery \"\(id)\". "
            + "Run `keepsakectl vault unlock-methods \(arguments.app)`.")
      }
      unlockMethods = [method]
      try vault.removeRecovery(method)
    } else {
      try vault.removeAllRecoveries()
    }
    for method in unlockMethods { try Output.write("Removed \(method).") }
  }

  static func rotate(_ arguments: Arguments) throws {
    try open(arguments).rotateKeys()
    try Output.write("The secrets of \(arguments.app) are encrypted with a new key.")
  }

  static func lock(_ arguments: Arguments) throws {
    try arguments.bootstrapApp()
    let vault = SecureVault.shared
    try vault.lock()
    // The keys of all vaults were forgotten if the header cannot be read.
    _ = try vault.protection
  }

  static func delete(_ arguments: Arguments) throws {
    let vault = try open(arguments)
    guard try vault.contains(arguments.words[1]) else { throw missing(arguments) }
    try vault.remove(arguments.words[1])
  }
}
