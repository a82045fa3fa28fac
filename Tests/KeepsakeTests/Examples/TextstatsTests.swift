import Foundation
import Testing

@Suite struct TextstatsTests {
  private let folder: TemporaryFolder
  private let notes: String

  init() throws {
    folder = try TemporaryFolder()
    try folder.write(Array("one two three three\n".utf8), to: "notes.txt")
    notes = folder.file("notes.txt").path
  }

  private func run(_ arguments: String...) throws -> (status: Int32, text: String) {
    let child = try Child(
      Peer.builtProduct("textstats").path, arguments,
      environment: ["XDG_CACHE_HOME": folder.path, "CACHE_DIRECTORY": ""])
    let text = child.finish()
    return (child.exitStatus, text)
  }

  @Test func remembersUntilTheFileChanges() throws {
    var (status, text) = try run(notes)
    #expect(status == 0 && text.contains("miss \(notes): 2 lines, 4 words"), "\(text)")
    #expect(text.contains("hits: 0, misses: 1") && text.contains("8.19 kB"), "\(text)")
    (status, text) = try run(notes)
    #expect(text.contains("hit  \(notes): 2 lines, 4 words, often three"), "\(text)")
    try folder.write(Array("one".utf8), to: "notes.txt")
    (status, text) = try run(notes)
    #expect(text.contains("miss \(notes): 1 lines, 1 words"), "\(text)")
    (status, text) = try run("--list")
    #expect(text.contains("entries: 2, 16.4 kB") && text.contains(", until "), "\(text)")
    (status, text) = try run("--limit", "9000", notes)
    #expect(try run("--list").text.contains("entries: 1,"), "the older one had to go")
    (status, text) = try run("--clear")
    #expect(status == 0)
    #expect(try run("--list").text.contains("entries: 0, 0 bytes"))
  }

  @Test func forgetsWhatHasExpired() throws {
    #expect(try run("--expiry", "3", notes).status == 0)
    Thread.sleep(forTimeInterval: 3.1)
    #expect(try run("--sweep").text.contains("entries that had expired: 1"))
    #expect(try run("--expiry", "0.01", notes).text.contains("miss"))
  }

  @Test func saysWhatIsWrong() throws {
    for arguments in [
      [], ["--expiry"], ["--expiry", "x"], ["--bogus"], ["--limit", "y"], ["--limit", "-5"],
    ] {
      let child = try Child(Peer.builtProduct("textstats").path, arguments)
      #expect(child.finish().contains("usage") && child.exitStatus == 64)
    }
    let (status, text) = try run(notes, folder.path + "/missing")
    #expect(status == 66 && text.contains("cannot read") && text.contains("miss \(notes)"))
    try FileManager.default.removeItem(at: folder.file("keepsake-textstats"))
    try folder.write([], to: "keepsake-textstats")  // a file where the folder belongs
    let failed = try run("--list")
    #expect(failed.status == 73 && failed.text.contains("failed"), "\(failed.text)")
  }
}
