import Testing

@testable import KeepsakeTestSupport

/// What a link does to the rest of its process, and in a forked child; the source of the other
/// process is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct ProcessTests {
  /// Each has its own connection, and the child closes those that it inherited: of its sockets, one
  /// is connected to the server, and two wake its thread.
  @Test(.forksBesideThreads) func forkedChildMakesItsOwnConnection() throws {
    let lines = try TestServer().runPeer(["fork"])
    #expect(
      lines == [
        "parent integer(1) 3", "child integer(2) 3", "child integer(3) 3", "child integer(4) 3",
        "child ended 0", "parent integer(5) 3",
      ])
  }

  @Test func standardStreamsStayFree() throws {
    let lines = try TestServer().runPeer(["streams"])
    #expect(lines == ["closed integer(1) 3", "free", "free"])
  }

  /// As daemons do with `closefrom(3)`.
  @Test func closedDescriptorsAreNotUsedAgain() throws {
    let lines = try TestServer().runPeer(["take-over"])
    #expect(
      lines == ["before integer(1) 3", "after integer(2) 3", "again integer(3) 3", "kept"])
  }

  @Test func cutConnectionRaisesNoSignal() throws {
    let lines = try TestServer().runPeer(["pipe"])
    #expect(lines == ["before integer(1) 3", "after integer(2) 3"])
  }
}
