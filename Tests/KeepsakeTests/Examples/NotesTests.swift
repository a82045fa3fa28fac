import Foundation
import Testing

@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct NotesTests {
  private let directory: TemporaryDirectory
  private let notes: Example

  init() throws {
    directory = try TemporaryDirectory()
    notes = Example("keepsake-notes", in: directory)
  }

  private func run(_ arguments: String...) throws -> (status: Int32, text: String) {
    let run = try notes.run(arguments)
    #expect(run.errors.isEmpty, "\(run)")
    return (run.status, run.text)
  }

  @Test func keepsNotesInTheUsersDocuments() throws {
    #expect(try run("add", "shopping", "milk").text == "added shopping/1\n")
    #expect(try run("add", "shopping", "bread").text == "added shopping/2\n")
    #expect(try run("show", "shopping/2").text == "bread\n")
    let file = directory.file("Documents/keepsake-notes/notebook/shopping/1.json")
    #expect(try String(contentsOf: file, encoding: .utf8).contains("\"text\" : \"milk\""))

    #expect(try run("move", "shopping/1", "done/1").status == 0)
    let list = try run("list").text
    #expect(list.contains("done/1: milk (") && list.contains("shopping/2: bread ("), "\(list)")
    #expect(list.contains("notes: 2, "), "\(list)")
    #expect(try run("delete", "done").status == 0)
    #expect(try run("list").text.contains("notes: 1, "))
  }

  @Test func exportsAndImportsNotes() throws {
    let file = directory.file("notes.json").path
    _ = try run("add", "a", "one")
    _ = try run("add", "b", "two")
    #expect(try run("export", file).text == "exported 2\n")
    #expect(try run("delete", "a").status == 0)
    #expect(try run("import", file).text == "imported 2\n")
    #expect(try run("show", "a/1").text == "one\n")
    #expect(FileManager.default.fileExists(atPath: file), "import keeps the file")
  }

  @Test func concurrentAddsLoseNoNote() throws {
    let adding = try (0..<8).map { try notes.start("add", "race", "note \($0)") }
    for child in adding { child.finish() }
    let list = try run("list").text
    for number in 0..<8 { #expect(list.contains(": note \(number) ("), "\(list)") }

    // A lost counter does not overwrite older notes.
    try FileManager.default.removeItem(at: directory.file("config"))
    #expect(try run("add", "race", "new").text == "added race/9\n")
  }

  @Test func moveDoesNotReplaceANote() throws {
    _ = try run("add", "a", "one")
    _ = try run("add", "a", "two")
    #expect(try notes.run("move", "a/1", "a/2").failed(73, "The note \"a/2\" already exists."))
    #expect(try run("show", "a/2").text == "two\n")
  }

  @Test func importIsRefusedWhenItWouldReplaceANote() throws {
    let file = directory.file("notes.json").path
    _ = try run("add", "a", "one")
    _ = try run("add", "b", "two")
    #expect(try run("export", file).status == 0)
    #expect(try run("delete", "a").status == 0 && run("delete", "b").status == 0)
    _ = try run("add", "c", "another")
    for name in ["a/1", "b/2"] {
      let old = name == "a/1" ? "c/3" : "a/1"
      #expect(try run("move", old, name).status == 0)
      let refused = try notes.run("import", file)
      #expect(refused.failed(73, "The note \"\(name)\" already exists."), "\(refused)")
      #expect(try run("show", name).text == "another\n")
      #expect(try run("list").text.contains("notes: 1, "))
    }
  }

  @Test func canonicallyEquivalentNamesAreDifferentNotes() throws {
    let names = ["caf\u{E9}/1", "cafe\u{301}/1"]
    for (name, added) in zip(names, ["new/1", "new/2"]) {
      #expect(try run("add", "new", "of \(name.utf8.count) bytes").text == "added \(added)\n")
      #expect(try run("move", added, name).status == 0)
    }
    let file = directory.file("notes.json").path
    let exported = try notes.run("export", file)
    #expect(exported.text == "exported 2\n", "\(exported)")
    for name in names { #expect(try run("delete", name).status == 0) }
    #expect(try run("import", file).text == "imported 2\n")
    for name in names { #expect(try run("show", name).text == "of \(name.utf8.count) bytes\n") }
  }

  @Test func refusedTopicTakesNoNumber() throws {
    #expect(try notes.run("add", "..", "x").status == 64)
    #expect(try run("add", "a", "x").text == "added a/1\n")
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
    #expect(try run("list").text.hasPrefix("notes: 0,"))
    try directory.write([], to: "Documents")  // a file where the directory belongs
    #expect(try notes.run("add", "a", "x").failed(73, "failed"))
  }
}
