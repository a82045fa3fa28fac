import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The snippets of the article on secrets; `SnippetTests` compares them.
@Suite(.temporaryStorage, .quickPassphrases, .ownThread) struct WorkingWithSecretsTests {
  @Test func secretsAreSetReadAndRemoved() throws {
    SecureVault.set(Data([1]), forKey: "avatar")
    SecureVault.set(Credentials(name: "ann"), forKey: "credentials")

    SecureVault.set("tok", forKey: "accessToken")
    let token = SecureVault.get("accessToken")
    let avatar = SecureVault.getData("avatar")
    let credentials: Credentials? = SecureVault.model("credentials")
    if SecureVault.contains("accessToken") { SecureVault.remove("accessToken") }
    SecureVault.set(nil, forKey: "accessToken")
    let isNew = try SecureVault.shared.add("id", forKey: "installation")
    #expect(try isNew && !SecureVault.shared.add("other", forKey: "installation"))
    #expect(SecureVault.get("installation") == "id" && SecureVault.remove("installation"))
    for key in SecureVault.keys() { print(key, try SecureVault.shared.entry(key)?.modified as Any) }

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

private struct HelperError: Error {
  let program: String
  let status: Int32
}

/// What a program prints.
private func output(of program: String, _ arguments: String...) throws -> Data {
  let process = Process()
  process.executableURL = URL(filePath: "/usr/bin/env")
  process.arguments = [program] + arguments
  let pipe = Pipe()
  process.standardOutput = pipe
  try process.run()
  let printed = try pipe.fileHandleForReading.readToEnd() ?? Data()
  process.waitUntilExit()
  guard process.terminationStatus == 0 else {
    throw HelperError(program: program, status: process.terminationStatus)
  }
  return printed
}

extension WorkingWithSecretsTests {
  /// With stubs of the programs, first in `PATH`, that print a key for the right arguments.
  @Test func keysComeFromOtherPrograms() async {
    await #expect(processExitsWith: .success) {
      let directory = FileManager.default.temporaryDirectory
        .appending(path: "keepsake-recipes-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(at: directory) }
      let path = "notes.cred"
      for (program, arguments) in [
        ("secret-tool", "lookup app com.example.notes"),
        ("systemd-creds", "--user decrypt --name=notes notes.cred -"),
        ("tpm2_unseal", "--object-context=0x81000001 --auth=pcr:sha256:7"),
      ] {
        let script = """
          #!/bin/sh
          [ "$*" = "\(arguments)" ] && echo "\(program) prints a key that cannot be guessed"
          """
        let file = directory.appending(path: program)
        try Data(script.utf8).write(to: file)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: file.path)
      }
      setenv("PATH", directory.path + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? ""), 1)

      let desktop = SecureVault.KeySource.closure("secret-service") {
        try output(of: "secret-tool", "lookup", "app", "com.example.notes")
      }
      let userCredential = SecureVault.KeySource.closure("systemd-creds") {
        try output(of: "systemd-creds", "--user", "decrypt", "--name=notes", path, "-")
      }
      let tpm = SecureVault.KeySource.closure("tpm") {
        try output(of: "tpm2_unseal", "--object-context=0x81000001", "--auth=pcr:sha256:7")
      }
      for source in [desktop, userCredential, tpm] {
        try await StorageSystem.withTemporary(keySources: [source]) {
          try SecureVault.shared.set("v", forKey: "k")
          try SecureVault.shared.lock()
          try SecureVault.shared.unlock()
          #expect(try SecureVault.shared.get("k") == "v")
          #expect(SecureVault.protection?.description.contains("key source") == true)
        }
      }
    }
  }

  @Test func theVaultIsRememberedAndRecovered() async throws {
    defer { SecureVault.lock() }
    #expect(SecureVault.set("v", forKey: "k"))
    let typed = "correct horse"
    let second = "battery staple"
    #expect(SecureVault.protect(with: .passphrase(typed)))
    guard SecureVault.unlock(passphrase: typed, rememberFor: .minutes(15)) else { return }
    guard try SecureVault.shared.unlockAtTerminal(rememberFor: .hours(1)) else { return }
    #expect(!SecureVault.isLocked)
    let code = try SecureVault.shared.addRecovery()
    print("Keep this code on paper:", try SecureVault.shared.addRecovery())
    try SecureVault.shared.addRecovery(passphrase: second)
    for method in try SecureVault.shared.unlockMethods where method.isRecovery { print(method) }
    #expect(try SecureVault.shared.unlockMethods.count == 4)
    SecureVault.lock()
    #expect(SecureVault.isLocked)
    guard SecureVault.unlock(passphrase: code) else { return }
    #expect(SecureVault.get("k") == "v")
    try SecureVault.shared.removeAllRecoveries()
    #expect(try SecureVault.shared.unlockMethods.count == 1)
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

  @Test func passphraseProtectsAndUnlocksTheVault() {
    func protect(_ typed: String) {
      guard SecureVault.protect(with: .passphrase(typed)) else { return }
      SecureVault.set("tok", forKey: "accessToken")
    }
    func unlock(_ typed: String) {
      do {
        try SecureVault.shared.unlock(passphrase: typed)
      } catch StorageError.Code.wrongPassphrase {
        print("try again")
      } catch {
        print(error)
      }
    }
    protect("correct horse")
    #expect(SecureVault.get("accessToken") == "tok" && SecureVault.protection == .passphrase)
    SecureVault.lock()
    unlock("wrong")
    #expect(SecureVault.isLocked)
    var isShown = false
    func showNotes(_ isOpen: Bool) { isShown = isOpen }
    let typed = "correct horse"

    if SecureVault.isLocked {
      let isOpen = SecureVault.unlock(passphrase: typed)
      showNotes(isOpen)
    }
    #expect(isShown)
  }

  @Test func bootstrapNamesKeySources() async {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(
        app: "com.example.notes", keySources: [.credential("notes"), .keyFile])
      #expect(SecureVault.set("tok", forKey: "accessToken"))
      #expect(SecureVault.protection == .keyFile)
    }
  }

  @Test func openVaultNeedsNoPassphrase() async {
    await #expect(processExitsWith: .success) {
      guard try SecureVault.shared.unlockAtTerminal(reason: "Unlock the notes") else { exit(77) }
    }
  }

  @Test func theFirstPassphraseNeedsATerminal() throws {
    func chooseThePassphrase() throws {
      if SecureVault.protection == nil {
        let request = SecureVault.PassphraseRequest(reason: "Protect the notes", isNew: true)
        guard let passphrase = try SecureVault.askTerminal(request),
          SecureVault.protect(with: .passphrase(passphrase))
        else { exit(77) }
      }
    }
    SecureVault.set("tok", forKey: "accessToken")
    try chooseThePassphrase()
    #expect(SecureVault.protection == .keyFile)
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

  @Test func rotatedSecretsStayReadable() throws {
    SecureVault.set("tok", forKey: "accessToken")
    try SecureVault.shared.rotateKeys()
    #expect(SecureVault.get("accessToken") == "tok")
  }
}

private struct Token: Codable, Equatable { var text: String }
private struct Credentials: Codable { var name: String }
