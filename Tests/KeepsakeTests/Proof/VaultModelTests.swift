import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// A vault behaves like a dictionary for each service, which each user has to unlock.
struct VaultModel: StoreModel {
  typealias Call = VaultUnderTest.Call

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

  struct Secret: Equatable {
    var sample: Sample
    var isPresence = false

    var summary: String { (isPresence ? "present: " : "") + sample.summary }
  }

  /// What is in the vault's directory.
  private struct Vault {
    var secrets: [Int: [Int: Secret]] = [:]
    var protection = Protection.none
    var recoveries = 0
  }

  static let name = "vault"
  private var vault = Vault()
  private var backup: Vault?
  private var access: [StoreUser: Access] = [:]
  /// The users that called `lock` and have not called `unlock` since.
  private var locked: Set<StoreUser> = []

  static func open(
    _ directory: TemporaryDirectory, _ failures: Failures
  ) throws -> VaultUnderTest {
    let vault = directory.vault(
      authenticate: { _ in VaultUnderTest.passphrases[0] }, failures: failures)
    let scope = StorageScope(finder: DirectoryFinder(app: "test"), handler: failures.append)
    let stores = VaultUnderTest.services.map {
      SecureVault.Store(
        service: SecureVault.Service($0), vault: FirstUse(.success(vault)), scope: scope)
    }
    return VaultUnderTest(
      stores: stores, storedServices: { try stores[0].services().map(\.name) },
      backup: directory.file("backup"),
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
    case 64..<69: return .rotateKeys
    case 69: return .addRecovery
    case 70: return .removeRecoveries
    case 71: return .backUp
    case 72: return .restore
    case 73..<76: return .protectWithKeyFile
    case 76..<79: return .protectWithPassphrase(passphrase)
    case 79..<83: return .unlock
    case 83..<93: return .unlockWith(passphrase)
    case 93..<96: return .lock
    default: return .isLocked
    }
  }

  /// Deriving a key from a passphrase takes the peer half a second.
  static func isAvailableToPeer(_ call: Call) -> Bool {
    if case .protectWithPassphrase = call { false } else { true }
  }

  /// A backup may be complete or not.
  static func mayBeInterrupted(_ call: Call) -> Bool {
    if case .backUp = call { false } else { true }
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
    // They need no key.
    case .backUp, .restore, .eraseVault:
      var next = self
      return [ModelOutcome(next.make(call, by: user), next)]
    default: break
    }
    var open = self
    var closed = self
    closed.access[user] = .closed
    let refusal = ModelOutcome("error: locked", closed)
    if locked.contains(user) { return [ModelOutcome("error: locked", self)] }
    if case .passphrase = vault.protection {
      if access(user) == .closed {
        // A user that had the vault open still has the key for the names of files.
        guard case .contains(let key, let service) = call, vault.secrets[service]?[key] != nil
        else { return [refusal] }
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
    guard case .passphrase = vault.protection else { return true }
    return access(user) != .unsure
  }

  private mutating func make(_ call: Call, by user: StoreUser) -> String {
    switch call {
    case .set(let key, let service, let sample):
      let isPresence = vault.secrets[service]?[key]?.isPresence ?? false
      set(Secret(sample: sample, isPresence: isPresence), key, service, by: user)
    case .setPresence(let key, let service, let sample):
      set(Secret(sample: sample, isPresence: true), key, service, by: user)
    case .add(let key, let service, let sample):
      if vault.secrets[service]?[key] != nil { return "false" }
      set(Secret(sample: sample), key, service, by: user)
      return "true"
    case .entry(let key, let service):
      guard let secret = vault.secrets[service]?[key] else { return "nothing" }
      return "\(secret.isPresence ? SecureVault.Access.userPresence : .whenUnlocked)"
    case .keys(let service): return "\((vault.secrets[service] ?? [:]).keys.sorted())"
    case .get(let key, let service, let kind):
      return vault.secrets[service]?[key]?.sample.summary(as: kind) ?? "nothing"
    case .contains(let key, let service): return "\(vault.secrets[service]?[key] != nil)"
    case .remove(let key, let service): vault.secrets[service]?[key] = nil
    case .removeAll(let service): vault.secrets[service] = nil
    case .protectWithKeyFile: protect(.keyFile, by: user)
    case .protectWithPassphrase(let number): protect(.passphrase(number), by: user)
    case .addRecovery:
      if vault.protection == .none { vault.protection = .keyFile }
      if vault.protection == .keyFile { access[user] = .open }
      vault.recoveries += 1
    case .removeRecoveries: vault.recoveries = 0
    case .backUp:
      if vault.protection == .none { return "none" }
      backup = vault
    case .eraseVault:
      vault = Vault()
      access = [:]
    case .restore:
      guard let backup else { return "none" }
      vault = backup
      for user in StoreUser.allCases { access[user] = .unsure }
    case .rotateKeys, .forgetOldKeys, .unlock, .unlockWith, .lock, .isLocked: break
    }
    return "done"
  }

  private mutating func set(_ secret: Secret, _ key: Int, _ service: Int, by user: StoreUser) {
    vault.secrets[service, default: [:]][key] = secret
    if vault.protection == .none { vault.protection = .keyFile }
    if vault.protection == .keyFile { access[user] = .open }
  }

  /// All other users have to unlock the vault again.
  private mutating func protect(_ protection: Protection, by user: StoreUser) {
    vault.protection = protection
    vault.recoveries = 0
    access = [user: .open]
  }

  /// A user with an outdated key learns of that at its next call; until then either answer is
  /// right.
  private func isLocked(_ user: StoreUser) -> [ModelOutcome<Self>] {
    if locked.contains(user) { return [ModelOutcome("true", self)] }
    guard case .passphrase = vault.protection else { return [ModelOutcome("false", self)] }
    if access(user) == .open { return [ModelOutcome("false", self)] }
    return [ModelOutcome("true", self), ModelOutcome("false", self)]
  }

  private func unlock(_ user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    guard case .passphrase = vault.protection else {
      next.locked.remove(user)
      return [ModelOutcome("done", next)]
    }
    let isClosed = locked.contains(user) || access(user) == .closed
    let done = ModelOutcome("done", self)
    next.access[user] = .closed
    let refusal = ModelOutcome("error: locked", next)
    return isClosed ? [refusal] : isSure(user) ? [done] : [done, refusal]
  }

  private func unlock(_ user: StoreUser, with number: Int) -> [ModelOutcome<Self>] {
    switch vault.protection {
    case .none: return [ModelOutcome("error: not found", self)]
    case .keyFile:
      // It may be a recovery code.
      let error = vault.recoveries == 0 ? "error: misuse" : "error: wrong passphrase"
      return [ModelOutcome(error, self)]
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
    guard case .passphrase = vault.protection else { return true }
    return access(user) == .open
  }

  // MARK: Contents

  private typealias Fact = VaultUnderTest.Fact

  var contents: [String: String] {
    var contents: [String: String] = [:]
    for (service, secrets) in vault.secrets {
      for (key, secret) in secrets { contents["\(service)/\(key)"] = secret.summary }
    }
    switch vault.protection {
    case .none: return contents
    case .keyFile: contents[Fact.protection] = "key file"
    case .passphrase: contents[Fact.protection] = "passphrase"
    }
    if vault.recoveries > 0 { contents[Fact.recoveries] = "\(vault.recoveries)" }
    return contents
  }

  mutating func accept(_ found: [String: String]) -> Bool {
    var found = found
    // Only if the vault had to be opened.
    if let passphrase = found.removeValue(forKey: Fact.passphrase) {
      guard case .passphrase(let number) = vault.protection, passphrase == "\(number)" else {
        return false
      }
    }
    return found == contents
  }

  func partialStates(of call: Call, found: [String: String]) -> [Self] {
    func without(_ isRemovable: (_ service: Int) -> Bool) -> Self {
      var state = self
      for (service, secrets) in vault.secrets where isRemovable(service) {
        state.vault.secrets[service] = secrets.filter { found["\(service)/\($0.key)"] != nil }
      }
      return state
    }
    // The user may or may not have had the keys.
    var able = self
    _ = able.make(call, by: .first)
    switch call {
    case .removeAll(let service): return [able, without { $0 == service }]
    case .eraseVault: return [able, without { _ in true }]
    default: break
    }
    if vault.protection != .none { return [able] }
    // A new vault without the secret.
    var empty = self
    empty.vault.protection = .keyFile
    return [able, empty]
  }

  mutating func wasInterrupted(_ call: Call) {
    switch call {
    case .protectWithKeyFile, .protectWithPassphrase:
      for user in StoreUser.allCases where access(user) == .open { access[user] = .unsure }
      for user in StoreUser.allCases where access[user] == nil { access[user] = .unsure }
    default: break
    }
  }
}

extension VaultModel: SweptModel {
  static var sweeps: [Sweep<Call>] {
    let (old, new) = (Sample.marked(1), Sample.marked(2))
    let start: [Call] = [.set(0, in: 0, old), .set(1, in: 0, .text(3)), .set(0, in: 1, .text(9))]
    let calls: [Call] = [
      .set(0, in: 0, new), .set(2, in: 0, new), .set(0, in: 2, new),
      // Sealed and written in pieces.
      .set(0, in: 0, .bytes(200_000)),
      .add(2, in: 0, new), .add(0, in: 0, new), .remove(0, in: 0), .removeAll(in: 0), .rotateKeys,
      .protectWithKeyFile, .addRecovery, .removeRecoveries, .forgetOldKeys, .eraseVault, .backUp,
      .get(0, in: 0, as: .text), .get(2, in: 0, as: .text), .contains(0, in: 0), .entry(0, in: 0),
      .keys(in: 0),
    ]
    let presence = start + [.protectWithPassphrase(0), .setPresence(4, in: 0, old)]
    let backedUp = start + [.addRecovery, .backUp, .set(0, in: 0, new), .remove(1, in: 0)]
    return [Sweep(call: .set(0, in: 0, new))] + calls.map { Sweep(call: $0, start: start) }
      + [
        Sweep(call: .removeRecoveries, start: start + [.addRecovery, .addRecovery]),
        Sweep(call: .restore, start: backedUp), Sweep(call: .eraseVault, start: backedUp),
        // Deriving a key from a passphrase is slow on purpose.
        Sweep(call: .protectWithPassphrase(0), step: 4),
        Sweep(call: .protectWithPassphrase(0), start: start, step: 4),
        Sweep(call: .protectWithPassphrase(0), start: presence, step: 4),
        Sweep(call: .setPresence(0, in: 0, new), start: presence, step: 4),
        Sweep(call: .get(4, in: 0, as: .text), start: presence, step: 4),
        Sweep(call: .rotateKeys, start: presence, step: 4),
        Sweep(call: .unlockWith(0), start: presence, step: 4),
      ]
  }

  /// Removing several secrets goes on after one that cannot be removed.
  func faultStates(of call: Call) -> [Self] {
    let services: [Int] =
      switch call {
      case .removeAll(let service): [service]
      case .eraseVault: Array(vault.secrets.keys)
      default: []
      }
    var states = [self]
    for service in services {
      for key in vault.secrets[service, default: [:]].keys {
        states += states.map { state in
          var state = state
          state.vault.secrets[service]?[key] = nil
          return state
        }
      }
    }
    return states
  }

  /// The system calls of opening are the same for all calls, and need to fail only in one.
  static func prepare(_ store: VaultUnderTest) throws {
    guard try store.stores[0].isLocked else {
      _ = try store.stores[0].contains("")
      return
    }
    try store.stores[0].unlock(passphrase: VaultUnderTest.passphrases[0])
  }

  mutating func wasPrepared() { access[.first] = .open }
}

extension VaultModel: DamagedModel {
  static let filling: [Call] = [
    .set(0, in: 0, .marked(1)), .set(1, in: 0, .marked(2)), .set(0, in: 1, .marked(3)),
    // Sealed and written in pieces.
    .set(2, in: 0, .bytes(200_000)),
  ]
  static let newValue = Call.set(4, in: 0, .marked(4))

  static func nameStored(by call: Call) -> String? {
    if case .set(let key, let service, _) = call { "\(service)/\(key)" } else { nil }
  }

  static let kinds: Set = [
    "header", "lock", "key file", "lock of the key file", "secret",
    "large secret",
  ]

  static func kind(of file: Snapshot.File) -> String? {
    switch file.name {
    case "vault/vault.hdr": "header"
    case "vault/.lock": "lock"
    case "state/vault.key": "key file"
    case "state/.vault.key.lock": "lock of the key file"
    default:
      file.name.hasPrefix("vault/") ? file.bytes.count > 100_000 ? "large secret" : "secret" : nil
    }
  }

  static func owners(in directory: TemporaryDirectory) throws -> [String: String] {
    var owners: [String: String] = [:]
    for name in filling.compactMap(nameStored) {
      let numbers = name.split(separator: "/").compactMap { Int($0) }
      let path = try directory.secretPath(
        ModelKeys.all[numbers[1]], VaultUnderTest.services[numbers[0]])
      owners[String(path.dropFirst(directory.path.count + 1))] = name
    }
    return owners
  }

  /// A deleted file is indistinguishable from a removed secret.
  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool {
    guard case .deleted = scene.damage else { return false }
    return found == nil && scene.owners[scene.file.name] == name
  }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct VaultModelTests {
    @Test func aVaultBehavesLikeDictionaries() {
      ModelCheck<VaultModel>().run(sequences: 20, length: 60)
    }
  }
}
