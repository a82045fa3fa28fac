import FoundationEssentials
import Keepsake

/// A vault with several services.
struct VaultUnderTest: StoreUnderTest {
  enum Call: Codable, Sendable {
    case set(Int, in: Int, Sample)
    /// The user has to be present to read it.
    case setPresence(Int, in: Int, Sample)
    case add(Int, in: Int, Sample)
    case get(Int, in: Int, as: Sample.Kind)
    case contains(Int, in: Int)
    case entry(Int, in: Int)
    case keys(in: Int)
    case remove(Int, in: Int)
    case removeAll(in: Int)
    case rotateKeys
    case protectWithKeyFile
    case protectWithPassphrase(Int)
    case unlock
    case unlockWith(Int)
    case lock
    case isLocked
    case addRecovery
    case removeRecoveries
    case forgetOldKeys
    case eraseVault
    case backUp
    /// Replaces the vault by the last backup, if there is one.
    case restore
  }

  /// The names of contents that are no secrets.
  enum Fact {
    static let protection = "protection"
    /// The number of the passphrase that unlocks the vault, if one was needed.
    static let passphrase = "passphrase"
    /// How many recovery codes there are.
    static let recoveries = "recoveries"
  }

  private struct Service: TypedStore {
    let store: SecureVault.Store

    func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T? {
      try store.model(key, type: T.self)
    }
  }

  static let services = ["standard", "", "é\0/.."]
  static let passphrases = ["correct horse", "correct horsf"]

  /// The stores of the services, by number.
  let stores: [SecureVault.Store]
  /// The names of the services that have secrets.
  let storedServices: @Sendable () throws -> [String]
  /// The directory of the backup, with a copy of the key file.
  let backup: URL
  var keySource: @Sendable (_ passphrase: String) -> SecureVault.KeySource = { .passphrase($0) }

  func perform(_ call: Call) throws -> String {
    func name(_ number: Int) -> String { ModelKeys.all[number] }
    switch call {
    case .set(let key, let service, let sample):
      try sample.open { try stores[service].set($0, forKey: name(key)) }
    case .setPresence(let key, let service, let sample):
      try sample.open {
        try stores[service].set($0, forKey: name(key), access: .userPresence)
      }
    case .add(let key, let service, let sample):
      return try sample.open { "\(try stores[service].add($0, forKey: name(key)))" }
    case .entry(let key, let service):
      return try stores[service].entry(name(key)).map { "\($0.access)" } ?? "nothing"
    case .keys(let service):
      return "\(try stores[service].keys().map(ModelKeys.number).sorted())"
    case .get(let key, let service, let kind):
      return try Service(store: stores[service]).summary(name(key), as: kind)
    case .contains(let key, let service): return "\(try stores[service].contains(name(key)))"
    case .remove(let key, let service): try stores[service].remove(name(key))
    case .removeAll(let service): try stores[service].removeAll()
    case .rotateKeys: try stores[0].rotateKeys()
    case .protectWithKeyFile: try stores[0].protect(with: .keyFile)
    case .protectWithPassphrase(let number):
      try stores[0].protect(with: keySource(Self.passphrases[number]))
    case .unlock: try stores[0].unlock()
    case .unlockWith(let number): try stores[0].unlock(passphrase: Self.passphrases[number])
    case .lock: try stores[0].lock()
    case .isLocked: return "\(try stores[0].isLocked)"
    case .addRecovery: _ = try stores[0].addRecovery()
    case .removeRecoveries: try stores[0].removeAllRecoveries()
    case .forgetOldKeys: try stores[0].forgetOldKeys()
    case .eraseVault: try stores[0].eraseVault()
    case .backUp: return try backUp()
    case .restore:
      guard isPresent("vault") else { return "none" }
      _ = try stores[0].prepareRestore(
        from: backup.appending(path: "vault").path,
        keyFile: isPresent("key") ? backup.appending(path: "key").path : nil
      ).commit()
    }
    return "done"
  }

  private func isPresent(_ name: String) -> Bool {
    FileManager.default.fileExists(atPath: backup.appending(path: name).path)
  }

  private func backUp() throws -> String {
    guard let protection = try stores[0].protection else { return "none" }
    // By the library, so that the proofs see these system calls, too.
    try Folder(backup.deletingLastPathComponent()).delete(backup.lastPathComponent)
    try Folder(backup).create()
    let keyFile = protection == .keyFile ? backup.appending(path: "key").path : nil
    try stores[0].backUp(to: backup.appending(path: "vault").path, keyFile: keyFile)
    return "done"
  }

  /// The number of the service and that of the key, as in 0/1.
  func names() throws -> [String] {
    var names: [String] = []
    for (number, store) in stores.enumerated() {
      names += try store.keys().map { "\(number)/\(try ModelKeys.number(of: $0))" }
    }
    return names
  }

  func value(named name: String) throws -> String? {
    let numbers = name.split(separator: "/").compactMap { Int($0) }
    let (store, key) = (stores[numbers[0]], ModelKeys.all[numbers[1]])
    guard let access = try store.entry(key)?.access else { return nil }
    let summary = try Service(store: store).summary(key) ?? "nothing"
    return access == .userPresence ? "present: " + summary : summary
  }

  func contents() throws -> [String: String] {
    var contents: [String: String] = [:]
    guard let protection = try stores[0].protection else {
      // Entries without a header would be an error of this call.
      for store in stores where try !store.keys().isEmpty {
        throw UnexpectedContents(text: "secrets without a vault")
      }
      return contents
    }
    contents[Fact.protection] = "\(protection)"
    // After the vault was protected in another way, by another process or by a call that failed in
    // the end, the next call finds that out.
    _ = try? stores[0].keys()
    if try stores[0].isLocked { contents[Fact.passphrase] = "\(try open())" }
    let recoveries = try stores[0].unlockMethods.count { $0.isRecovery }
    if recoveries > 0 { contents[Fact.recoveries] = "\(recoveries)" }
    for name in try names() { contents[name] = try value(named: name) ?? "nothing" }
    let services = Set(contents.keys.compactMap { Int($0.prefix { $0 != "/" }) }).map {
      Self.services[$0]
    }
    let found = try storedServices()
    guard Set(found) == Set(services), found.count == services.count else {
      throw UnexpectedContents(text: "services() has \(found), keys are in \(services)")
    }
    return contents
  }

  private func open() throws -> Int {
    for (number, passphrase) in Self.passphrases.enumerated() {
      do {
        try stores[0].unlock(passphrase: passphrase)
        return number
      } catch {
        guard error.code == .wrongPassphrase else { throw error }
      }
    }
    throw UnexpectedContents(text: "no passphrase opens the vault")
  }
}

extension VaultUnderTest {
  /// The vault of this process.
  init(in directory: URL) {
    self.init(
      stores: Self.services.map { SecureVault.service(SecureVault.Service($0)) },
      storedServices: { SecureVault.services().map(\.name) },
      backup: directory.appending(path: "backup"))
  }
}

extension VaultUnderTest: ByteStore {
  func set(_ bytes: Data, _ name: String) throws { try stores[0].set(bytes, forKey: name) }
  func remove(_ name: String) throws { try stores[0].remove(name) }
  func bytes(_ name: String) throws -> Data? { try stores[0].getData(name) }
  func removeAll() throws { try stores[0].removeAll() }

  func maintain(_ number: Int) throws {
    let calls: [Call] = [
      .rotateKeys, .backUp, .addRecovery, .removeRecoveries, .protectWithKeyFile,
    ]
    try perform(oneOf: calls, number)
  }
}
