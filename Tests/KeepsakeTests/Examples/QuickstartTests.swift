import Foundation
import Testing

@Suite struct QuickstartTests {
  private let directory: TemporaryDirectory
  private let quickstart: Example

  init() throws {
    directory = try TemporaryDirectory()
    quickstart = Example("keepsake-quickstart", in: directory)
  }

  private func run(_ arguments: String...) throws -> (status: Int32, text: String) {
    let run = try quickstart.run(arguments)
    #expect(run.errors.isEmpty, "\(run)")
    return (run.status, run.text)
  }

  @Test func remembersCountsAndForgets() throws {
    try Data("one two three\n".utf8).write(to: directory.file("notes.txt"))
    let notes = directory.file("notes.txt").path

    var (status, text) = try run()
    #expect(status == 0 && text.contains("first run"), "\(text)")
    (status, text) = try run(notes)
    #expect(text.contains("Run number 2") && text.contains("14 bytes, 3 words."), "\(text)")
    #expect(text.contains("Now it is in the cache, which takes 8.19 kB."), "\(text)")
    (status, text) = try run(notes)
    #expect(text.contains("it was run number 2") && text.contains(", as before."), "\(text)")
    #expect(text.contains("It was in the cache"), "\(text)")
    #expect(text.contains("it knew \(notes): 14 bytes, 3 words"), "\(text)")
    let path = directory.path + "/config/keepsake-quickstart/standard.jsonl"
    #expect(text.contains("The settings lie in \(path)\n"), "\(text)")
    #expect(try String(contentsOfFile: path, encoding: .utf8).contains("\"launches\",3]"))
    let copy = text.split(separator: "\n").last?.split(separator: " ").last.map { String($0) }
    #expect(try String(contentsOfFile: #require(copy), encoding: .utf8) == "one two three\n")

    let missing = try quickstart.run(directory.path + "/missing")
    #expect(missing.failed(66, "Cannot read"), "\(missing)")
    #expect(try quickstart.run("a", "b").failed(64, "usage"))
    #expect(try quickstart.run("--reset", "a").failed(64, "usage"))
    #expect(try run().text.contains("Run number 4."), "a run that cannot read its file counts")
    (status, text) = try run("--reset")
    #expect(status == 0, "\(text)")
    (status, text) = try run()
    #expect(text.contains("first run"), "\(text)")
  }

  @Test func keepsASecretUntilItIsReset() throws {
    let (status, text) = try run()
    let first = text.split(separator: "\n").first { $0.hasPrefix("The secret id ") }
    let line = try #require(first, "\(text)")
    #expect(status == 0 && line.contains(/^The secret id [0-9A-F]{4}… is sealed in \//), "\(text)")
    #expect(line.hasSuffix(" \(directory.path)/data/keepsake-quickstart/vault"), "\(text)")
    #expect(try run().1.contains(line), "it is another one")
    #expect(try run("--reset").0 == 0)
    #expect(
      try FileManager.default.subpathsOfDirectory(atPath: directory.path)
        .filter { $0.contains("/vault/") && !$0.hasSuffix("/.lock") }.isEmpty)
    #expect(try !run().1.contains(line), "it was not forgotten")

    // Without its key it is an error, and no new one takes its place.
    try FileManager.default.removeItem(at: directory.file("state/keepsake-quickstart/vault.key"))
    for _ in 0..<2 {
      let run = try quickstart.run()
      #expect(
        run.status == 73 && run.errors.hasPrefix("There is no secret: get failed "), "\(run)")
    }
  }

  /// Its output is full at first: there it waits, with its first error, until what was wrong has
  /// passed.
  @Test func aFailureThatPassesReplacesNoSecret() throws {
    let first = try run().text.split(separator: "\n").first { $0.hasPrefix("The secret id ") }
    let line = try #require(first)
    let key = directory.file("state/keepsake-quickstart/vault.key")
    try FileManager.default.moveItem(at: key, to: directory.file("aside"))
    let waiting = try Child(
      "/bin/sh", ["-c", "head -c 65536 /dev/zero; exec \"$0\"", quickstart.path],
      environment: quickstart.environment, mergesErrors: true, startsSession: true)
    usleep(500_000)
    try FileManager.default.moveItem(at: directory.file("aside"), to: key)
    waiting.finish()
    #expect(try run().text.contains(line))
  }

  @Test func saysSoWhenNothingCanBeStored() throws {
    try directory.write([], to: "config")  // a file where the directory belongs
    let run = try quickstart.run()
    #expect(run.failed(73, "Nothing could be stored"), "\(run)")
    #expect(try quickstart.run("--reset").status == 73)
  }
}
