import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a link does to the rest of its process, and in a forked child; the source of the other
/// process is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct ProcessTests {
  private func run(_ command: String, _ server: TestServer) throws -> [String] {
    let peer = Bundle.main.bundleURL.appending(path: "keepsake-valkey-peer").path
    let output = server.directory.path + "/\(command).out"
    let url = "unix:\(server.socketPath)?timeout=60s&connect-timeout=60s"
    let status = system("'\(peer)' \(command) '\(url)' >'\(output)' 2>&1")
    let text = try String(contentsOfFile: output, encoding: .utf8)
    #expect(status == 0, "\(text)")
    return text.split(separator: "\n").map(String.init)
  }

  /// Each has its own connection, and the child closes those that it inherited: of its sockets, one
  /// is connected to the server, and two wake its thread.
  @Test(.forksBesideThreads) func forkedChildMakesItsOwnConnection() throws {
    let server = try TestServer()
    let lines = try run("fork", server)
    #expect(
      lines == [
        "parent integer(1) 3", "child integer(2) 3", "child integer(3) 3", "child integer(4) 3",
        "child ended 0", "parent integer(5) 3",
      ])
  }

  @Test func standardStreamsStayFree() throws {
    let lines = try run("streams", try TestServer())
    #expect(lines == ["closed integer(1) 3", "free", "free"])
  }

  /// As daemons do with `closefrom(3)`.
  @Test func closedDescriptorsAreNotUsedAgain() throws {
    let lines = try run("take-over", try TestServer())
    #expect(
      lines == ["before integer(1) 3", "after integer(2) 3", "again integer(3) 3", "kept"])
  }

  @Test func cutConnectionRaisesNoSignal() throws {
    let lines = try run("pipe", try TestServer())
    #expect(lines == ["before integer(1) 3", "after integer(2) 3"])
  }
}
