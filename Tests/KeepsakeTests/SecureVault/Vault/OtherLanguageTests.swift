import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Opens vaults of this library with a Python program that was written from the article on the
/// vault's format alone.
@Suite(.singleThreaded, .quickPassphrases, .enabled(if: isPythonAvailable))
struct OtherLanguageTests {
  private struct Secret: Decodable, Equatable {
    let service, key: String
    let presence: Bool
    let kind: String?
    let value: Data?
    let created, modified: Int64
  }

  private func start(
    _ directory: TemporaryDirectory, _ arguments: [String], mergesErrors: Bool = false
  ) throws -> Child {
    let script = Repository.file("Tests/OtherLanguages/open_vault.py")
    return try Child(
      "python3", [script.standardized.path, directory.path + "/vault"] + arguments,
      environment: ["PYTHONDONTWRITEBYTECODE": "1"], mergesErrors: mergesErrors)
  }

  private func open(
    _ directory: TemporaryDirectory, _ arguments: String..., typing line: String = ""
  ) throws -> [Secret] {
    let child = try start(directory, arguments)
    try child.writeLine(line)
    let output = child.finish()
    try #require(child.exitStatus == 0)
    return try output.split(separator: "\n").map {
      try JSONDecoder().decode(Secret.self, from: Data($0.utf8))
    }
  }

  private func fill(_ store: SecureVault.Store, _ other: SecureVault.Store) throws {
    try store.set("tök", forKey: "accessToken")
    try store.set(Date(timeIntervalSinceReferenceDate: 12.5), forKey: "date")
    try store.set(-Double.infinity, forKey: "number")
    try store.set("4711", forKey: "pin", access: .userPresence)
    try other.set(Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0) }), forKey: "large")
    try other.set(["a": [1, 2]], forKey: "model")
    try other.set("", forKey: "")
  }

  private func expectAll(_ secrets: [Secret], pin: String?) throws {
    let large = Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0) })
    let values: [(String, String, String?, Data?)] = [
      ("com.app.auth", "", "text", Data()), ("com.app.auth", "large", "data", large),
      ("com.app.auth", "model", "json", Data(#"{"a":[1,2]}"#.utf8)),
      ("standard", "accessToken", "text", Data("tök".utf8)),
      ("standard", "date", "date", Data("12.5".utf8)),
      ("standard", "number", "number", Data(#""-Infinity""#.utf8)),
      ("standard", "pin", pin == nil ? nil : "text", pin.map { Data($0.utf8) }),
    ]
    try #require(secrets.count == values.count)
    for (secret, (service, key, kind, value)) in zip(secrets, values) {
      #expect(secret.service == service && secret.key == key && secret.kind == kind)
      #expect(secret.value == value && secret.presence == (key == "pin"))
      #expect(secret.created == secret.modified && secret.created > 1_600_000_000_000_000_000)
    }
  }

  @Test func opensAVaultWithItsKeyFile() throws {
    let directory = try TemporaryDirectory()
    let store = directory.secrets(authenticate: { _ in "correct horse" })
    try fill(store, directory.secrets("com.app.auth"))
    let keyFile = directory.path + "/state/vault.key"
    try expectAll(open(directory, "--key-file", keyFile), pin: nil)
    // With several keys in the key file, and after a rotation.
    try store.protect(with: .keyFile)
    try store.rotateKeys()
    try expectAll(
      open(directory, "--key-file", keyFile, "--presence-passphrase", "correct horse"), pin: "4711")
  }

  /// As the article says. The error is on standard error.
  @Test func refusesAKeyFileThatOthersMayAccessOrExchange() throws {
    let directory = try TemporaryDirectory()
    try directory.secrets().set("v", forKey: "k")
    let keyFile = directory.path + "/state/vault.key"
    func status() throws -> Int32 {
      let child = try start(directory, ["--key-file", keyFile], mergesErrors: true)
      child.finish()
      return child.exitStatus
    }
    for (path, modes): (String, [mode_t]) in [
      (keyFile, [0o640, 0o604, 0o610, 0o601, 0o620, 0o602]), (directory.path, [0o777, 0o702]),
    ] {
      let kept = try #require(try FileSystem.status(path)).mode
      for mode in modes {
        try #require(chmod(path, mode) == 0)
        #expect(try status() != 0, "\(path) \(String(mode, radix: 8))")
      }
      try #require(chmod(path, mode_t(kept)) == 0)
      #expect(try status() == 0)
    }
  }

  @Test func opensAVaultWithItsPassphrase() throws {
    let directory = try TemporaryDirectory()
    let source = SecureVault.KeySource(.passphrase("tröl", logN: 11))
    let store = directory.secrets(keySources: [source], authenticate: { _ in "tröl" })
    try fill(store, directory.secrets("com.app.auth", keySources: [source]))
    try expectAll(
      open(directory, "--passphrase-stdin", "--presence-passphrase", "tröl", typing: "tröl"),
      pin: "4711")
    for line in [try store.addRecovery(), try store.addRecovery().lowercased()] {
      try expectAll(open(directory, "--passphrase-stdin", typing: line), pin: nil)
    }
    try store.addRecovery(passphrase: "second")
    try expectAll(open(directory, "--passphrase-stdin", typing: "second"), pin: nil)
    // As another system types it.
    try expectAll(open(directory, "--passphrase-stdin", typing: "tro\u{308}l"), pin: nil)
  }
}

let isPythonAvailable = ["python3", "openssl"].allSatisfy { name in
  (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
    .contains { FileManager.default.isExecutableFile(atPath: "\($0)/\(name)") }
}
