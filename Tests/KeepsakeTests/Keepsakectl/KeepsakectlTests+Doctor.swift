import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func doctorFindsNoProblemsInIntactFilesAndChangesNothing() throws {
    try fill()
    let before = try snapshot()
    let intact = try run("doctor", app)
    #expect(intact.status == 0)
    #expect(
      intact.text
        == "\(app): no problems. Checked 2 suites, 2 secrets, 3 cache entries.\n")
    #expect(try snapshot() == before)
    let report = try #require(try run("doctor", app, "--json").json() as? [String: Any])
    #expect((report["findings"] as? [Any])?.isEmpty == true)
    try expectFailure(1, "has no settings, secrets or caches here", "doctor", "com.example.missing")
    #expect(!FileManager.default.fileExists(atPath: path("data/com.example.missing")))
  }

  @Test func doctorShowsProgressAndRemovesItsCopiesWhenInterrupted() throws {
    let scope = stores()
    defer { scope.close() }
    // Every other key is too long for a file name.
    let long = String(repeating: "long", count: 100)
    for number in 0..<600 {
      let key = number.isMultiple(of: 2) ? "\(number)" : long + "\(number)"
      try scope.cache(.standard).set(number, forKey: key, expiry: .days(7))
    }
    try directory.makeDirectory("tmp")
    let changes = ["TMPDIR": path("tmp")]
    let complete = try run("doctor", app, environment: changes)
    #expect(
      complete.text
        == "\(app): no problems. Checked 0 suites, 0 secrets, 600 cache entries.\n")
    for signal in [SIGHUP, SIGINT, SIGTERM] {
      var status: Int32 = 0
      // On a busy machine, it may have finished before the signal arrives.
      for _ in 0..<20 where status == 0 {
        let terminal = try PseudoTerminal()
        let child = try Child(
          inspector.path, ["doctor", app],
          environment: inspector.environment.merging(changes) { $1 },
          terminal: terminal, isInteractive: true)
        try terminal.expect("Reading cache standard ")
        kill(child.identifier, signal)
        status = child.exitStatus
      }
      #expect(status == 128 + signal)
      #expect(try FileManager.default.contentsOfDirectory(atPath: path("tmp")).isEmpty)
    }
    // As under nohup.
    let terminal = try PseudoTerminal()
    let child = try Child(
      "/bin/sh", ["-c", "trap '' HUP; exec \"$0\" \"$@\"", inspector.path, "doctor", app],
      environment: inspector.environment, terminal: terminal, isInteractive: true)
    try terminal.expect("Reading cache standard ")
    kill(child.identifier, SIGHUP)
    #expect(child.exitStatus == 0)
  }

  @Test func signalsEndADoctorWhoseReportIsNotRead() throws {
    let name = "config/\(app)/standard.jsonl.damaged-" + String(repeating: "x", count: 200)
    try directory.makeDirectory("config/\(app)")
    // The report is many times as long as a pipe holds.
    for number in 0..<400 { try directory.write([], to: name + "\(number)") }
    for signal in [SIGHUP, SIGINT, SIGTERM] {
      let child = try Child(
        inspector.path, ["doctor", app], environment: inspector.environment, startsSession: true)
      #expect(child.line()?.hasPrefix("problem") == true)
      kill(child.identifier, signal)
      waitUntil("the doctor did not end") { !child.isRunning }
      #expect(!child.isRunning && child.exitStatus == 128 + signal)
    }
  }

  @Test func doctorChecksTheRestWhenOneDirectoryIsUnreadable() throws {
    try fill()
    try FileManager.default.removeItem(atPath: path("config/\(app)"))
    try directory.write([], to: "config/\(app)")
    let run = try run("doctor", app)
    #expect(run.status == 1 && run.text.contains("Checked 0 suites, 2 secrets, 3 cache"))
    let report = try #require(try self.run("doctor", app, "--json").json() as? [String: Any])
    let findings = try #require(report["findings"] as? [[String: Any]])
    #expect(findings.map { $0["path"] as? String } == [path("config/\(app)")])
    #expect(findings.first?.keys.sorted() == ["key", "path", "problem", "remedy"])
  }

  @Test func doctorFindsAFullDisk() throws {
    try fill()
    let run = try run("doctor", app, "--free=9000000000000000000")
    #expect(run.status == 1 && run.text.contains("1 problem."), "one problem for each file system")
    #expect(run.text.contains("of disk space is left"))
    // How much is left may change meanwhile.
    let other = try self.run("doctor", "--free", "9000000000000000000", app)
    #expect(other.status == 1 && other.text.contains("of disk space is left"))
    try expectFailure(64, "number of bytes", "doctor", app, "--free=-1")
    try expectFailure(64, "number of bytes", "doctor", app, "--free=much")
  }

  @Test func doctorFindsNoProblemsInACacheInUse() throws {
    let scope = stores()
    defer { scope.close() }
    let cache = scope.cache(.standard)
    for number in 0..<500 { try cache.set(number, forKey: "\(number)") }
    let isDone = Locked(false)
    let group = DispatchGroup()
    for isNewKey in [true, false] {
      group.enter()
      Thread.detachNewThread {
        var number = 500
        while !isDone.withLock({ $0 }) {
          #expect(throws: Never.self) {
            if isNewKey { try cache.remove("\(number - 100)") }
            try cache.set(number, forKey: "\(isNewKey ? number : number % 50)")
          }
          number += 1
        }
        group.leave()
      }
    }
    defer {
      isDone.withLock { $0 = true }
      group.wait()
    }
    for number in 0..<Coverage.count(sample: 2, complete: 40) {
      let run = try run("doctor", app)
      #expect(run.status == 0 && run.text.contains("no problems."), "\(number): \(run)")
    }
  }

  /// All files with their modes, contents and times of modification.
  func snapshot() throws -> [String: String] {
    var files: [String: String] = [:]
    for name in try FileManager.default.subpathsOfDirectory(atPath: directory.path) {
      let status = try #require(try FileSystem.status(path(name), withTimes: true))
      let bytes = status.isDirectory ? "" : "\(try Bytes.read(path(name)).hashValue)"
      files[name] = "\(status.modified) \(status.mode) \(bytes)"
    }
    return files
  }

  @Test func examinesAllApps() throws {
    let none = try run("doctor")
    #expect(none.status == 0 && none.text.isEmpty && none.errors.isEmpty, "\(none)")
    try fill()
    try stores(of: "com.example.mail").defaults(.standard).set("text", forKey: "k")
    let run = try run("doctor")
    #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
    #expect(
      run.text == """
        com.example.mail: no problems. Checked 1 suite, 0 secrets, 0 cache entries.
        com.example.notes: no problems. Checked 2 suites, 2 secrets, 3 cache entries.

        """)
    let position = try #require(try Bytes.read(journal).firstRange(of: Array("dark".utf8)))
    try flipBit(of: journal, at: position.lowerBound)
    let damaged = try self.run("doctor", "--json")
    #expect(damaged.status == 1, "\(damaged)")
    let rows = try damaged.rows()
    #expect(rows.map { $0["app"] as? String } == ["com.example.mail", "com.example.notes"])
    #expect(rows.map { ($0["findings"] as? [Any])?.count } == [0, 1])
  }
}
