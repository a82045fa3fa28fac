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

  /// The vault, open, with its passphrase if it needs one.
  private static func open(_ arguments: Arguments) throws -> SecureVault.Store {
    try arguments.enterApp()
    let vault = SecureVault.service(arguments.place.map { SecureVault.Service($0) } ?? .standard)
    guard try vault.protection != nil || !services().isEmpty else {
      throw Failure(
        message: "\(arguments.app) has no secrets here. `keepsakectl list` shows who has.")
    }
    try unlock(vault, of: arguments.app)
    return vault
  }

  static func unlock(_ vault: SecureVault.Store, of app: String) throws {
    guard try vault.protection == .passphrase, try vault.isLocked else { return }
    try vault.unlock(passphrase: try ask("The secrets of \(app) are locked"))
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
    Failure(
      message: "\(arguments.words[0]) has no secret \(arguments.words[1]). "
        + "`keepsakectl vault list \(arguments.app)` shows what it has.")
  }

  static func list(_ arguments: Arguments) throws -> Int32 {
    let vault = try open(arguments)
    var services = try services()
    if arguments.place != nil {
      guard services.contains(vault.service) else {
        let names = services.map(\.name).joined(separator: ", ")
        throw Failure(
          message: "\(arguments.app) has no service \(vault.service.name). It has: \(names).")
      }
      services = [vault.service]
    }
    var secrets: [(SecureVault.Service, String, SecureVault.Entry)] = []
    for service in services {
      let store = SecureVault.service(service)
      for key in try store.keys() {
        if let entry = try store.entry(key) { secrets.append((service, key, entry)) }
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
      Output.show(
        ["SERVICE", "KEY", "CREATED", "MODIFIED", "ACCESS"],
        secrets.map { service, key, entry in
          let access = entry.access == .userPresence ? "asks a person" : "when unlocked"
          return [
            service.name, key, Output.time(entry.created), Output.time(entry.modified), access,
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
    return 0
  }

  static func protect(_ arguments: Arguments) throws -> Int32 {
    try requireNoPlace(arguments)
    let vault = try open(arguments)
    if arguments.has("key-file") {
      try vault.protect(with: .keyFile)
    } else {
      let passphrase = try ask("Protect the secrets of \(arguments.app)", isNew: true)
      try vault.protect(with: .passphrase(passphrase))
    }
    print("The secrets of \(arguments.app) are under a \(try vault.protection ?? .keyFile).")
    return 0
  }

  static func rotate(_ arguments: Arguments) throws -> Int32 {
    try requireNoPlace(arguments)
    try open(arguments).rotateKeys()
    print("The secrets of \(arguments.app) are under a new key.")
    return 0
  }

  /// All services are under one key.
  private static func requireNoPlace(_ arguments: Arguments) throws {
    if arguments.place != nil {
      throw Failure.usage("all services of an app are under one key: name the app alone.")
    }
  }

  static func delete(_ arguments: Arguments) throws -> Int32 {
    let vault = try open(arguments)
    guard try vault.contains(arguments.words[1]) else { throw missing(arguments) }
    try vault.remove(arguments.words[1])
    return 0
  }
}
