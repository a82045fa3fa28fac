import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// The secrets of an app: which there are, and on request one of them.
enum Vault {
  private struct Secret: Encodable {
    var service: String
    var key: String
    var created: String
    var modified: String
    var needsPerson: Bool
  }

  /// What may open a vault by itself: any credential that systemd gives here, or the key file.
  static var keySources: [SecureVault.KeySource] {
    let folder = getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) } ?? ""
    let names = folder.hasPrefix("/") ? try? Folder(URL(filePath: folder)).list() : nil
    return (names ?? []).map { .credential($0) } + SecureVault.KeySource.standard
  }

  /// The vault, open, with its passphrase if it needs one.
  private static func open(_ arguments: Arguments) throws -> SecureVault.Store {
    try arguments.enterApp()
    let vault = SecureVault.service(arguments.place.map { SecureVault.Service($0) } ?? .standard)
    guard try vault.protection != nil || !services().isEmpty else {
      throw Failure.nothing(of: arguments.app, "no secrets")
    }
    try unlock(vault, of: arguments.app)
    return vault
  }

  static func unlock(_ vault: SecureVault.Store, of app: String) throws {
    guard try vault.isLocked, let protection = try vault.protection else { return }
    let secrets = "the secrets of \(app) are under a \(protection)"
    switch protection {
    case .passphrase: try vault.unlock(passphrase: try ask("The secrets of \(app) are locked"))
    case .credential(let name):
      throw Failure(
        message: "\(secrets) of systemd, which is not here. "
          + "Run it as systemd-run --user -P -p LoadCredential=\(name):FILE keepsakectl ...",
        status: 77)
    case .closure:
      throw Failure(
        message: "\(secrets), which only the app has. "
          + "Let it call SecureVault.protect with a key file or a passphrase.", status: 77)
    case .keyFile: break
    }
  }

  private static func ask(_ reason: String, isNew: Bool = false) throws -> String {
    let request = SecureVault.PassphraseRequest(reason: reason, isNew: isNew)
    let passphrase = try SecureVault.askTerminal(request)
    if let passphrase, !passphrase.isEmpty { return passphrase }
    throw Failure(message: "no passphrase was given. Type it when it is asked for.", status: 77)
  }

  /// All services, with an error where the facade would say that there are none.
  static func services() throws -> [SecureVault.Service] {
    try Reports.strictly { SecureVault.services() }
  }

  private static func missing(_ arguments: Arguments) -> Failure {
    .missing("secret", in: arguments, list: "vault list")
  }

  static func list(_ arguments: Arguments) throws -> Int32 {
    let vault = try open(arguments)
    var services = try services()
    if arguments.place != nil {
      guard services.contains(vault.service) else {
        throw Failure.missing(
          "service \"\(vault.service.name)\"", of: arguments.app, has: services.map(\.name))
      }
      services = [vault.service]
    }
    var secrets: [(SecureVault.Service, String, SecureVault.Entry)] = []
    for store in services.map({ SecureVault.service($0) }) {
      let keys = Reports.attempt { try store.keys() } ?? []
      Progress.each("Looking at \(store.service)", keys) { key in
        let entry = Reports.attempt { try store.entry(key) } ?? nil
        if let entry { secrets.append((store.service, key, entry)) }
      }
    }
    if arguments.has("json") {
      try Output.show(
        json: secrets.map { service, key, entry in
          Secret(
            service: service.name, key: key, created: entry.created.ISO8601Format(),
            modified: entry.modified.ISO8601Format(), needsPerson: entry.access == .userPresence)
        })
    } else {
      Table.show(
        ["SERVICE", "KEY", "CREATED", "MODIFIED", "ASKS"],
        secrets.map { service, key, entry in
          [
            service.name, key, Output.time(entry.created), Output.time(entry.modified),
            entry.access == .userPresence ? "a person" : "nobody",
          ]
        })
    }
    return Reports.status
  }

  static func show(_ arguments: Arguments) throws -> Int32 {
    guard Output.isTerminal || arguments.has("reveal") else {
      throw Failure(
        message: "standard output is no terminal: a file or another program would get the secret. "
          + "Add --reveal if that is meant.", status: 77)
    }
    let vault = try open(arguments)
    let key = arguments.words[1]
    let reason = "Show \(key) of \(arguments.words[0])"
    let isShown: Void? = try vault.withSecret(key, reason: reason) { bytes in
      bytes.withUnsafeBytes { bytes in
        if Output.isTerminal {
          print(Output.visible(String(decoding: bytes, as: UTF8.self)))
        } else {
          fwrite(bytes.baseAddress, 1, bytes.count, stdout)
        }
      }
    }
    if isShown == nil { throw missing(arguments) }
    return Reports.status
  }

  static func protect(_ arguments: Arguments) throws -> Int32 {
    let vault = try open(arguments)
    if arguments.has("key-file") {
      try vault.protect(with: .keyFile)
    } else {
      let passphrase = try ask("Protect the secrets of \(arguments.app)", isNew: true)
      try vault.protect(with: .passphrase(passphrase))
    }
    print("The secrets of \(arguments.app) are under a \(try vault.protection ?? .keyFile).")
    return Reports.status
  }

  static func rotate(_ arguments: Arguments) throws -> Int32 {
    try open(arguments).rotateKeys()
    print("The secrets of \(arguments.app) are under a new key.")
    return Reports.status
  }

  static func delete(_ arguments: Arguments) throws -> Int32 {
    let vault = try open(arguments)
    guard try vault.contains(arguments.words[1]) else { throw missing(arguments) }
    try vault.remove(arguments.words[1])
    return Reports.status
  }
}
