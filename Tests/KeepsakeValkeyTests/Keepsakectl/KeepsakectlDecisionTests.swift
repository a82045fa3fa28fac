import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// `keepsakectl push` and `adopt`, beside running processes.
@Suite(.server, .threadPerTest) struct KeepsakectlDecisionTests {
  private let inspector: Keepsakectl
  private let server: TestServer
  private let scope: StorageScope

  init() throws {
    inspector = try Keepsakectl()
    server = try TestServer(["--appendonly", "yes"])
    scope = inspector.stores()
  }

  private func run(_ words: String...) throws -> ProgramRun {
    try inspector.run(words + ["--server=" + server.url])
  }

  /// Two processes of the app, the first one as the user of ``inspector``, which have read `a`.
  ///
  /// The server has then lost it.
  private func clientsOfALostSuite() throws -> [TestClient] {
    let clients = [
      TestClient(server, cache: scope.cache("keepsake-valkey")), TestClient(server),
    ]
    try clients[0].set("a", "1")
    for client in clients { #expect(try client.all() == ["a": "1"]) }
    waitUntil("no copy was written") { clients[0].copy != nil }
    try server.command("FLUSHALL")
    for client in clients { expectFailure(.notFound) { try client.set("a", "2") } }
    return clients
  }

  @Test func pushStoresTheCopyAgain() throws {
    defer { scope.close() }
    let clients = try clientsOfALostSuite()
    let lost = try run("doctor", "app")
    #expect(lost.status == 1 && lost.errors.isEmpty, "\(lost)")
    #expect(lost.text.contains("it has lost the settings of suite suite"), "\(lost)")
    #expect(lost.text.contains("keepsakectl push app/suite"), "\(lost)")
    let push = try run("push", "app/suite")
    #expect(push.status == 0 && push.errors.isEmpty, "\(push)")
    #expect(push.text == "unix://\(server.socketPath): suite suite of app was stored again.\n")
    #expect(try server.values() == ["a": "1"])
    clients[0].setEventually("b", "2")
    clients[1].expectEventually("b", "2")
    clients[1].setEventually("c", "3")
    clients[0].expectEventually("c", "3")
    let again = try run("push", "app/suite")
    #expect(again.status == 0 && again.text.hasSuffix("is not lost. Nothing was changed.\n"))
    #expect(try run("adopt", "app/suite").text.hasSuffix("is not lost. Nothing was changed.\n"))
    #expect(try server.values() == ["a": "1", "b": "2", "c": "3"])
    let doctor = try run("doctor", "app")
    #expect(doctor.status == 0, "\(doctor)")
  }

  @Test(arguments: [false, true]) func adoptGivesTheCopyUp(_ isEmpty: Bool) throws {
    defer { scope.close() }
    let clients = try clientsOfALostSuite()
    if !isEmpty {
      #expect(try run("settings", "set", "app/suite", "new", "9").status == 0)
    }
    let adopt = try run("adopt", "app/suite")
    #expect(adopt.status == 0 && adopt.errors.isEmpty, "\(adopt)")
    #expect(adopt.text.hasSuffix("suite suite of app was given up for what the server has.\n"))
    for client in clients {
      waitUntil("the adoption was not followed") {
        (try? client.all()) == (isEmpty ? [:] : ["new": "9"])
      }
      client.expectReport(.damaged)
    }
    try clients[0].set("b", "2")
    clients[1].expectEventually("b", "2")
    #expect(try run("doctor", "app").status == 0)
    // The copy may still be the one that was given up.
    let push = try run("push", "app/suite")
    #expect(push.status == 64 || push.text.hasSuffix("Nothing was changed.\n"), "\(push)")
    clients[1].expectEventually("b", "2")
  }

  @Test(arguments: ["push", "adopt"]) func copyIsNeeded(_ command: String) throws {
    defer { scope.close() }
    try TestClient(server).set("a", "1")
    let run = try run(command, "app/suite")
    #expect(run.failed(1, "this machine has no copy of suite suite of app"), "\(run)")
    #expect(try inspector.run(command, "app").failed(64, "--server is missing"))
    #expect(try server.values() == ["a": "1"])
    #expect(!FileManager.default.fileExists(atPath: inspector.home))
  }

  @Test(arguments: ["push", "adopt"]) func serverThatIsAway(_ command: String) throws {
    defer { scope.close() }
    _ = try clientsOfALostSuite()
    server.kill()
    let run = try run(command, "app/suite")
    #expect(run.status == 75 && run.text.isEmpty, "\(run)")
    #expect(run.errors.contains("Check the address and that the server runs."), "\(run)")
  }
}
