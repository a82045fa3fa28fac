import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// `keepsake-shop`, run by a user whose files are all in a directory of the test.
@Suite(.server, .threadPerTest) struct ShopTests {
  private let directory: ServerDirectory

  init() throws {
    directory = try ServerDirectory()
    for name in ["home", "tmp"] {
      try FileManager.default.createDirectory(
        atPath: path(name), withIntermediateDirectories: false)
    }
  }

  private func path(_ name: String) -> String { "\(directory.path)/\(name)" }

  // MARK: Running it

  /// - Parameters:
  ///   - search: Where it looks for a server.
  ///   - body: As in ``ProgramRun``.
  private func run(
    _ arguments: String..., search: String? = nil,
    whileRunning body: (pid_t, @escaping @Sendable () -> String) throws -> Void = { _, _ in }
  ) throws -> ProgramRun {
    let executable = try #require(TestServer.executable)
    let search = search ?? URL(filePath: executable).deletingLastPathComponent().path
    let program = Bundle.main.bundleURL.appending(path: "keepsake-shop").path
    let words = ["env", "HOME=\(path("home"))", "TMPDIR=\(path("tmp"))", "PATH=\(search)", program]
    return try ProgramRun(words + arguments, in: directory, whileRunning: body)
  }

  /// The processes with an argument or a variable that names a file in its temporary directory.
  private func processes() -> [String] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
    return names.filter { name in
      guard Int(name) != nil else { return false }
      return ["cmdline", "environ"].contains { file in
        let bytes = FileManager.default.contents(atPath: "/proc/\(name)/\(file)") ?? Data()
        return bytes.range(of: Data((path("tmp") + "/").utf8)) != nil
      }
    }
  }

  private func expectNothingLeft(sourceLocation: SourceLocation = #_sourceLocation) throws {
    // The shell that watches a server ends a moment after it.
    waitUntil("processes are left", sourceLocation: sourceLocation) { processes().isEmpty }
    for name in ["home", "tmp"] {
      let files = try FileManager.default.contentsOfDirectory(atPath: path(name))
      #expect(files == [], sourceLocation: sourceLocation)
    }
  }

  /// Expects everything that a complete run prints after its first line.
  private func expectShow(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) {
    let show =
      #/
      \ \ berlin\ has\ emptied\ the\ shop\n
      \nA\ setting.*\n
      \ \ lima\ sells\ a\ bicycle\ for\ 100\ euros\n
      \ \ oslo\ sells\ a\ bicycle\ for\ 100\ euros\n
      \ \ berlin\ has\ started\ the\ sale\n
      \ \ lima\ now\ sells\ a\ bicycle\ for\ 80\ euros\n
      \ \ oslo\ now\ sells\ a\ bicycle\ for\ 80\ euros\n
      \nA\ page.*\n
      \ \ berlin\ shows\ "A\ bicycle\ for\ 80\ euros",\ rendered\ by\ (\w+)\n
      \ \ lima\ shows\ "A\ bicycle\ for\ 80\ euros",\ rendered\ by\ (\w+)\n
      \ \ oslo\ shows\ "A\ bicycle\ for\ 80\ euros",\ rendered\ by\ (\w+)\n
      \nA\ secret.*\n
      \ \ berlin\ has\ stored\ the\ key\ of\ the\ payment\ service\n
      \ \ lima\ pays\ with\ the\ key\ that\ ends\ in\ 4242\n
      \ \ oslo\ pays\ with\ the\ key\ that\ ends\ in\ 4242\n
      \nNothing.*\n
      \ \ berlin\ has\ emptied\ the\ shop\n
      /#
    guard let match = text.wholeMatch(of: show) else {
      Issue.record("\(text)", sourceLocation: sourceLocation)
      return
    }
    let renderers = [match.output.1, match.output.2, match.output.3]
    #expect(Set(renderers).count == 1, "\(renderers)", sourceLocation: sourceLocation)
  }

  // MARK: Complete runs

  @Test func startsAServerAndEndsIt() throws {
    let run = try run()
    #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
    let lines = run.text.split(separator: "\n", maxSplits: 1, omittingEmptySubsequences: false)
    let executable = try #require(TestServer.executable)
    #expect(lines.first == "Started \(executable), and a shop on three machines that share it:")
    expectShow(String(lines.last ?? ""))
    try expectNothingLeft()
  }

  /// Also if an earlier run has left a sale, and a vault whose key is lost.
  @Test func usesAServerThatRuns() throws {
    let server = try TestServer(["--appendonly", "yes", "--appendfsync", "always"])
    let url = server.url
    let first = try run("--server", url) { identifier, text in
      waitUntil("no secret was stored") { text().contains("has stored the key") }
      kill(identifier, SIGKILL)
    }
    if first.status == 0 { expectShow(first.text) }
    waitUntil("processes are left") { processes().isEmpty }
    try FileManager.default.removeItem(atPath: path("tmp"))
    try FileManager.default.createDirectory(atPath: path("tmp"), withIntermediateDirectories: false)
    for _ in 0..<2 {
      let run = try run("--server", url)
      #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
      expectShow(run.text)
      try expectNothingLeft()
    }
    // Only that there were settings, secrets and a cache.
    guard case .array(let keys) = try server.command("KEYS", "*") else { return }
    #expect(keys.allSatisfy { $0.text?.hasPrefix("keepsake:{keepsake-shop:") == true })
    for key in keys.compactMap(\.text) where key.hasSuffix(":v") {
      #expect(try server.command("HLEN", key) == .integer(1), "\(key)")
    }
  }

  // MARK: Its end

  /// Whatever it waits for.
  @Test(.usesMutex, arguments: [SIGHUP, SIGINT, SIGTERM]) func signalEndsItAndWhatItStarted(
    _ signal: Int32
  ) throws {
    let server = try TestServer()
    let front = try Forwarder(to: server.socketPath)
    defer { front.end() }
    front.hold(.toClient)
    let socket = front.address.description.split(separator: "?")[0]
    let run = try run("--server", "\(socket)?timeout=600s&connect-timeout=600s") { identifier, _ in
      waitUntil("no machine asks the server") { front.connectionCount > 0 }
      kill(identifier, signal)
    }
    #expect(run.status == 75 && run.text.isEmpty && run.errors == "Interrupted.\n", "\(run)")
    try expectNothingLeft()
  }

  /// At any moment of a run, which may also be over.
  @Test(.usesMutex) func signalEndsItsServer() throws {
    let run = try run { identifier, text in
      waitUntil("no server was started") { text().hasPrefix("Started ") }
      kill(identifier, SIGINT)
    }
    // A machine may lose the server before it is ended itself, and say so.
    #expect(
      run.status == 75 && run.errors.hasSuffix("Interrupted.\n") || run.status == 0, "\(run)")
    try expectNothingLeft()
  }

  /// Nothing can remove its directory then.
  @Test func killLeavesNoProcess() throws {
    let run = try run { identifier, text in
      waitUntil("no server was started") { text().hasPrefix("Started ") }
      kill(identifier, SIGKILL)
    }
    #expect(run.status == 128 + SIGKILL || run.status == 0, "\(run)")
    waitUntil("processes are left") { processes().isEmpty }
  }

  // MARK: Errors

  @Test func saysHowToInstallAServer() throws {
    let run = try run(search: path("home"))
    #expect(run.status == 69 && run.text.isEmpty, "\(run)")
    #expect(run.errors.contains("sudo apt-get install"), "\(run)")
    try expectNothingLeft()
  }

  @Test func showsWhyAServerDoesNotStart() throws {
    // Prints its arguments and ends.
    try FileManager.default.createSymbolicLink(
      atPath: path("valkey-server"), withDestinationPath: "/bin/echo")
    let run = try run(search: directory.path)
    #expect(run.status == 69 && run.text.isEmpty, "\(run)")
    #expect(run.errors.hasPrefix("--port 0 --unixsocket"), "\(run)")
    #expect(run.errors.hasSuffix("\nThe server has ended.\n"), "\(run)")
    try expectNothingLeft()
  }

  @Test func serverCannotBeReached() throws {
    let run = try run("--server", "unix:\(path("missing"))?timeout=60s&connect-timeout=60s")
    #expect(run.status == 69 && run.errors.hasSuffix("berlin has ended.\n"), "\(run)")
    #expect(run.errors.contains("connect: No such file"), "\(run)")
    let wrong = try self.run("--server", "nonsense")
    #expect(wrong.status == 69 && wrong.errors.hasSuffix("berlin has ended.\n"), "\(wrong)")
    try expectNothingLeft()
  }
}
