import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Secrets of several processes, which call `bootstrap` and the facade as programs do.
@Suite(.server, .threadPerTest) struct SecretsProcessTests {
  private static let isDurable = ["--appendonly", "yes", "--appendfsync", "always"]

  @Test func anotherMachineReadsASecret() throws {
    let server = try TestServer(Self.isDurable)
    #expect(try server.runPeer(["set-secret", "k", "tok"], as: "one") == ["true"])
    #expect(try server.runPeer(["get-secret", "k"], as: "two") == ["tok"])
    #expect(try server.command("HLEN", "keepsake:{shop:@vault}:v") == .integer(3))
    for name in ["one", "two"] {
      let path = server.directory.path + "/\(name)"
      let names = try FileManager.default.subpathsOfDirectory(atPath: path)
      #expect(names.allSatisfy { !$0.contains("vault") }, "\(names)")
    }
    // A process that gets no time for a while may end before it has written its copy.
    try waitUntil("no copy was left") {
      let lines = try server.runPeer(["get-secret", "l"], as: "two")
      #expect(lines == ["none"])
      return server.hasCopy(of: "two")
    }
    server.kill()
    // The second one has a copy. Reports come from another thread, and may be late too.
    try waitUntil("the outage was not reported") {
      let lines = try server.runPeer(["get-secret", "k"], as: "two")
      #expect(lines.contains("tok"), "\(lines)")
      return lines.sorted() == ["report unreachable", "tok"]
    }
    #expect(try server.runPeer(["set-secret", "k", "new"], as: "two").contains("false"))
  }

  @Test func processesLoseNoSecrets() throws {
    let server = try TestServer(Self.isDurable)
    let count = Coverage.count(sample: 50, complete: 250)
    let lines = server.runPeers(4) {
      (["work-secrets", "p\($0)", "\(count)", "4"], "p\($0)")
    }
    let first = lines.first ?? []
    #expect(first.count == 1 && first[0].hasPrefix("\(4 * count) "), "\(first)")
    #expect(lines == Array(repeating: first, count: 4))
    let length = try server.command("HLEN", "keepsake:{shop:@vault}:v")
    #expect(length == .integer(Int64(4 * count + 2)))
    #expect(try server.runPeer(["get-secret", "p0 0"], as: "new") == ["0"])
  }

  @Test func whatTheServerMayLoseIsReported() throws {
    let server = try TestServer()
    #expect(try Set(server.runPeer(["set-secret", "k", "tok", "1"])) == ["report misuse", "true"])
  }

  @Test(.forksBesideThreads) func forkedChildOpensTheVaultAgain() throws {
    let server = try TestServer(Self.isDurable)
    #expect(try server.runPeer(["fork-secrets"]) == ["parent 1", "child 1", "parent 2 0"])
  }
}
