import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Opens vaults that were written once, as every version of the library must.
///
/// If a test fails here, users would lose their secrets with the next release.
@Suite struct GoldenVaultTests {
  private struct Credentials: Codable, Equatable {
    var user: String
    var scopes: [String]
  }

  /// Written once by ``makeVaults()``, and never changed: a directory for each vault.
  private static let golden = Repository.file("Tests/Golden/vault")
  private static let passphrase = "correct horse battery stapl\u{E9}"
  private static let recoveryPassphrase = "second"
  private static let cheap = SecureVault.KeySource(.passphrase(passphrase, logN: 10))
  private static let credentials = Credentials(user: "ada", scopes: ["read", "write"])
  private static let date = Date(timeIntervalSince1970: 1_700_000_000.25)

  private static func copy(_ name: String) throws -> TemporaryDirectory {
    let directory = try TemporaryDirectory()
    let golden = golden.appending(path: name)
    for file in ["vault", "state", "code"] {
      let source = golden.appending(path: file)
      if FileManager.default.fileExists(atPath: source.path) {
        try FileManager.default.copyItem(at: source, to: directory.file(file))
      }
    }
    // A checkout does not keep modes.
    let keyFile = directory.keyFilePath
    if FileManager.default.fileExists(atPath: keyFile) { chmod(keyFile, 0o600) }
    return directory
  }

  /// The bytes of a credential.
  private static let credential = [UInt8](40..<72)

  /// A vault with a key file, a recovery code and a secret that requires presence; one with a
  /// passphrase, a recovery passphrase and such a secret; and one with a credential. Those that
  /// exist stay as they are.
  @Test(.enabled(if: ProcessInfo.processInfo.environment["KEEPSAKE_WRITE_GOLDEN"] != nil))
  func makeVaults() throws {
    try KeySlot.$defaultLogN.withValue(10) {
      for (name, source) in [
        ("key-file", .keyFile), ("passphrase", Self.cheap), ("credential", .credential("vault")),
      ] as [(String, SecureVault.KeySource)] {
        let golden = Self.golden.appending(path: name)
        if FileManager.default.fileExists(atPath: golden.path) { continue }
        let directory = try TemporaryDirectory()
        let environment = try Self.credentials(in: directory)
        let store = directory.secrets(
          keySources: [source],
          authenticate: { _ in name == "passphrase" ? Self.passphrase : "1234" },
          environment: environment)
        try store.set("tok-\u{2713}", forKey: "text")
        try store.set("4711", forKey: "pin", access: .userPresence)
        try store.set(Self.credentials, forKey: "model")
        try store.set(Self.date, forKey: "date")
        let other = directory.secrets(
          "com.example.auth", keySources: [source], environment: environment)
        try other.set(Data([0, 1, 254, 255]), forKey: "data")
        try other.set(Double.infinity, forKey: "number")
        try other.set("", forKey: "")
        if name == "key-file" {
          try Data(store.addRecovery().utf8).write(to: directory.file("code"))
        } else if name == "passphrase" {
          try store.addRecovery(passphrase: Self.recoveryPassphrase)
        }
        try FileManager.default.createDirectory(at: golden, withIntermediateDirectories: true)
        for file in try directory.names() where file != "credentials" {
          try FileManager.default.copyItem(
            at: directory.file(file), to: golden.appending(path: file))
        }
      }
    }
  }

  /// - Returns: The environment in which systemd provides the credential.
  private static func credentials(in directory: TemporaryDirectory) throws -> [String: String] {
    let folder = directory.file("credentials")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    try directory.write(credential, to: "credentials/vault")
    return ["CREDENTIALS_DIRECTORY": folder.path]
  }

  private func expectAll(_ store: SecureVault.Store, _ other: SecureVault.Store) throws {
    #expect(try store.get("text") == "tok-\u{2713}" && store.get("pin") == "4711")
    #expect(try store.model("model") == Self.credentials && store.model("date") == Self.date)
    #expect(try store.keys() == ["date", "model", "pin", "text"])
    #expect(try store.services() == ["com.example.auth", .standard])
    let entry = try #require(try store.entry("pin"))
    #expect(entry.access == .userPresence && entry.created == entry.modified)
    #expect(try store.entry("text")?.access == .whenUnlocked)
    #expect(try other.keys() == ["", "data", "number"] && other.get("") == "")
    #expect(try other.getData("data") == Data([0, 1, 254, 255]))
    #expect(try other.model("number") == Double.infinity)
  }

  @Test func opensAVaultWithAKeyFileAndARecoveryCode() throws {
    let directory = try Self.copy("key-file")
    let header = try Bytes.read(directory.headerPath)
    #expect(header.starts(with: Array("KVH1".utf8) + [1, 1, 2, 0]))
    let before = try directory.contents()
    try expectAll(
      directory.secrets(authenticate: { _ in "1234" }), directory.secrets("com.example.auth"))
    let wrong = directory.secrets(authenticate: { _ in "4321" })
    expectFailure(.wrongPassphrase) { _ = try wrong.get("pin") }
    let code = String(decoding: try directory.bytes(of: "code"), as: UTF8.self)
    let recovered = directory.secrets(keySources: [], authenticate: { _ in "1234" })
    #expect(try recovered.unlockMethods.map(\.kind) == [.keySource(.keyFile), .recoveryCode])
    try recovered.unlock(passphrase: code)
    #expect(try recovered.get("pin") == "4711")
    #expect(try directory.contents() == before, "reading changes nothing")
    try recovered.rotateKeys()
    try expectAll(
      directory.secrets(authenticate: { _ in "1234" }), directory.secrets("com.example.auth"))
  }

  @Test func writesToAVaultWithAKeyFile() throws {
    let directory = try Self.copy("key-file")
    let store = directory.secrets(authenticate: { _ in "1234" })
    let created = try #require(try store.entry("text")).created
    try store.set("new", forKey: "text")
    let entry = try #require(try store.entry("text"))
    #expect(entry.created == created && entry.modified > created)
    try store.rotateKeys()
    try store.protect(with: .keyFile)
    try store.set("tok-\u{2713}", forKey: "text")
    try expectAll(
      directory.secrets(authenticate: { _ in "1234" }), directory.secrets("com.example.auth"))
  }

  @Test func opensAVaultWithEachPassphrase() throws {
    let directory = try Self.copy("passphrase")
    let before = try directory.contents()
    for typed in [Self.passphrase, Self.recoveryPassphrase] {
      let store = directory.secrets(keySources: [], authenticate: { _ in Self.passphrase })
      #expect(
        try store.unlockMethods.map(\.kind) == [.keySource(.passphrase), .recoveryPassphrase])
      try store.unlock(passphrase: typed)
      let source = SecureVault.KeySource(.passphrase(typed, logN: 10))
      try expectAll(store, directory.secrets("com.example.auth", keySources: [source]))
    }
    #expect(try directory.contents() == before, "reading changes nothing")
  }

  @Test func opensAVaultWithACredential() throws {
    let directory = try Self.copy("credential")
    let before = try directory.contents()
    let environment = try Self.credentials(in: directory)
    let source = SecureVault.KeySource.credential("vault")
    try expectAll(
      directory.secrets(
        keySources: [source], authenticate: { _ in "1234" }, environment: environment),
      directory.secrets("com.example.auth", keySources: [source], environment: environment))
    try FileManager.default.removeItem(at: directory.file("credentials"))
    #expect(try directory.contents() == before, "reading changes nothing")
  }
}
