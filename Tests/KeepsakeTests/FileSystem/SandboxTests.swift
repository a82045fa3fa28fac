#if os(Linux)
import Testing

@testable import KeepsakeTestSupport

/// Stores in a sandbox that forbids renaming and linking files from one directory into another, as
/// landlock(7) does unless it is told otherwise: each temporary file has to be made in the
/// directory of the file that it replaces.
@Suite(.multiprocess) struct SandboxTests {
  @Test func allCallsStayWithinDirectories() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let peer = try Peer.start(directory, "confined")
    let first = peer.line() ?? "nothing"
    // A kernel without Landlock, a container that forbids its system calls, or another C library.
    if first.hasPrefix("unavailable") { return }
    #expect(first == "confined")
    #expect(peer.finish() == "done\n")
  }
}
#endif
