import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  @Suite(.singleThreaded) struct ShelfTests {
    private let shelf: Example
    private var directory: TemporaryDirectory { shelf.directory }
    private let storage = "data/keepsake-shelf/files/shelf"

    init() throws { shelf = Example("keepsake-shelf", in: try TemporaryDirectory()) }

    /// Writes a file of different numbers, so that a misplaced chunk is detected.
    private func makeFile(_ name: String, _ size: Int) throws -> [UInt8] {
      let bytes = Array(0...UInt64(size / 8)).withUnsafeBytes { Array($0.prefix(size)) }
      try directory.write(bytes, to: name)
      return bytes
    }

    @Test func returnsFilesAsTheyWereStored() throws {
      for (name, size) in [("large file", 2_500_000), ("even", 1 << 20), ("empty", 0), (".hid", 9)]
      {
        let bytes = try makeFile(name, size)
        let put = try shelf.run("put", directory.file(name).path)
        #expect(put.status == 0 && put.text == "\(name): \(ByteCount(size))\n", "\(put)")
        #expect(put.errors.isEmpty, "progress is for terminals")
        #expect(try directory.bytes(of: "\(storage)/\(name)") == bytes)
        #expect(try shelf.run("get", name, directory.file("back").path).text.hasPrefix("back: "))
        #expect(try directory.bytes(of: "back") == bytes)
      }
      let list = try shelf.run("list").text
      #expect(list.contains("large file: 2.5 MB\n") && list.contains(".hid: 9 bytes\n"), "\(list)")
      #expect(list.contains("files: 4, 3.55 MB;") && list.contains("/\(storage)\n"), "\(list)")

      try FileManager.default.createDirectory(
        at: directory.file("directory"), withIntermediateDirectories: true)
      let missing = directory.path + "/missing"
      #expect(
        try shelf.run("get", "even", missing + "/back").failed(66, "no directory \"\(missing)"))
      #expect(!FileManager.default.fileExists(atPath: missing))
      #expect(
        try shelf.run("get", "even", directory.file("directory").path).text == "even: 1.05 MB\n")
      #expect(try directory.bytes(of: "directory/even") == directory.bytes(of: "even"))
      #expect(try shelf.run("remove", "even").status == 0)
      #expect(try shelf.run("list").text.contains("files: 3,"))
    }

    @Test func showsProgressOnATerminal() throws {
      _ = try makeFile("film", 8 << 20)
      let terminal = try PseudoTerminal()
      let putting = try shelf.run("put", directory.file("film").path, at: terminal)
      #expect(putting.finish() == "film: 8.39 MB\n", "progress is not on standard output")
      let screen = terminal.finish()
      #expect(screen.contains(/^\r\x1B\[Kfilm  \d+ %  [\d.]+ MB of 8.39 MB/), "\(screen)")
      #expect(screen.hasSuffix("film  100 %  8.39 MB of 8.39 MB\r\u{1B}[K"), "\(screen)")
      let percents = screen.matches(of: /(\d+) %/).compactMap { Int($0.1) }
      #expect(percents == percents.sorted(), "\(percents)")
    }

    @Test func controlCLeavesNoPartialCopy() throws {
      let old = try makeFile("film", 1_000)
      #expect(try shelf.run("put", directory.file("film").path).status == 0)
      // A sparse file takes no space, and its copy takes long enough to be interrupted.
      #expect(truncate(directory.file("film").path, 1 << 30) == 0)
      func names() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory.file(storage).path)
      }
      var (status, output, screen) = (Int32(0), "", "")
      // On a busy machine, the copy may reach its limit before the signal arrives.
      for _ in 0..<20 where status != 130 {
        for name in try names() where name != "film" {
          try FileSystem.unlink(directory.file("\(storage)/\(name)").path)
        }
        (status, output, screen) = try interruptedPut("film")
      }
      #expect(status == 130 && output.isEmpty, "\(status)")
      #expect(screen.hasSuffix("\r\u{1B}[KStopped. No partial copy is left.\r\n"), "\(screen)")
      #expect(try directory.bytes(of: "\(storage)/film") == old)
      #expect(try names() == ["film"])
    }

    /// Puts a large file on the shelf and types control-C; its status, output and screen.
    private func interruptedPut(_ name: String) throws -> (Int32, String, String) {
      let terminal = try PseudoTerminal()
      // The limit bounds the copy in case the signal arrives late.
      let putting = try Child(
        "/bin/sh",
        [
          "-c", "ulimit -f 524288; exec \"$0\" \"$@\"", shelf.path, "put",
          directory.file(name).path,
        ],
        environment: shelf.environment, terminal: terminal, isInteractive: true)
      try terminal.expect(" % ")
      kill(putting.identifier, SIGINT)
      let output = putting.finish()
      return (putting.exitStatus, output, terminal.finish())
    }

    @Test func refusesAFileThatIsLargerThanTheFreeSpace() throws {
      _ = try makeFile("film", 0)
      let size = try Folder(directory.url).freeSpace + 1_000_000_000
      #expect(truncate(directory.file("film").path, size) == 0)
      let run = try shelf.run("put", directory.file("film").path)
      #expect(
        run.failed(73, " is needed, but only ") && run.errors.split(separator: "\n").count == 1,
        "\(run)")
    }

    @Test func explainsWrongUse() throws {
      for words in [
        [], ["bogus"], ["put"], ["put", "-x"], ["list", "x"], ["get"], ["remove"],
      ] {
        #expect(try shelf.run(words).failed(64, "usage: keepsake-shelf"), "\(words)")
      }
      #expect(mkfifo(directory.file("pipe").path, 0o600) == 0)
      for (name, reason) in [
        ("missing", "no such file"), ("pipe", "does not name a file"), ("", "not name a file"),
      ] {
        let run = try shelf.run("put", directory.file(name).path)
        #expect(run.failed(66, reason) && run.errors.contains(directory.path), "\(run)")
      }
      // Its size is reported as 0, but it can be read.
      #expect(try shelf.run("put", "/proc/version").status == 0)
      #expect(try !directory.bytes(of: "\(storage)/version").isEmpty)
      #expect(try shelf.run("remove", "version").status == 0)
      // Its first page is not mapped, so reading it fails.
      let unreadable = try shelf.run("put", "/proc/self/mem")
      #expect(unreadable.failed(73, "Input/output error"), "\(unreadable)")
      for verb in ["get", "remove"] {
        let missing = try shelf.run(verb, "missing")
        #expect(missing.failed(66, "no \"missing\" on the shelf. Run keepsake-shelf list."))
        #expect(try shelf.run(verb, "../shelf").failed(64, "is not a path inside the folder"))
      }
      #expect(try shelf.run("list").text.hasPrefix("files: 0,"), "no partial copies")

      _ = try makeFile("film", 10)
      try FileManager.default.removeItem(at: directory.file("data"))
      try directory.write([], to: "data")  // a file where the directory belongs
      #expect(try shelf.run("put", directory.file("film").path).failed(73, "copy failed"))
    }
  }
}
