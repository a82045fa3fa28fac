import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// What a program prints never reaches a file of the library.
@Suite(.multiprocess) struct StandardStreamTests {
  /// Starts the peer with closed standard streams.
  private func startWithoutStreams(
    _ directory: TemporaryDirectory, _ arguments: String...
  ) throws -> Child {
    try Child(
      "/bin/sh",
      ["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", Peer.executable, directory.path] + arguments)
  }

  private func expectEverything(in directory: TemporaryDirectory, _ comment: Comment) throws {
    let failures = Failures()
    let files = Folder(directory.file("own"))
    let (settings, secrets) = (
      directory.store(failures: failures), directory.secrets(failures: failures)
    )
    let cache = directory.ownCache("mixed", failures: failures)
    for number in 0..<PrintingProcess.count {
      let (key, value) = ("\(number)", PrintingProcess.value(number))
      #expect(try settings.get(key) == value, comment)
      #expect(try secrets.getData(key) == value, comment)
      #expect(try cache.get(key) == value, comment)
      #expect(try files.load("kept/" + key) == value, comment)
    }
    #expect(failures.all.isEmpty, comment)
  }

  @Test func aProgramWithClosedStreamsLosesNothing() throws {
    for round in 0..<Coverage.count(sample: 2, complete: 20) {
      let directory = try TemporaryDirectory(isQuick: true)
      #expect(try startWithoutStreams(directory, "print").exitStatus == 0)
      try expectEverything(in: directory, "round \(round)")
      let text = Data(PrintingProcess.text.utf8)
      for (name, contents) in try directory.contents() {
        #expect(contents.range(of: text) == nil, "\(name)")
      }
    }
  }

  /// Also one that prints late: a write that began while a new file had the number of a stream goes
  /// to that file, however late.
  @Test(arguments: [["print", "closing"], ["print-late"]])
  func aProgramThatClosesItsStreamsLosesNothing(command: [String]) throws {
    for round in 0..<Coverage.count(sample: 2, complete: 20) {
      let directory = try TemporaryDirectory(isQuick: true)
      #expect(try Child(Peer.executable, [directory.path] + command).exitStatus == 0)
      try expectEverything(in: directory, "round \(round)")
    }
  }

  @Test func failuresAreReportedToTheFirstStandardErrorOnly() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let usual = try Child(Peer.executable, [directory.path, "report"], mergesErrors: true)
    #expect(usual.finish().contains("keepsake: Defaults.set failed for key \"k\""))
    try directory.write([], to: "database")
    let path = directory.file("database").path
    #expect(try Peer.start(directory, "report", path).exitStatus == 0)
    #expect(try startWithoutStreams(directory, "report", path).exitStatus == 0)
    #expect(try directory.bytes(of: "database").isEmpty)
  }

  /// As with `2>&1 | tee` once tee has ended.
  @Test func aReportThatNobodyReadsDoesNotEndTheProgram() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    // A pipe whose only reader closes it. The test runner may ignore the signal.
    let script =
      "mkfifo \"$1/pipe\" && exec 3<>\"$1/pipe\" 2>\"$1/pipe\" 3>&- "
      + "&& exec env --default-signal=PIPE \"$0\" \"$@\""
    let peer = try Child("/bin/sh", ["-c", script, Peer.executable, directory.path, "report"])
    #expect(peer.exitStatus == 0)
  }

  /// Each number that a descriptor may get is one of a standard stream.
  @Test func aMissingDescriptorIsAnErrorOfTheCall() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    // Another test may just have opened 3, and not have it closed by exec.
    let script = "exec 3<&-; ulimit -n 4; exec \"$0\" \"$@\""
    let peer = try Child(
      "/bin/sh", ["-c", script, Peer.executable, directory.path, "set", "k", "1"])
    let answer = peer.finish()
    #expect(answer.contains("Close files, or raise the limit"), "\(answer)")
  }
}
