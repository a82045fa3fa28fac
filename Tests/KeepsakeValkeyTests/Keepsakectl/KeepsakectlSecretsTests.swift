import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// `keepsakectl`, with secrets on a server that a credential opens.
@Suite(.server, .threadPerTest) struct KeepsakectlSecretsTests {
  private let inspector: Keepsakectl
  private let server: TestServer
  private let environment: [String: String]
  private let credentials: ServerDirectory

  init() throws {
    inspector = try Keepsakectl()
    server = try TestServer(["--appendonly", "yes", "--appendfsync", "always"])
    credentials = try ServerDirectory()
    environment = ["CREDENTIALS_DIRECTORY": credentials.path]
    let key = String(repeating: "A", count: 40)
    try key.write(toFile: credentials.path + "/vault.key", atomically: true, encoding: .utf8)
  }

  private func run(_ words: String...) throws -> ProgramRun {
    try inspector.run(words + ["--server=" + server.url], environment: environment)
  }

  private func runWithoutCredential(_ words: String...) throws -> ProgramRun {
    try inspector.run(words + ["--server=" + server.url])
  }

  private func client(cache: DiskCache.Store = DiskCache.named(.memory)) throws -> VaultClient {
    try VaultClient(
      server, cache: cache, keySources: SecureVault.KeySource.standard, environment: environment)
  }

  @Test func readsAndChanges() throws {
    let app = try client()
    try app.secrets("auth").set("tok", forKey: "token")
    try app.secrets().set("1", forKey: "k")
    let list = try run("list", "app")
    #expect(list.status == 0 && list.errors.isEmpty, "\(list)")
    let rows = list.text.split(separator: "\n")
      .map { $0.split(separator: " ").joined(separator: " ") }
    #expect(rows.count == 4 && rows[1].hasPrefix("vault protected by a credential"), "\(list)")
    #expect(rows.suffix(2) == ["service auth 1 secret", "service standard 1 secret"], "\(list)")
    #expect(try run("vault", "show", "app/auth", "token", "--reveal").text == "tok")
    let secrets = try run("vault", "list", "app", "--json")
    #expect(secrets.status == 0 && secrets.text.contains(#""key" : "token""#), "\(secrets)")
    #expect(try run("vault", "unlock-methods", "app").text.contains("credential"))

    #expect(try run("vault", "rotate", "app").status == 0)
    #expect(try client().keyIDs().count == 1 && client().secrets().get("k") == "1")
    #expect(try run("vault", "delete", "app/auth", "token").status == 0)
    waitUntil("the removal did not arrive") {
      (try? app.secrets("auth").contains("token")) == false
    }
    #expect(try run("vault", "show", "app", "l", "--reveal").failed(1, "has no secret \"l\""))
    #expect(
      try run("vault", "protect", "app", "--key-file").failed(64, "Use a passphrase, a credential"))
    #expect(try run("vault", "lock", "app").status == 0)
    #expect(try run("doctor", "app").status == 0)
    #expect(app.faults.isEmpty && !FileManager.default.fileExists(atPath: inspector.home))
  }

  @Test func secretsStaySealedWithoutTheirKey() throws {
    for command in ["list", "unlock-methods", "rotate"] {
      let run = try runWithoutCredential("vault", command, "app")
      #expect(run.failed(1, "app has no secrets on unix://"), "\(run)")
    }
    let app = try client()
    try app.secrets().set("tok", forKey: "k")
    let list = try runWithoutCredential("list", "app")
    #expect(list.status != 0 || list.text.contains(", locked"), "\(list)")
    for words in [["list", "app"], ["show", "app", "k", "--reveal"], ["rotate", "app"]] {
      let run = try inspector.run(["vault"] + words + ["--server=" + server.url])
      #expect(run.status == 77 && run.text.isEmpty, "\(run)")
    }
    #expect(try app.keyIDs().count == 1 && app.secrets().get("k") == "tok")
  }

  // MARK: After a loss

  /// Two processes of the app, the first one as the user of ``inspector``, which have read a
  /// secret. The server has then lost it.
  private func clientsOfALostVault(_ scope: StorageScope) throws -> [VaultClient] {
    let cache = scope.cache("keepsake-valkey")
    let clients = [try client(cache: cache), try client()]
    try clients[0].secrets().set("1", forKey: "a")
    clients[1].expectEventually("a", "1")
    // That with the secret and the header.
    waitUntil("no copy was written") { clients[0].copy?.changes?.entries.count == 2 }
    try server.command("FLUSHALL")
    for client in clients {
      expectFailure(.notFound) { try client.secrets().set("2", forKey: "a") }
    }
    return clients
  }

  @Test func pushStoresTheCopyAgain() throws {
    let scope = inspector.stores()
    defer { scope.close() }
    let clients = try clientsOfALostVault(scope)
    // None of this needs the key.
    let lost = try runWithoutCredential("doctor", "app")
    #expect(lost.status == 1 && lost.text.contains("it has lost the secrets"), "\(lost)")
    #expect(lost.text.contains("keepsakectl push app --vault"), "\(lost)")
    let push = try runWithoutCredential("push", "app", "--vault")
    #expect(push.status == 0 && push.errors.isEmpty, "\(push)")
    #expect(push.text == "unix://\(server.socketPath): the vault of app was stored again.\n")
    clients[1].setEventually("b", "2")
    clients[0].expectEventually("b", "2")
    #expect(try client().secrets().get("a") == "1")
    let again = try runWithoutCredential("push", "app", "--vault")
    #expect(again.text.hasSuffix("the vault of app is not lost. Nothing was changed.\n"))
    #expect(try runWithoutCredential("doctor", "app").status == 0)
  }

  @Test func adoptGivesTheCopyUp() throws {
    let scope = inspector.stores()
    defer { scope.close() }
    let clients = try clientsOfALostVault(scope)
    let adopt = try runWithoutCredential("adopt", "app", "--vault")
    #expect(adopt.status == 0 && adopt.errors.isEmpty, "\(adopt)")
    for client in clients {
      waitUntil("the adoption was not followed") { (try? client.secrets().get("a")) == .some(nil) }
      waitUntil("nothing was reported") { client.faults.contains { $0.code == .damaged } }
    }
    try clients[0].secrets().set("2", forKey: "b")
    // It is another vault, which a process that has used the old one accepts when it opens it.
    let other = clients[1].secrets()
    waitForFailure(.accessDenied) { _ = try other.get("b") }
    try other.lock()
    try other.unlock()
    clients[1].expectEventually("b", "2")
    #expect(try runWithoutCredential("doctor", "app").status == 0)
    // The copy may still be the one that was given up.
    let push = try runWithoutCredential("push", "app", "--vault")
    #expect(push.status == 64 || push.text.hasSuffix("Nothing was changed.\n"), "\(push)")
    #expect(try client().secrets().get("b") == "2")
  }

  @Test(arguments: ["push", "adopt"]) func copyIsNeeded(_ command: String) throws {
    try client().secrets().set("1", forKey: "a")
    let run = try run(command, "app", "--vault")
    #expect(run.failed(1, "this machine has no copy of the vault of app"), "\(run)")
    #expect(
      try self.run(command, "app/suite", "--vault").failed(64, "--vault is about all secrets"))
    #expect(try client().secrets().get("a") == "1")
  }

  // MARK: The server

  @Test func findsThatSecretsAreWrittenLate() throws {
    let server = try TestServer(["--appendonly", "yes", "--appendfsync", "everysec"])
    #expect(try inspector.run("doctor", "app", "--server", server.url).status == 0)
    try VaultClient(server).secrets().set("1", forKey: "k")
    let run = try inspector.run("doctor", "app", "--server", server.url)
    #expect(run.status == 1 && run.errors.isEmpty, "\(run)")
    #expect(run.text.contains("it writes secrets to its disk up to a second late"), "\(run)")
    #expect(run.text.contains(": 1 problem."), "\(run)")
  }
}
