import Foundation
import Keepsake
import KeepsakeTesting
import Testing

/// The snippets of the article on secrets; `SnippetTests` compares them.
@Suite(.temporaryStorage, .quickPassphrases) struct WorkingWithSecretsTests {
  @Test func secretsAreSetReadAndRemoved() {
    SecureVault.set(Data([1]), forKey: "avatar")
    SecureVault.set(Credentials(name: "ann"), forKey: "credentials")

    SecureVault.set("tok", forKey: "accessToken")
    let token = SecureVault.get("accessToken")
    let avatar = SecureVault.getData("avatar")
    let credentials: Credentials? = SecureVault.model("credentials")
    if SecureVault.contains("accessToken") { SecureVault.remove("accessToken") }
    SecureVault.set(nil, forKey: "accessToken")
    for key in SecureVault.keys() { print(key, SecureVault.entry(key)?.modified as Any) }

    #expect(token == "tok" && avatar == Data([1]) && credentials?.name == "ann")
    #expect(SecureVault.keys() == ["avatar", "credentials"])
  }

  @Test func withSecretPassesTheBytes() {
    let request = Data("r".utf8)
    func hmac(of data: Data, key: UnsafeRawBufferPointer) -> Data { data + Data(key) }
    SecureVault.set("key", forKey: "apiKey")

    let code: Data? = SecureVault.withSecret("apiKey") { (bytes: RawSpan) in
      bytes.withUnsafeBytes { hmac(of: request, key: $0) }
    }
    #expect(code == Data("rkey".utf8))
  }

  @Test func servicesAreSeparate() async {
    // The default service belongs to the process.
    await #expect(processExitsWith: .success) {
      SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
      SecureVault.defaultService = "com.app.auth"
      #expect(SecureVault.get("accessToken") == "tok")
      for service in SecureVault.services() { print(service, SecureVault.keys(service: service)) }
      SecureVault.removeAll(service: "com.app.auth")
      #expect(SecureVault.keys() == [])
    }
  }
}

extension SecureVault.Key<Token> {
  fileprivate static let accessToken = Self("accessToken", service: "com.app.auth")
}

extension WorkingWithSecretsTests {
  @Test func typedKeysNameTheirService() {
    let token = Token(text: "t")

    SecureVault[.accessToken] = token

    #expect(SecureVault.model("accessToken", service: "com.app.auth") == token)
  }

  @Test func passphraseProtectsTheVault() {
    let typed = "correct horse"

    func protect() {
      guard SecureVault.protect(with: .passphrase(typed)) else { return }
      SecureVault.set("tok", forKey: "accessToken")
    }
    protect()
    #expect(SecureVault.get("accessToken") == "tok" && SecureVault.protection == .passphrase)
  }

  @Test func bootstrapNamesKeySources() async {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(
        app: "com.example.notes", keySources: [.credential("notes"), .keyFile])
      #expect(SecureVault.set("tok", forKey: "accessToken"))
      #expect(SecureVault.protection == .keyFile)
    }
  }

  @Test func openVaultNeedsNoPassphrase() throws {
    func openNotes() throws -> Bool {
      guard SecureVault.isLocked else { return true }
      let typed = try SecureVault.askTerminal(.init(reason: "Unlock the notes"))
      return typed.map { SecureVault.unlock(passphrase: $0) } ?? false
    }
    #expect(try openNotes())
  }

  @Test func presenceNeedsATerminal() async {
    await #expect(processExitsWith: .success) {
      // Detach from the terminal, so that no passphrase can be read.
      #expect(setsid() != -1)
      let pin = "1234"

      try StorageSystem.bootstrap(app: "com.example.notes", authenticate: SecureVault.askTerminal)
      SecureVault.set(pin, forKey: "pin", access: .userPresence)
      let storedPIN = SecureVault.get("pin", reason: "Unlock notes")
      #expect(storedPIN == nil)
    }
  }

  @Test func dialogAnswersTheRequest() async throws {
    @Sendable func showDialog(_ reason: String, choosesNew: Bool) -> String? {
      reason.isEmpty ? nil : "swordfish"
    }
    @Sendable func keepsThePIN() throws {
      try SecureVault.shared.set("1234", forKey: "pin", access: .userPresence)
      #expect(try SecureVault.shared.get("pin", reason: "Unlock notes") == "1234")
    }
    try await StorageSystem.withTemporary(
      authenticate: { request in
        showDialog(request.reason, choosesNew: request.isNew)
      }, keepsThePIN)
  }

  @Test func rotatedSecretsStayReadable() {
    SecureVault.set("tok", forKey: "accessToken")
    SecureVault.rotateKeys()
    #expect(SecureVault.get("accessToken") == "tok")
  }

  @Test func throwsWhenPassphraseIsWrong() throws {
    try SecureVault.shared.protect(with: .passphrase("right"))
    SecureVault.lock()
    let typed = "wrong"

    do {
      try SecureVault.shared.unlock(passphrase: typed)
    } catch StorageError.Code.wrongPassphrase {
      print("try again")
    } catch {
      print(error)
    }
    #expect(SecureVault.isLocked)
  }
}

private struct Token: Codable, Equatable { var text: String }
private struct Credentials: Codable { var name: String }
