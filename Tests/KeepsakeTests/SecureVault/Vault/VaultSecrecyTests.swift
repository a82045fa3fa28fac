import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Expects no secret, key or passphrase in anything that a program may print.
@Suite(.singleThreaded) struct VaultSecrecyTests {
  /// Two messages with the same key and nonce reveal each other and the authentication key.
  @Test func neverReusesANonce() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    var nonces: [[UInt8]] = []
    for key in ["a", "b"] {
      for size in [0, 10, 10_000] {
        try store.set(Data(count: size), forKey: key)
        nonces += try EntryHeader.nonces(in: directory.secretPath(key))
      }
    }
    #expect(Set(nonces).count == 12)
  }

  private static let passphrase = "swordfish passphrase"
  private static let value = "hunter2-the-secret-value"
  private static let closureKey = Data("a closure's key that is impossible to guess".utf8)

  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  /// Every text that a program can make of a value without knowing its type.
  private func texts(_ subject: some Any) -> [String] {
    var dumped = ""
    dump(subject, to: &dumped)
    var printed = ""
    print(subject, terminator: "", to: &printed)
    return [dumped, printed, String(reflecting: subject), "\(subject)"]
      + ((subject as? any Error).map { [$0.localizedDescription] } ?? [])
  }

  /// The secrets that no text may contain.
  private func secrets() throws -> [[UInt8]] {
    var secrets = [Self.passphrase, Self.value].map { Array($0.utf8) } + [Array(Self.closureKey)]
    if let file = try? Bytes.read(directory.keyFilePath) { secrets.append(Array(file[24..<56])) }
    return secrets
  }

  /// Whether a text contains a secret in none of the forms in which bytes are shown.
  private func isFree(_ text: String, of secret: [UInt8]) -> Bool {
    let hexadecimal = secret.map { String(format: "%02x", $0) }.joined()
    let numbers = text.split { !$0.isNumber }.joined(separator: " ")
    let decimal = secret.prefix(12).map { "\($0)" }.joined(separator: " ")
    return !text.contains(String(decoding: secret, as: UTF8.self))
      && !text.contains(Data(secret).base64EncodedString())
      && !text.lowercased().contains(hexadecimal) && !numbers.contains(decimal)
  }

  private func expectNoSecret(in subject: some Any, _ comment: Comment) throws {
    for text in texts(subject) {
      #expect(!text.isEmpty, comment)
      for secret in try secrets() {
        #expect(isFree(text, of: secret), "\(comment): \(text)")
      }
    }
  }

  @Test func theSearchFindsSecrets() throws {
    for subject: Any in [
      Self.value, Data(Self.value.utf8), Array(Self.value.utf8), ["a": [Self.value]],
      Data(Self.value.utf8).base64EncodedString(),
    ] {
      #expect(texts(subject).contains { !isFree($0, of: Array(Self.value.utf8)) }, "\(subject)")
    }
  }

  private struct Failure: Error, CustomStringConvertible {
    let description = VaultSecrecyTests.passphrase + VaultSecrecyTests.value
  }

  @Test func noTypePrintsItsSecret() throws {
    let quick = SecureVault.KeySource(.passphrase(Self.passphrase, logN: 10))
    let closure = SecureVault.KeySource.closure("server") { Self.closureKey }
    for source in [quick, .passphrase(Self.passphrase), closure, .keyFile, .credential("name")] {
      try expectNoSecret(in: source, "source")
      try expectNoSecret(in: [source], "sources")
      try expectNoSecret(in: VaultOptions(sources: [source]), "options")
    }
    let store = directory.secrets(
      keySources: [closure, quick], authenticate: { _ in Self.passphrase })
    try store.set(Self.value, forKey: "k")
    try store.protect(with: .keyFile)
    try store.set(Self.value, forKey: "k", access: nil)
    try expectNoSecret(in: store, "store")
    try expectNoSecret(in: SecureVault.Key<String>("k", service: "s"), "key")
    try expectNoSecret(in: try #require(try store.entry("k")), "entry")
    try expectNoSecret(in: SecureVault.Entry?.none as Any, "no entry")
    try expectNoSecret(in: SecureVault.PassphraseRequest(reason: "r"), "request")
    try expectNoSecret(in: try #require(try store.protection), "protection")
    try expectNoSecret(in: SecureVault.Access.userPresence, "access")
    try expectNoSecret(in: store.service, "service")
  }

  @Test func noErrorQuotesASecret() throws {
    enum Mode: String, Codable { case light, dark }
    struct Model: Codable { var mode: Mode }
    struct Picky: Codable {
      init() {}
      init(from decoder: any Decoder) throws { throw Failure() }
      func encode(to encoder: any Encoder) throws { throw Failure() }
    }
    let failures = Failures()
    let quick = SecureVault.KeySource(.passphrase(Self.passphrase, logN: 10))
    let throwing = SecureVault.KeySource.closure("server") { throw Failure() }
    let short = SecureVault.KeySource.closure("short") { Self.closureKey.prefix(20) }
    let store = directory.secrets(failures: failures, authenticate: { _ in throw Failure() })
    try store.set(Self.value, forKey: "k")
    try store.set(["mode": Self.value], forKey: "model")
    func get(afterChanging path: String, _ change: ([UInt8]) throws -> [UInt8]) throws {
      let good = try Bytes.read(path)
      try Bytes.write(change(good), to: path)
      defer { try? Bytes.write(good, to: path) }
      _ = try directory.secrets().get("k")
    }
    let calls: [(String, () throws -> Void)] = [
      ("an enum", { _ = try store.model("k", type: Mode.self) }),
      ("a number", { _ = try store.model("k", type: Int.self) }),
      ("an identifier", { _ = try store.model("k", type: UUID.self) }),
      ("a decoder that throws", { _ = try store.model("model", type: Picky.self) }),
      ("an encoder that throws", { try store.set(Picky(), forKey: "k") }),
      ("a model", { _ = try store.model("model", type: Model.self) }),
      ("a number in a model", { _ = try store.model("model", type: [String: Int].self) }),
      ("text of a model", { _ = try store.get("model") }),
      ("a source that throws", { try store.protect(with: throwing) }),
      ("a short key", { try store.protect(with: short) }),
      (
        "authenticate that throws",
        { try store.set(Self.value, forKey: "k", access: .userPresence) }
      ),
      (
        "a damaged secret",
        {
          try get(afterChanging: directory.secretPath("k")) {
            $0.dropLast() + [$0[$0.count - 1] ^ 1]
          }
        }
      ),
      (
        "a full disk",
        {
          let plan = FaultPlan(decide: { $0.call == .write ? .fail(ENOSPC) : .proceed })
          try FaultPlan.$current.withValue(plan) { try store.set(Self.value, forKey: "k") }
        }
      ),
      (
        "a damaged key file",
        { try get(afterChanging: directory.keyFilePath) { Array($0.dropLast()) } }
      ),
      (
        "a key file with another key",
        {
          try get(afterChanging: directory.keyFilePath) {
            try Bytes.summed(Bytes.put($0[40] ^ 1, at: 40, in: $0))
          }
        }
      ),
      ("no passphrase", { try store.unlock(passphrase: Self.passphrase) }),
    ]
    for (name, call) in calls {
      let error = #expect(throws: StorageError.self, "\(name)") { try call() }
      try expectNoSecret(in: try #require(error), "\(name)")
    }
    try store.protect(with: quick)
    try store.lock()
    for call in [
      { _ = try store.get("k") }, { try store.unlock(passphrase: Self.passphrase + "!") },
      { try store.unlock(passphrase: "") }, { try store.unlock() },
    ] {
      let error = #expect(throws: StorageError.self) { try call() }
      try expectNoSecret(in: try #require(error), "locked")
    }
    for failure in failures.all { try expectNoSecret(in: failure, "reported") }
  }
}
