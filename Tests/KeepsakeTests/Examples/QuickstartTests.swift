import Foundation
import Testing

@Suite struct QuickstartTests {
  func run(_ folder: TemporaryFolder, _ arguments: String...) throws -> (Int32, String) {
    let child = try Child(
      Peer.builtProduct("quickstart").path, arguments,
      environment: [
        "XDG_CONFIG_HOME": folder.path, "CONFIGURATION_DIRECTORY": "",
        "XDG_CACHE_HOME": folder.path + "/cache", "CACHE_DIRECTORY": "",
        "XDG_DATA_HOME": folder.path + "/data", "XDG_STATE_HOME": folder.path + "/state",
        "STATE_DIRECTORY": "", "CREDENTIALS_DIRECTORY": "",
      ])
    let text = child.finish()
    return (child.exitStatus, text)
  }

  @Test func remembersCountsAndForgets() throws {
    let folder = try TemporaryFolder()
    try Data("one two three\n".utf8).write(to: folder.file("notes.txt"))
    let notes = folder.file("notes.txt").path

    var (status, text) = try run(folder)
    #expect(status == 0 && text.contains("first run"), "\(text)")
    (status, text) = try run(folder, notes)
    #expect(text.contains("Run number 2") && text.contains("14 bytes, 3 words."), "\(text)")
    #expect(text.contains("Now it is in the cache, which takes 8192 bytes."), "\(text)")
    (status, text) = try run(folder, notes)
    #expect(text.contains("it was run number 2") && text.contains(", as before."), "\(text)")
    #expect(text.contains("It was in the cache"), "\(text)")
    #expect(text.contains("it knew \(notes): 14 bytes, 3 words"), "\(text)")
    let path = folder.path + "/keepsake-quickstart/standard.jsonl"
    #expect(text.contains("The settings lie in \(path)\n"), "\(text)")
    #expect(try String(contentsOfFile: path, encoding: .utf8).contains("\"launches\",3]"))
    let copy = text.split(separator: "\n").last?.split(separator: " ").last.map { String($0) }
    #expect(try String(contentsOfFile: #require(copy), encoding: .utf8) == "one two three\n")

    (status, text) = try run(folder, folder.path + "/missing")
    #expect(status == 66 && text.contains("Cannot read"), "\(text)")
    (status, text) = try run(folder, "a", "b")
    #expect(status == 64 && text.contains("usage"), "\(text)")
    (status, text) = try run(folder, "--bogus")
    #expect(status == 64 && text.contains("usage"), "\(text)")
    (status, text) = try run(folder, "--help")
    #expect(status == 0 && text.contains("--reset"), "\(text)")
    (status, text) = try run(folder, "--reset")
    #expect(status == 0, "\(text)")
    (status, text) = try run(folder)
    #expect(text.contains("first run"), "\(text)")
  }

  @Test func keepsASecretUntilItIsReset() throws {
    let folder = try TemporaryFolder()
    let (status, text) = try run(folder)
    let first = text.split(separator: "\n").first { $0.hasPrefix("The secret id ") }
    let line = try #require(first, "\(text)")
    #expect(status == 0 && line.contains(/^The secret id [0-9A-F]{4}… is sealed in \//), "\(text)")
    #expect(line.hasSuffix(" \(folder.path)/data/keepsake-quickstart/vault"), "\(text)")
    #expect(try run(folder).1.contains(line), "it is another one")
    #expect(try run(folder, "--reset").0 == 0)
    #expect(
      try FileManager.default.subpathsOfDirectory(atPath: folder.path)
        .filter { $0.contains("/vault/") && !$0.hasSuffix("/.lock") }.isEmpty)
    #expect(try !run(folder).1.contains(line), "it was not forgotten")

    // Without its key it is an error, and no new one takes its place.
    try FileManager.default.removeItem(at: folder.file("state/keepsake-quickstart/vault.key"))
    for _ in 0..<2 {
      let (status, text) = try run(folder)
      #expect(status == 73 && text.contains("There is no secret"), "\(text)")
    }
  }

  @Test func saysSoWhenNothingCanBeStored() throws {
    let folder = try TemporaryFolder()
    try folder.write([], to: "keepsake-quickstart")  // a file where the folder belongs
    let (status, text) = try run(folder)
    #expect(status == 73 && text.contains("Nothing could be stored"), "\(text)")
    #expect(try run(folder, "--reset").0 == 73)
  }
}
