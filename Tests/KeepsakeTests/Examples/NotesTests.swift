import Foundation
import Testing

@Suite struct NotesTests {
  private let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  private func start(_ arguments: [String]) throws -> Child {
    var environment = ["HOME": folder.path, "TMPDIR": folder.path]
    for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
      environment["XDG_\(name)_HOME"] = folder.path + "/" + name.lowercased()
      environment["\(name == "CONFIG" ? "CONFIGURATION" : name)_DIRECTORY"] = ""
    }
    return try Child(
      Peer.builtProduct("notes").path, arguments, environment: environment, mergesErrors: true)
  }

  private func run(_ arguments: String...) throws -> (status: Int32, text: String) {
    let child = try start(arguments)
    let text = child.finish()
    return (child.exitStatus, text)
  }

  @Test func keepsNotesInTheDocumentsOfTheirUser() throws {
    #expect(try run("add", "shopping", "milk").text == "added shopping/1\n")
    #expect(try run("add", "shopping", "bread").text == "added shopping/2\n")
    #expect(try run("show", "shopping/2").text == "bread\n")
    let file = folder.file("Documents/keepsake-notes/notebook/shopping/1.json")
    #expect(try String(contentsOf: file, encoding: .utf8).contains("\"text\" : \"milk\""))

    #expect(try run("move", "shopping/1", "done/1").status == 0)
    let list = try run("list").text
    #expect(list.contains("done/1: milk (") && list.contains("shopping/2: bread ("), "\(list)")
    #expect(list.contains("notes: 2, "), "\(list)")
    #expect(try run("delete", "done").status == 0)
    #expect(try run("list").text.contains("notes: 1, "))
  }

  @Test func movesNotesThroughAFile() throws {
    let file = folder.file("notes.json").path
    _ = try run("add", "a", "one")
    _ = try run("add", "b", "two")
    #expect(try run("export", file).status == 0)
    #expect(try run("delete", "a").status == 0)
    #expect(try run("import", file).text == "imported 2\n")
    #expect(try run("show", "a/1").text == "one\n")
    #expect(FileManager.default.fileExists(atPath: file), "it is the user's")
  }

  @Test func followsASettingThatAnotherProcessChanges() throws {
    _ = try run("add", "a", "one")
    _ = try run("add", "b", "two")
    let watching = try start(["watch"])
    #expect(watching.line()?.hasPrefix("a/1: one") == true)
    #expect(watching.line()?.hasPrefix("b/1: two") == true)
    #expect(watching.line()?.hasPrefix("notes: 2") == true)
    #expect(try run("order", "newest").status == 0)
    #expect(watching.line() == "-- newest first")
    #expect(watching.line()?.hasPrefix("b/1: two") == true)
    watching.kill9()
  }

  @Test func saysWhatIsWrong() throws {
    for arguments in [[], ["add"], ["order", "sideways"], ["list", "x"]] {
      let child = try start(arguments)
      #expect(child.finish().contains("usage") && child.exitStatus == 64)
    }
    let missing = try run("show", "nothing/1")
    #expect(missing.status == 66 && missing.text.contains("there is no such thing"))
    let outside = try run("add", "../../elsewhere", "x")
    #expect(outside.status == 73 && outside.text.contains("does not lead to a place"))
  }
}
