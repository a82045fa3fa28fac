import Testing

@testable import Keepsake
@testable import keepsake_peer

/// A vault behaves like a dictionary for each service, which each user has to unlock.
struct VaultModel: StoreModel {
  typealias Call = ScriptedVault.Call

  private enum Protection: Equatable {
    case none, keyFile
    case passphrase(Int)
  }

  /// Whether a user has the keys of the vault.
  private enum Access {
    case closed
    /// Until the vault is protected in another way.
    case open
    /// Either of them, after an interrupted call.
    case unsure
  }

  static let name = "vault"
  private var secrets: [Int: [Int: Sample]] = [:]
  private var protection = Protection.none
  private var access: [StoreUser: Access] = [:]
  /// The users that called `lock` and have not called `unlock` since.
  private var locked: Set<StoreUser> = []

  static func open(_ directory: TemporaryDirectory) throws -> ScriptedVault {
    let vault = directory.vault()
    let scope = StorageScope(finder: DirectoryFinder(app: "test"))
    let stores = ScriptedVault.services.map {
      SecureVault.Store(service: SecureVault.Service($0), vault: .success(vault), scope: scope)
    }
    return ScriptedVault(
      stores: stores, storedServices: { try stores[0].storedServices().map(\.name) },
      keySource: { SecureVault.KeySource(.passphrase($0, logN: 10)) })
  }

  static func randomCall(_ generator: inout SplitMix64) -> Call {
    let key = Int.randomKey(&generator)
    let service = Int.random(in: 0..<3, using: &generator)
    let passphrase = Int.random(in: 0..<2, using: &generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<30: return .set(key, in: service, .random(&generator))
    case 30..<45:
      return .get(key, in: service, as: .allCases.randomElement(using: &generator) ?? .int)
    case 45..<50: return .contains(key, in: service)
    case 50..<60: return .remove(key, in: service)
    case 60..<64: return .removeAll(in: service)
    case 64..<72: return .rotateKeys
    case 72..<76: return .protectWithKeyFile
    case 76..<79: return .protectWithPassphrase(passphrase)
    case 79..<83: return .unlock
    case 83..<93: return .unlockWith(passphrase)
    case 93..<96: return .lock
    default: return .isLocked
    }
  }

  static func simpler(_ call: Call) -> [Call] {
    switch call {
    case .set(let key, let service, let sample):
      sample.simpler.map { .set(key, in: service, $0) }
        + key.simpler.map { .set($0, in: service, sample) }
        + service.simpler.map { .set(key, in: $0, sample) }
    case .get(let key, let service, let kind): key.simpler.map { .get($0, in: service, as: kind) }
    case .contains(let key, let service): key.simpler.map { .contains($0, in: service) }
    case .remove(let key, let service): key.simpler.map { .remove($0, in: service) }
    case .removeAll(let service): service.simpler.map { .removeAll(in: $0) }
    default: []
    }
  }

  /// Deriving a key from a passphrase takes the peer half a second.
  static func isAvailableToPeer(_ call: Call) -> Bool {
    if case .protectWithPassphrase = call { false } else { true }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .set(let key, let service, let sample): .get(key, in: service, as: sample.kind)
    case .remove(let key, let service): .contains(key, in: service)
    case .lock, .unlock, .unlockWith: .isLocked
    default: nil
    }
  }

  // MARK: Calls

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    switch call {
    case .lock:
      var next = self
      next.locked.insert(user)
      next.access[user] = .closed
      return [ModelOutcome("done", next)]
    case .isLocked: return isLocked(user)
    case .unlock: return unlock(user)
    case .unlockWith(let number): return unlock(user, with: number)
    default: break
    }
    var open = self
    var closed = self
    closed.access[user] = .closed
    let refusal = ModelOutcome("error: locked", closed)
    if locked.contains(user) { return [ModelOutcome("error: locked", self)] }
    if case .passphrase = protection {
      if access(user) == .closed {
        // A user that had the vault open still has the key for the names of files.
        guard case .contains(let key, let service) = call, secrets[service]?[key] != nil else {
          return [refusal]
        }
        return [refusal, ModelOutcome("true", self)]
      }
      // `contains` works with an old key, too.
      if case .contains = call {} else { open.access[user] = .open }
    }
    let answer = open.make(call, by: user)
    let outcome = ModelOutcome(answer, open)
    return isSure(user) ? [outcome] : [outcome, refusal]
  }

  private func access(_ user: StoreUser) -> Access { access[user] ?? .closed }

  private func isSure(_ user: StoreUser) -> Bool {
    guard case .passphrase = protection else { return true }
    return access(user) != .unsure
  }

  private mutating func make(_ call: Call, by user: StoreUser) -> String {
    switch call {
    case .set(let key, let service, let sample):
      secrets[service, default: [:]][key] = sample
      if protection == .none { protection = .keyFile }
      if protection == .keyFile { access[user] = .open }
    case .get(let key, let service, let kind):
      return secrets[service]?[key]?.summary(as: kind) ?? "nothing"
    case .contains(let key, let service): return "\(secrets[service]?[key] != nil)"
    case .remove(let key, let service): secrets[service]?[key] = nil
    case .removeAll(let service): secrets[service] = nil
    case .protectWithKeyFile: protect(.keyFile, by: user)
    case .protectWithPassphrase(let number): protect(.passphrase(number), by: user)
    case .rotateKeys, .unlock, .unlockWith, .lock, .isLocked: break
    }
    return "done"
  }

  /// All other users have to unlock the vault again.
  private mutating func protect(_ protection: Protection, by user: StoreUser) {
    self.protection = protection
    access = [user: .open]
  }

  /// A user with an outdated key learns of that at its next call; until then either answer is
  /// right.
  private func isLocked(_ user: StoreUser) -> [ModelOutcome<Self>] {
    if locked.contains(user) { return [ModelOutcome("true", self)] }
    guard case .passphrase = protection else { return [ModelOutcome("false", self)] }
    if access(user) == .open { return [ModelOutcome("false", self)] }
    return [ModelOutcome("true", self), ModelOutcome("false", self)]
  }

  private func unlock(_ user: StoreUser) -> [ModelOutcome<Self>] {
    if case .passphrase = protection { return [ModelOutcome("error: locked", self)] }
    var next = self
    next.locked.remove(user)
    return [ModelOutcome("done", next)]
  }

  private func unlock(_ user: StoreUser, with number: Int) -> [ModelOutcome<Self>] {
    switch protection {
    case .none: return [ModelOutcome("error: not found", self)]
    case .keyFile: return [ModelOutcome("error: misuse", self)]
    case .passphrase(number):
      var next = self
      next.locked.remove(user)
      next.access[user] = .open
      return [ModelOutcome("done", next)]
    case .passphrase: return [ModelOutcome("error: wrong passphrase", self)]
    }
  }

  mutating func reopened(_ user: StoreUser) {
    locked.remove(user)
    access[user] = .closed
  }

  func canReadContents(_ user: StoreUser) -> Bool {
    guard !locked.contains(user) else { return false }
    guard case .passphrase = protection else { return true }
    return access(user) == .open
  }

  // MARK: Contents

  private var summaries: [Int: [Int: String]] {
    secrets.filter { !$0.value.isEmpty }.mapValues { $0.mapValues(\.summary) }
  }

  mutating func accept(_ found: ScriptedVault.Contents) -> Bool {
    guard found.secrets == summaries else { return false }
    switch protection {
    case .none: return found.protection == nil
    case .keyFile: return found.protection == "key file"
    case .passphrase(let number):
      return found.protection == "passphrase" && (found.passphrase ?? number) == number
    }
  }

  mutating func accept(
    _ found: ScriptedVault.Contents, interrupting call: Call
  ) -> Bool {
    var models = [self]
    // The user may or may not have had the keys.
    var able = self
    _ = able.make(call, by: .first)
    models.append(able)
    switch call {
    case .removeAll(let service):
      var partly = self
      let left = found.secrets[service] ?? [:]
      partly.secrets[service] = secrets[service]?.filter { left[$0.key] != nil }
      models.append(partly)
    case .set where protection == .none:
      // A new vault without the secret.
      var empty = self
      empty.protection = .keyFile
      models.append(empty)
    default: break
    }
    for var model in models where model.accept(found) {
      self = model
      switch call {
      case .protectWithKeyFile, .protectWithPassphrase:
        for user in StoreUser.allCases where access(user) == .open { access[user] = .unsure }
        for user in StoreUser.allCases where access[user] == nil { access[user] = .unsure }
      default: break
      }
      return true
    }
    return false
  }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct VaultModelTests {
    @Test func aVaultBehavesLikeDictionaries() {
      ModelCheck<VaultModel>().run(sequences: 20, length: 60)
    }
  }
}
