import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Restores a backup over the files of running programs, with the tools that people use for that.
///
/// Afterwards all programs have the restored settings, or what was lost is reported and kept in a
/// file. No program ends or hangs. `KEEPSAKE_RESTORES` is the number of restores with each tool.
@Suite(.singleThreaded, .multiprocess, .serialized, .ownThread) struct RestoreTests {
  /// How a backup is copied: a shell command with the backup `$1`, the directory of the app `$2`
  /// and the name of the settings file `$3`.
  struct Tool: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let command: String
    var program = "sh"
    /// Whether it leaves files alone that are longer than in the backup.
    var skipsLongerFiles = false

    func isInstalled() throws -> Bool {
      try Child("/bin/sh", ["-c", "command -v \(program) > /dev/null"]).exitStatus == 0
    }
  }

  static let tools = [
    Tool(testDescription: "cp -a of the directory", command: "cp -a $1/. $2"),
    Tool(testDescription: "cp", command: "cp $1/$3 $2/$3"),
    Tool(
      testDescription: "a slow copy",
      command: """
        exec 3<$1/$3 4>$2/$3; for piece in 1 2 3 4 5 6 7 8 9; do \
        head -c 3000 <&3 >&4; sleep 0.1; done; cat <&3 >&4
        """),
    Tool(testDescription: "mv", command: "cp $1/$3 $2/new && mv $2/new $2/$3"),
    Tool(
      testDescription: "tar --overwrite",
      command: "tar -C $1 -c . | tar -C $2 --overwrite -x"),
    Tool(testDescription: "tar", command: "tar -C $1 -c . | tar -C $2 -x"),
    Tool(testDescription: "a redirect", command: "cat $1/$3 > $2/$3"),
    Tool(
      testDescription: "shutil.copytree",
      command: """
        python3 -c 'import shutil, sys; \
        shutil.copytree(sys.argv[1], sys.argv[2], dirs_exist_ok=True)' $1 $2
        """, program: "python3"),
    Tool(testDescription: "rsync", command: "rsync -a $1/ $2", program: "rsync"),
    Tool(
      testDescription: "rsync --inplace", command: "rsync -a --inplace $1/ $2",
      program: "rsync"),
    Tool(
      testDescription: "rsync --append-verify", command: "rsync -a --append-verify $1/ $2",
      program: "rsync", skipsLongerFiles: true),
  ]

  /// A program that uses the stores of the directory.
  private struct Program {
    let name: String
    let rate: Int
    let log: String
    let peer: Child

    init(_ name: String, rate: Int, _ directory: TemporaryDirectory, _ logs: TemporaryDirectory)
      throws
    {
      (self.name, self.rate) = (name, rate)
      log = "\(logs.path)/\(name)-\(rate)"
      // A crash must end the process at once.
      peer = try Child(
        Peer.executable, [directory.path, "run-beside-restores", name, "\(rate)", log],
        environment: ["SWIFT_BACKTRACE": "enable=no"])
    }

    func lines() throws -> [Substring] {
      try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
    }
  }

  private let directory: TemporaryDirectory
  private let backup: TemporaryDirectory
  private let logs: TemporaryDirectory

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    backup = try TemporaryDirectory(isQuick: true)
    logs = try TemporaryDirectory(isQuick: true)
  }

  /// Answers one request in a process of its own, as damaged lock files may end it.
  private func ask(_ request: String) throws -> String? {
    let peer = try Peer.start(directory, "serve")
    defer { peer.finish() }
    return try peer.ask(request)
  }

  private func waitUntil(
    _ seconds: Double = 300, _ condition: () throws -> Bool
  ) rethrows -> Bool {
    let deadline = ContinuousClock.now + .seconds(seconds)
    while try !condition() {
      if ContinuousClock.now > deadline { return false }
      usleep(5_000)
    }
    return true
  }

  private func copy(_ tool: Tool, from source: TemporaryDirectory, to target: TemporaryDirectory)
    throws
  {
    func run() throws -> (status: Int32, output: String) {
      let child = try Child(
        "/bin/sh",
        ["-c", tool.command, "restore", source.path, target.path, TemporaryDirectory.journal],
        mergesErrors: true)
      let output = child.finish()
      return (child.exitStatus, output)
    }
    var result = try run()
    // A writer may make a new file where tar has just removed the old one. Then tar refuses to
    // replace it, and the user has to try again.
    for _ in 0..<20 where result.status == 2 && result.output.contains("File exists") {
      result = try run()
    }
    // Files that change while they are copied over are worth a warning to some tools; rsync then
    // exits with 23 or 24.
    try #require([0, 1, 23, 24].contains(result.status), "\(tool): \(result.output)")
  }

  @Test(arguments: Coverage.cases(tools, every: 3)) func aRestoredBackupIsNotLostInSilence(
    tool: Tool
  ) throws {
    guard try tool.isInstalled() else {
      print("proof: restores, \(tool.testDescription): skipped, as it is not installed")
      return
    }
    #expect(try Peer.start(directory, "fill", "key", "400").finish() == "")
    #expect(try ask("set marker 1") == "ok")
    try directory.ownCache("own").set(1, forKey: "marker")
    try copy(Self.tools[0], from: directory, to: backup)
    let rates = Coverage.isComplete ? [10, 100, 1_000] : [1_000]
    func start(_ name: String, _ rate: Int) throws -> Program {
      let program = try Program(name, rate: rate, directory, logs)
      try #require(program.peer.line() == "begins")
      return program
    }
    var programs = try rates.map { try start("writer\($0)", $0) } + [start("", 2_000)]
    var (losses, reports, deaths, hangs) = (0, 0, 0, 0)
    let restores = Coverage.count("KEEPSAKE_RESTORES", sample: 1, complete: 8)
    var (round, stalls) = (0, 0)
    while round < restores {
      // Shorter than the backup in every second round.
      if round % 2 == 1 || tool.skipsLongerFiles { #expect(try ask("clear") == "ok") }
      #expect(try ask("set marker \(1_000 + round)") == "ok")
      let copyStart = ContinuousClock.now
      try copy(tool, from: backup, to: directory)
      let isSlow = ContinuousClock.now - copyStart > .seconds(1.9)
      func isRestored() throws -> Bool { try ask("get marker") == "1" }
      _ = try waitUntil(isSlow ? 5 : 60) { try isRestored() || !keptFiles().isEmpty }
      for index in programs.indices {
        let (program, count) = (programs[index], try programs[index].lines().count)
        let isRunningOn = try waitUntil {
          try !program.peer.isRunning || program.lines().count > count
        }
        if !program.peer.isRunning {
          deaths += 1
          programs[index] = try start(program.name, program.rate)
        } else if !isRunningOn {
          hangs += 1
        }
      }
      // Writers have written in the meantime.
      if try !isRestored() {
        // On a busy machine, a tool can pause for so long that an empty file counts as finished.
        if try keptFiles().isEmpty, isSlow, stalls < 20 {
          stalls += 1
          continue
        }
        if try keptFiles().isEmpty { losses += 1 } else { reports += 1 }
      }
      round += 1
      for file in try keptFiles() { try FileSystem.unlink(file) }
    }
    let summary =
      "\(restores) restores, \(losses) lost in silence, \(reports) reported, "
      + "\(deaths) programs ended, \(hangs) hung"
    print("proof: restores, \(tool.testDescription): \(summary)")
    #expect(losses == 0 && deaths == 0 && hangs == 0, "\(summary)")
  }

  private func keptFiles() throws -> [String] {
    try directory.names().filter { $0.hasPrefix(TemporaryDirectory.journal + ".") }
      .map { directory.path + "/" + $0 }
  }
}
