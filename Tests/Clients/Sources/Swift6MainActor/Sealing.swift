// SecureVault in Swift 6 mode, from the main actor and off it.
import Checks
import Foundation
import Keepsake
import Observation

extension SecureVault.Key<Profile> {
  static let identity = Self("identity", service: "com.app.auth")
}

extension SecureVault.Key<Document> {
  static let diary = SecureVault.Key<Document>("diary")
}

extension SecureVault.Key<String> {
  static let pin = Self("pin", access: .userPresence)
}

enum SigningFailure: Error { case empty }

func signature(_ key: RawSpan) throws(SigningFailure) -> Int {
  if key.isEmpty { throw .empty }
  return key.byteCount
}

/// A view model whose state is changed in closures.
@MainActor @Observable final class Login {
  var user = ""
  var isLocked = true
  var problem: String?
  var signatures = 0
  @ObservationIgnored let auth = SecureVault.service("com.app.auth")

  func store(_ token: String) {
    guard SecureVault.set(token, forKey: "token", service: "com.app.auth") else { return }
    SecureVault[.identity] = Profile(name: user)
    SecureVault[.identity]?.scores["logins", default: []].append(1)
  }

  func sign() throws -> Int? {
    SecureVault.withSecret("token", service: "com.app.auth") { bytes in
      signatures += bytes.byteCount
    }
    try auth.withSecret("token") { _ in signatures += 1 }
    try auth.withSecret("token") { bytes in self.signatures += try signature(bytes) }
    return try SecureVault.withSecret("token", service: "com.app.auth", signature)
  }

  func load() {
    do {
      user = try auth.get(.identity)?.name ?? ""
      problem = nil
    } catch StorageError.Code.locked {
      problem = "unlock first"
    } catch {
      problem = error.remedy
    }
    isLocked = SecureVault.isLocked
  }

  /// Off the main actor, because a passphrase takes half a second.
  func unlock(_ passphrase: String) async -> Bool {
    let isOpen = await Task.detached { SecureVault.unlock(passphrase: passphrase) }.value
    load()
    return isOpen
  }
}

@MainActor func checkSecrets() throws {
  let login = Login()
  login.user = "Ada"
  login.store("tok")
  check(try login.sign(), is: 3)
  check(login.signatures, is: 7)
  login.user = ""
  login.load()
  check(login.user == "Ada" && !login.isLocked && login.problem == nil)
  check(SecureVault[.identity]?.scores["logins"], is: [1])

  SecureVault.set(Document(title: "d"), forKey: "document")
  let document: Document? = SecureVault.model("document")
  check(document?.title, is: "d")
  SecureVault[.diary] = document
  SecureVault[.diary]?.title = "mutated in place"
  check(SecureVault.contains(.diary) && SecureVault.entry(.diary) != nil)
  check(SecureVault.set(Document(title: "other"), for: .diary))
  check(SecureVault.get(.diary)?.title, is: "other")
  SecureVault.remove(.diary)
  let count = Theme.allCases.count
  SecureVault.set(Data([1]), forKey: "data", access: .whenUnlocked, service: "themes-\(count)")
  check(SecureVault.getData("data", service: "themes-2")?.count, is: 1)
  check(SecureVault.services(), is: ["com.app.auth", "standard", "themes-2"])
  SecureVault.set(nil, forKey: "data", service: "themes-\(count)")
  check(SecureVault.keys(service: "themes-2"), is: [])
  check(try login.auth.keys(), is: ["identity", "token"])
  check(try login.auth.folderURL, is: try SecureVault.shared.folderURL)
  check(SecureVault.rotateKeys())
  do {
    try login.auth.remove(.identity)
    try login.auth.set(Profile(name: "Grace"), for: .identity)
    try login.auth.rotateKeys()
    check(try login.auth.get("token"), is: "tok")
    check(try login.auth.model("identity", type: Profile.self)?.name, is: "Grace")
  } catch StorageError.Code.diskFull {
    check(false)
  } catch {
    // Without this clause the Swift 6.3 compiler crashes.
    throw error
  }
}

@MainActor func checkSecretsInTasks() async throws {
  let login = Login()
  check(try login.auth.getData("token")?.count, is: 3)
  check(await Task.detached { SecureVault.protect(with: .passphrase("open sesame")) }.value)
  check(SecureVault.protection == .passphrase)
  SecureVault.lock()
  login.load()
  check(login.isLocked && login.problem == "unlock first")
  check(await login.unlock("open sesame"))
  check(!login.isLocked && login.user == "Grace")
  check(await Task.detached { SecureVault.get("token", service: "com.app.auth") }.value, is: "tok")
  let name = await Task { @MainActor in SecureVault[.identity]?.name }.value
  check(name, is: "Grace")

  // What the user types.
  let typed = "a passphrase"
  let user: SecureVault.Authenticator = { request in
    check(request.isNew == (request.reason == "Store the secret pin"))
    return typed
  }
  try await StorageSystem.withTemporary(authenticate: user) {
    SecureVault.defaultService = "notes"
    SecureVault[.pin] = "1234"
    check(SecureVault.get(.pin, reason: "Unlock notes"), is: "1234")
    check(SecureVault.entry("pin", service: "notes")?.access == .userPresence)
    check(SecureVault.keys(), is: ["pin"])
  }
  check(SecureVault.defaultService, is: .standard)
  try await StorageSystem.withTemporary(
    keySources: [.closure("server") { Data(count: 32) }] + SecureVault.KeySource.standard
  ) {
    SecureVault[.identity] = Profile(name: "temporary")
    check(SecureVault.protection == .closure("server"))
  }
}
