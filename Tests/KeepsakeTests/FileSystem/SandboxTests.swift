#if os(Linux)
import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Stores in a sandbox that forbids renaming and linking files from one directory into another, as
/// landlock(7) does unless it is told otherwise: each temporary file has to be made in the
/// directory of the file that it replaces.
@Suite(.multiprocess) struct SandboxTests {
  @Test func allCallsStayWithinDirectories() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    defer { directory.unmountAll() }
    try makeDamagedFile(in: directory)
    try makeFileAlone(in: directory)
    let peer = try Peer.start(directory, "confined")
    let first = peer.line() ?? "nothing"
    // A kernel without Landlock, a container that forbids its system calls, or another C library.
    if first.hasPrefix("unavailable") { return }
    #expect(first == "confined")
    let lines = peer.finish().split(separator: "\n")
    let reports = lines.filter { $0.hasPrefix("report ") }
    #expect(lines.filter { !$0.hasPrefix("report ") } == ["done"])
    // The only report is that of the damage.
    #expect(reports.count == 1, "\(reports)")
    #expect(reports.first?.contains("was kept as") == true, "\(reports)")
    let failures = Failures()
    let repaired = directory.store(
      Defaults.Suite("damaged", in: directory.url), failures: failures)
    #expect(try repaired.keys().sorted() == ["b", "c"])
    #expect(failures.all.isEmpty, "\(failures.all)")
    #expect(try directory.store(Defaults.Suite("alone", in: directory.url)).keys() == ["b"])
    #expect(try directory.bytes(of: "host") == directory.bytes(of: "alone.jsonl"))
    #expect(try !directory.names().contains { $0.hasSuffix(".next") || $0.hasSuffix(".tmp") })
  }

  /// Settings of which the first value is damaged.
  private func makeDamagedFile(in directory: TemporaryDirectory) throws {
    let store = directory.store(Defaults.Suite("intact", in: directory.url))
    for (key, value) in [("a", 1), ("b", 2)] { try store.set(value, forKey: key) }
    var bytes = try directory.bytes(of: "intact.jsonl")
    bytes[JournalFormat.headerSize + 3] ^= 1
    // A copy, because the store would repair its own.
    try directory.write(bytes, to: "damaged.jsonl")
  }

  /// A file that cannot be replaced, because it is mounted alone or has another name.
  private func makeFileAlone(in directory: TemporaryDirectory) throws {
    try directory.write([], to: "host")
    let (host, alone) = (directory.file("host").path, directory.file("alone.jsonl").path)
    if OneAtATime.HazardTests.canMount {
      try directory.write([], to: "alone.jsonl")
      try #require(mount(host, alone, nil, UInt(MS_BIND), nil) == 0)
    } else {
      try #require(link(host, alone) == 0)
    }
  }
}
#endif
