import Foundation
import Testing

@testable import KeepsakeTestSupport

@Suite(.multiprocess) struct PagesTests {
  private let pages: Example
  private var directory: TemporaryDirectory { pages.directory }

  init() throws { pages = Example("keepsake-pages", in: try TemporaryDirectory()) }

  /// Many processes with many tasks each, while the page changes twice: each version of it is
  /// transferred once.
  @Test func noPageIsTransferredTwice() throws {
    let processCount = Coverage.count(sample: 4, complete: 40)
    let site = directory.file("site")
    try FileManager.default.createDirectory(at: site, withIntermediateDirectories: true)
    let server = try pages.start("serve", site.path)
    defer {
      kill(server.identifier, SIGTERM)
      _ = server.finish()
    }
    let line = try #require(server.line())
    let address = try #require(line.firstMatch(of: /http:.*/)?.output) + "/news"
    var log: [String] = []
    var expected: [String] = []
    for version in 1...3 {
      let text = String(repeating: "version \(version)\n", count: 10_000)
      try Data(text.utf8).write(to: site.appending(path: "news"))
      // The first one downloads it.
      #expect(try pages.run("get", String(address)).text == text)
      expected.append("200 /news \(text.utf8.count)")
      log.append(try #require(server.line()))
      let runs = try (0..<processCount).map { _ in
        try pages.start("get", String(address), "50")
      }
      for run in runs { #expect(run.finish() == text && run.exitStatus == 0) }
      // Each process asks at least once, and its tasks together.
      while log.filter({ $0.hasPrefix("304") }).count < version * processCount {
        log.append(try #require(server.line()))
      }
    }
    // One more page marks the end of the log.
    let missing = try pages.run("get", String(address) + ".txt")
    #expect(missing.failed(66, "There is no \(address).txt."), "\(missing)")
    while log.last != "404 /news.txt 0" { log.append(try #require(server.line())) }
    #expect(log.filter { $0.hasPrefix("200") } == expected)
    let unchanged = log.filter { $0 == "304 /news 0" }.count
    #expect(unchanged == log.count - 4 && unchanged >= 3 * processCount)
    #expect(unchanged <= 3 * processCount * 50)
    print("proof: HTTP: \(expected.count) bodies, \(unchanged) answers 304")
  }

  @Test func theOldPageIsPrintedWhileTheServerIsDown() throws {
    let site = directory.file("site")
    try FileManager.default.createDirectory(at: site, withIntermediateDirectories: true)
    try Data("news".utf8).write(to: site.appending(path: "a"))
    let server = try pages.start("serve", site.path)
    let line = try #require(server.line())
    let address = String(try #require(line.firstMatch(of: /http:.*/)?.output)) + "/a"
    #expect(try pages.run("get", address).text == "news")
    kill(server.identifier, SIGTERM)
    _ = server.finish()
    let run = try pages.run("get", address)
    #expect(run.status == 0 && run.text == "news", "\(run)")
    #expect(run.errors.contains("the producer threw SocketError"), "\(run)")
  }
}
