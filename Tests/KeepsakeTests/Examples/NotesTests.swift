import Foundation
import Testing

@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct NotesTests {
  private let notes: Example
  private var directory: TemporaryDirectory { notes.directory }

  init() throws { notes = Example("keepsake-notes", in: try TemporaryDirectory()) }

  @Test func keepsNotesInTheUsersDocuments() throws {
    #expect(try notes.output("add", "shopping", "milk") == "added shopping/1\n")
    #expect(try notes.output("add", "shopping", "bread") == "added shopping/2\n")
    #expect(try notes.output("show", "shopping/2") == "bread\n")
    let file = directory.file("Documents/keepsake-notes/notebook/shopping/1.json")
    #expect(try String(contentsOf: file, encoding: .utf8).contains("\"text\" : \"milk\""))

    try notes.output("move", "shopping/1", "done/1")
    let list = try notes.output("list")
    #expect(list.contains("done/1: milk (") && list.contains("shopping/2: bread ("), "\(list)")
    #expect(list.contains("notes: 2, "), "\(list)")
    try notes.output("delete", "done")
    #expect(try notes.output("list").contains("notes: 1, "))
  }

  @Test func exportsAndImportsNotes() throws {
    let file = directory.file("notes.json").path
    try notes.output("add", "a", "one")
    try notes.output("add", "b", "two")
    #expect(try notes.output("export", file) == "exported 2\n")
    try notes.output("delete", "a")
    #expect(try notes.output("import", file) == "imported 2\n")
    #expect(try notes.output("show", "a/1") == "one\n")
    #expect(FileManager.default.fileExists(atPath: file), "import keeps the file")
  }

  @Test func concurrentAddsLoseNoNote() throws {
    let adding = try (0..<8).map { try notes.start("add", "race", "note \($0)") }
    for child in adding { child.finish() }
    let list = try notes.output("list")
    for number in 0..<8 { #expect(list.contains(": note \(number) ("), "\(list)") }

    // A lost counter does not overwrite older notes.
    try FileManager.default.removeItem(at: directory.file("config"))
    #expect(try notes.output("add", "race", "new") == "added race/9\n")
  }

  @Test func moveDoesNotReplaceANote() throws {
    try notes.output("add", "a", "one")
    try notes.output("add", "a", "two")
    #expect(try notes.run("move", "a/1", "a/2").failed(73, "The note \"a/2\" already exists."))
    #expect(try notes.output("show", "a/2") == "two\n")
  }

  @Test func importIsRefusedWhenItWouldReplaceANote() throws {
    let file = directory.file("notes.json").path
    try notes.output("add", "a", "one")
    try notes.output("add", "b", "two")
    try notes.output("export", file)
    for name in ["a", "b"] { try notes.output("delete", name) }
    try notes.output("add", "c", "another")
    for name in ["a/1", "b/2"] {
      let old = name == "a/1" ? "c/3" : "a/1"
      try notes.output("move", old, name)
      let refused = try notes.run("import", file)
      #expect(refused.failed(73, "The note \"\(name)\" already exists."), "\(refused)")
      #expect(try notes.output("show", name) == "another\n")
      #expect(try notes.output("list").contains("notes: 1, "))
    }
  }

  @Test func canonicallyEquivalentNamesAreDifferentNotes() throws {
    let names = ["caf\u{E9}/1", "cafe\u{301}/1"]
    for (name, added) in zip(names, ["new/1", "new/2"]) {
      #expect(try notes.output("add", "new", "of \(name.utf8.count) bytes") == "added \(added)\n")
      try notes.output("move", added, name)
    }
    let file = directory.file("notes.json").path
    let exported = try notes.run("export", file)
    #expect(exported.text == "exported 2\n", "\(exported)")
    for name in names { try notes.output("delete", name) }
    #expect(try notes.output("import", file) == "imported 2\n")
    for name in names { #expect(try notes.output("show", name) == "of \(name.utf8.count) bytes\n") }
  }

  @Test func refusedTopicTakesNoNumber() throws {
    #expect(try notes.run("add", "..", "x").status == 64)
    #expect(try notes.output("add", "a", "x") == "added a/1\n")
  }

  @Test func explainsWrongUse() throws {
    for arguments in [[], ["add"], ["bogus"], ["list", "x"], ["export"]] {
      #expect(try notes.run(arguments).failed(64, "usage: keepsake-notes"), "\(arguments)")
    }
    for arguments in [["show", "no/1"], ["move", "no/1", "a/1"], ["delete", "no"]] {
      let run = try notes.run(arguments)
      #expect(run.failed(66, "There is no note") && run.errors.contains("\"no"), "\(run)")
    }
    for topic in ["", "..", "../../elsewhere", "/tmp"] {
      let outside = try notes.run("add", topic, "x")
      #expect(outside.failed(64, "is not a path inside the folder"), "\(outside)")
    }
    try directory.write([0xFF, 0], to: "binary")
    #expect(try notes.run("import", directory.path + "/missing").failed(66, "There is no file"))
    #expect(
      try notes.run("import", directory.path + "/binary").failed(65, "cannot be read"))
    #expect(try notes.run("export", directory.path).failed(73, "a directory is in the way"))
    #expect(try notes.output("list").hasPrefix("notes: 0,"))
    try directory.write([], to: "Documents")  // a file where the directory belongs
    #expect(try notes.run("add", "a", "x").failed(73, "failed"))
  }
}
