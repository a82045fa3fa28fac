import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// What is asked of a server, and what a hostile one may answer.
@Suite(.ownThread) struct ServerTests {
  /// Whatever a caller asks for, the server waits at least a millisecond and at most an hour: zero
  /// would mean without end.
  @Test(
    arguments: [
      (.seconds(Int64.max), "3600000"), (.seconds(7_200), "3600000"), (.seconds(2), "2000"),
      (.microseconds(1), "1"), (.zero, "1"), (.seconds(Int64.min), "1"),
    ] as [(Duration, String)])
  func waitForReplicasIsBounded(_ timeout: Duration, _ milliseconds: String) throws {
    let waits = Recorder<[String]>()
    let fake = try FakeServer { connection, _ in
      guard connection.greet() else { return }
      while let words = connection.command() {
        if words.first == "WAIT" { waits.append(words) }
        connection.send(":1\r\n")
      }
    }
    defer { withExtendedLifetime(fake) {} }
    let server = Server(fake.address, confirm: .replicas(1, timeout: timeout))
    let (reply, isConfirmed) = try server.run(Script("return 1"), Script.Arguments(keys: []))
    #expect(reply == .integer(1) && isConfirmed)
    #expect(waits.all == [["WAIT", "1", milliseconds]])
  }

  /// A server whose search never comes to its end.
  @Test func endlessSearchTimesOut() throws {
    let fake = try FakeServer { connection, _ in
      guard connection.greet() else { return }
      while connection.command() != nil { connection.send("*2\r\n$1\r\n7\r\n*0\r\n") }
    }
    defer { withExtendedLifetime(fake) {} }
    let backing = ValkeyBacking(Server(fake.address))
    expectFailure(.timedOut, reason: "did not finish the search") {
      _ = try backing.suites(app: "app", timeout: .milliseconds(50))
    }
  }
}
