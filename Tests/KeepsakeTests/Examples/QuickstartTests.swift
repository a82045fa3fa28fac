import Foundation
import Testing

@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct QuickstartTests {
  private let quickstart: Example
  private var directory: TemporaryDirectory { quickstart.directory }
  private var notes: String { directory.file("notes.txt").path }

  init() throws {
    quickstart = Example("keepsake-quickstart", in: try TemporaryDirectory())
    try directory.write(Array("one two three\n".utf8), to: "notes.txt")
  }

  @Test func countsLaunchesAndRemembersTheLastFile() throws {
    #expect(try quickstart.output(notes).hasPrefix("Launch 1. The file before this one: none.\n"))
    try directory.write(Array("four\n".utf8), to: "other.txt")
    let other = try quickstart.output(directory.path + "/other.txt")
    #expect(other.contains("before this one: \(notes).\n"), "\(other)")
    let text = try quickstart.output(notes)
    #expect(text.hasPrefix("Launch 3. "), "\(text)")

    let journal = directory.path + "/config/keepsake-quickstart/standard.jsonl"
    #expect(text.hasSuffix("The settings are in \(journal)\n"), "\(text)")
    #expect(try String(contentsOfFile: journal, encoding: .utf8).contains("\"launches\",3]"))
  }

  @Test func countsAFileOnceWhileItIsCached() throws {
    #expect(try quickstart.output(notes).contains("Counted: 1 lines, 3 words."))
    #expect(try quickstart.output(notes).contains("Found in the cache: 1 lines, 3 words."))
  }

  @Test func keepsASecretUntilEverythingIsReset() throws {
    let text = try quickstart.output(notes)
    let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("The token ") })
    #expect(line.contains(/^The token [0-9a-f]{1,4}… is sealed in \//), "\(line)")
    #expect(line.hasSuffix(" \(directory.path)/data/keepsake-quickstart/vault"), "\(line)")
    #expect(try quickstart.output(notes).contains(line))

    #expect(try quickstart.output("--reset") == "Everything is forgotten.\n")
    let files = try FileManager.default.subpathsOfDirectory(atPath: directory.path)
    #expect(!files.contains { $0.contains("/vault/") && !$0.hasSuffix("/.lock") }, "\(files)")
    let fresh = try quickstart.output(notes)
    #expect(fresh.hasPrefix("Launch 1. ") && fresh.contains("The token "), "\(fresh)")
    #expect(!fresh.contains(line), "\(fresh)")
  }

  @Test func doesNotReplaceASecretThatCannotBeRead() throws {
    let text = try quickstart.output(notes)
    let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("The token ") })
    let key = directory.file("state/keepsake-quickstart/vault.key")
    try FileManager.default.moveItem(at: key, to: directory.file("aside"))
    let run = try quickstart.run(notes)
    #expect(run.errors.hasPrefix("keepsake: SecureVault.get failed"), "\(run)")
    #expect(!run.text.contains("The token "), "\(run)")
    try FileManager.default.moveItem(at: directory.file("aside"), to: key)
    #expect(try quickstart.output(notes).contains(line))
  }

  @Test func reportsWhatCannotBeReadOrStored() throws {
    #expect(try quickstart.output() == "usage: keepsake-quickstart FILE | --reset\n")
    let missing = directory.path + "/missing"
    #expect(try quickstart.output(missing).contains("Cannot read \(missing)."))
    try FileManager.default.removeItem(at: directory.file("config"))
    try directory.write([], to: "config")  // a file where the directory belongs
    let run = try quickstart.run(notes)
    #expect(run.errors.hasPrefix("keepsake: Defaults.update failed"), "\(run)")
    #expect(try quickstart.run("--reset").text.isEmpty)
  }
}
