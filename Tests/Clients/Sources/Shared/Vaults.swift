// Locking and protecting vaults.
import Checks
import FoundationEssentials
import Keepsake

/// The error of a call as a command-line tool would print it.
func explain(_ body: (SecureVault.Store) throws(StorageError) -> Void) -> String {
  do throws(StorageError) {
    try body(SecureVault.shared)
    return "done"
  } catch {
    switch error.code {
    case .locked: return "unlock first"
    case .wrongPassphrase: return "once more"
    case .misuse: return "impossible"
    default: return error.description
    }
  }
}

/// Types a passphrase in place of a user.
@Sendable nonisolated func typePassphrase(
  _ request: SecureVault.PassphraseRequest
) throws -> String? {
  if request.reason == "Spy" { throw Refusal() }
  return "a passphrase"
}

extension Caller {
  /// Slow, because each passphrase takes half a second.
  func checkPassphrases() async throws {
    SecureVault.set("v", forKey: "k")
    check(SecureVault.protection == .keyFile && !SecureVault.isLocked)
    guard SecureVault.protect(with: .passphrase("open sesame")) else { return check(false) }
    SecureVault.lock()
    check(SecureVault.isLocked && SecureVault.protection == .passphrase)
    let store = SecureVault.shared
    check(explain { store throws(StorageError) in _ = try store.get("k") }, is: "unlock first")
    check(
      explain { store throws(StorageError) in try store.unlock(passphrase: "x") }, is: "once more")
    check(try store.isLocked)
    // Off the main actor, because it takes half a second.
    check(await Task.detached { SecureVault.unlock(passphrase: "open sesame") }.value)
    try store.lock()
    try store.unlock(passphrase: "open sesame")
    switch try store.protection {
    case .passphrase: break
    case .keyFile, .credential, .closure, nil: check(false)
    }
    check(
      explain { store throws(StorageError) in try store.protect(with: .credential("absent")) },
      is: "impossible")
    try store.protect(with: .keyFile)
    try store.unlock()
    try store.rotateKeys()
    check(SecureVault.protect(with: .keyFile, service: .standard))
    check(!SecureVault.isLocked(service: "other") && !SecureVault.isLocked)
    check(SecureVault.protection(service: .standard) == .keyFile)
    SecureVault.lock(service: .standard)
    check(SecureVault.unlock())
    check(await Task { SecureVault.get("k") }.value, is: "v")
    try store.eraseVault()
    check(SecureVault.protection == nil)
  }

  func checkUserPresence() async throws {
    let typed = "a passphrase"
    let user: SecureVault.Authenticator = { request in
      request.isNew == (request.reason == "Store the secret pin") ? typed : nil
    }
    try await StorageSystem.withTemporary(authenticate: user) {
      SecureVault.defaultService = "notes"
      SecureVault[.pin] = "1234"
      check(SecureVault.get(.pin, reason: "Unlock notes"), is: "1234")
      check(try SecureVault.service("notes").entry("pin")?.access == .userPresence)
    }
    check(SecureVault.defaultService, is: .standard)
    try await StorageSystem.withTemporary(authenticate: typePassphrase) {
      SecureVault[.pin] = "1234"
      do {
        _ = try SecureVault.shared.get(.pin, reason: "Spy")
        check(false)
      } catch StorageError.Code.locked {
        check(SecureVault.contains("pin"))
      }
    }
    let _: [SecureVault.Authenticator] = [SecureVault.askTerminal, typePassphrase]
  }

  func checkKeySources() async throws {
    let key = Data((0..<32).map { _ in UInt8.random(in: 0...255) })
    let server = SecureVault.KeySource.closure("key server") { key }
    let sources: [SecureVault.KeySource] = [.credential(), server, .keyFile]
    try await StorageSystem.withTemporary(keySources: sources) {
      SecureVault.set("v", forKey: "k")
      check(SecureVault.protection == .closure("key server"))
    }
    try await StorageSystem.withTemporary(
      keySources: [.closure("server") { Data(count: 32) }] + SecureVault.KeySource.standard
    ) {
      SecureVault[.account] = Profile(name: "temporary")
      check(SecureVault.protection == .closure("server"))
    }
  }
}
