import Foundation
import Testing

@testable import Keepsake

/// Each call as it is meant to be used, and each of its errors.
@Suite struct FolderCallTests {
  private let home: TemporaryFolder
  private var folder: Folder { home.files }

  init() throws {
    home = try TemporaryFolder()
    try home.setMode(0o700)
  }

  @Test func aFileIsSavedFoundMeasuredAndDeleted() throws {
    #expect(try !folder.exists("a/b.txt"))
    try folder.save("one", as: "a/b.txt")
    #expect(try folder.exists("a/b.txt") && folder.exists("a") && folder.exists("a/"))
    #expect(try folder.load("a/b.txt") as String == "one")
    try folder.save("three", as: "a/b.txt")
    #expect(try folder.load("a/b.txt") as String == "three" && folder.size("a/b.txt") == 5)
    #expect(try folder.list("a") == ["b.txt"])
    try folder.delete("a/b.txt")
    try folder.delete("a/b.txt")
    try folder.delete("none/at/all")
    #expect(try !folder.exists("a/b.txt") && folder.exists("a"))
    try folder.save("x", as: "a/c/d")
    try folder.delete("a")
    #expect(try home.tree().isEmpty)
  }

  @Test func exists() throws {
    try folder.save("x", as: "f")
    try home.link("dangling", to: "/nowhere")
    try home.makeFolder("d")
    try home.link("d/dangling", to: "/nowhere")
    #expect(try folder.exists(""))
    #expect(try folder.exists("dangling") && folder.exists("d/dangling"))
    // Below what is no folder nothing can be.
    #expect(try !folder.exists("f/x") && !folder.exists("f/x/y") && !folder.exists("d/none/x"))
    #expect(try !Folder(home.file("none")).exists("") && !Folder(home.file("none")).exists("a/b"))
  }

  @Test func aSubfolderIsAFolder() throws {
    let users = folder.subfolder("a").subfolder("users")
    try users.save(1, as: "1.json")
    #expect(try home.text("a/users/1.json") == "1\n")
    #expect(try users.list() == ["1.json"] && users.url("x").path == home.path + "/a/users/x")
    #expect(try users.url().path == home.path + "/a/users")
    #expect(folder.subfolder("a/users") == users && folder.subfolder("") == folder)
    try users.clear()
    #expect(try home.tree().keys.sorted() == ["a", "a/users"])
  }

  @Test func whatListGivesEachCallTakes() throws {
    try folder.save("x", as: "old/2.json")
    try folder.save("y", as: "1.json")
    for name in try folder.list() where name.hasSuffix("/") {
      #expect(try folder.subfolder(name).load("2.json") as String == "x")
      #expect(try folder.subfolder(name).list() == ["2.json"])
      #expect(try folder.list(name) == ["2.json"] && folder.totalSize(name) == 1)
      #expect(try folder.exists(name))
      try folder.copy(name, to: "copy")
      try folder.move(name, to: "moved")
      try folder.delete("moved/")
    }
    #expect(try folder.list(recursively: true) == ["1.json", "copy/", "copy/2.json"])
  }

  @Test func createMakesTheFolderAndNothingElseDoesBeforeItsFirstFile() throws {
    let inner = folder.subfolder("a").subfolder("b")
    #expect(try inner.list() == [] && inner.totalSize() == 0 && !inner.exists("x"))
    try inner.clear()
    try inner.delete("x")
    #expect(try inner.freeSpace > 0)
    #expect(try inner.load("x", type: Int?.self) == nil)
    #expect(try home.names().isEmpty)
    #expect(try inner.create().path == home.path + "/a/b")
    try inner.create()
    #expect(try home.tree().keys.sorted() == ["a", "a/b"])
  }

  @Test(arguments: [
    "a b", "ä", "a\u{308}", "a%20b", "%2F", "a?b#c;d", "a:b", "~a", "a\\b", "\u{FF0E}\u{FF0E}",
  ])
  func aURLIsThatOfTheFile(_ name: String) throws {
    try folder.save("here", as: name)
    let url = try folder.url(name)
    #expect(url.isFileURL && Array(url.path.utf8) == Array((home.path + "/" + name).utf8))
    #expect(try String(contentsOf: url, encoding: .utf8) == "here")
    #expect(try folder.list().map { Array($0.utf8) } == [Array(name.utf8)])
    // And the URL of a folder is that folder, whatever is in its name.
    let inner = Folder(try folder.url("d" + name))
    try inner.save("there", as: "f")
    #expect(try folder.load("d\(name)/f") as String == "there")
  }

  private typealias Call = (
    operation: String, body: @Sendable (Folder, _ missing: URL) throws -> Void
  )

  private static let callsOnWhatIsMissing: [Call] = [
    ("load", { folder, _ in _ = try folder.load("none") as String }),
    ("load", { folder, _ in _ = try folder.load("no/ne") as Data }),
    ("size", { folder, _ in _ = try folder.size("none") }),
    ("size", { folder, _ in _ = try folder.size("no/ne") }),
    ("list", { folder, _ in _ = try folder.list("none") }),
    ("list", { folder, _ in _ = try folder.list("no/ne", recursively: true) }),
    ("totalSize", { folder, _ in _ = try folder.totalSize("none") }),
    ("copy", { folder, _ in try folder.copy("none", to: "x") }),
    ("move", { folder, _ in try folder.move("none", to: "x") }),
    ("move", { folder, _ in try folder.move("no/ne", to: "x") }),
    ("adopt", { folder, missing in try folder.adopt(missing, as: "x") }),
  ]

  @Test(arguments: callsOnWhatIsMissing.indices)
  func whatIsNotThereIsNotFound(which: Int) throws {
    let (operation, body) = Self.callsOnWhatIsMissing[which]
    let error = expectFailure(.notFound) { try body(folder, home.file("none")) }
    #expect(error?.operation == operation && error?.remedy.isEmpty == false)
    #expect(error?.path?.hasPrefix(home.path + "/no") == true)
    #expect(try home.names().isEmpty)
  }

  private static let wrongCalls: [Call] = [
    ("save", { folder, _ in try folder.save(1, as: "") }),
    ("save", { folder, _ in try folder.save(1, as: "x/") }),
    ("save", { folder, _ in try folder.save(1, as: "../x") }),
    ("load", { folder, _ in _ = try folder.load("d") as Data }),
    ("load", { folder, _ in _ = try folder.load("d/e") as Data? }),
    ("load", { folder, _ in _ = try folder.load("") as Data }),
    ("load", { folder, _ in _ = try folder.load("fifo") as Data }),
    ("delete", { folder, _ in try folder.delete("") }),
    ("delete", { folder, _ in try folder.subfolder("d").delete("") }),
    ("delete", { folder, _ in try folder.delete("..") }),
    ("size", { folder, _ in _ = try folder.size("d") }),
    ("size", { folder, _ in _ = try folder.size("") }),
    ("list", { folder, _ in _ = try folder.list("f") }),
    ("totalSize", { folder, _ in _ = try folder.totalSize("fifo") }),
    ("clear", { folder, _ in try folder.subfolder("f").clear() }),
    ("copy", { folder, _ in try folder.copy("f", to: "") }),
    ("copy", { folder, _ in try folder.copy("fifo", to: "x") }),
    ("move", { folder, _ in try folder.move("", to: "x") }),
    ("move", { folder, _ in try folder.move("f", to: "") }),
    ("move", { folder, _ in try folder.move("d", to: "d/e/f") }),
    ("adopt", { folder, file in try folder.adopt(file, as: "") }),
    ("adopt", { folder, file in try folder.adopt(file, as: "x/") }),
    (
      "adopt",
      { folder, file in
        try folder.adopt(file.deletingLastPathComponent().appending(path: "d"), as: "x")
      }
    ),
    (
      "adopt",
      { folder, file in
        try folder.adopt(file.deletingLastPathComponent().appending(path: "fifo"), as: "x")
      }
    ),
    ("adopt", { folder, _ in try folder.adopt(URL(string: "https://a.b/c")!, as: "x") }),
    ("create", { _, file in try Folder(URL(string: "https://a.b/c")!).create() }),
    ("url", { _, file in _ = try Folder(URL(string: "relative")!).url() }),
    ("exists", { folder, _ in _ = try folder.exists("/") }),
  ]

  @Test(arguments: wrongCalls.indices)
  func aWrongCallIsMisuseAndDoesNothing(which: Int) throws {
    let (operation, body) = Self.wrongCalls[which]
    try folder.save("f", as: "f")
    try folder.save("e", as: "d/e/e")
    try #require(mkfifo(home.path + "/fifo", 0o600) == 0)
    let before = try home.tree()
    let error = expectFailure(.misuse) { try body(folder, home.file("f")) }
    #expect(error?.operation == operation && error?.remedy.isEmpty == false)
    #expect(error?.path != nil)
    #expect(try home.tree() == before)
  }

  @Test func aFileWhereAFolderBelongsIsAnErrorThatNamesTheCall() throws {
    try folder.save("f", as: "f")
    for (operation, body) in [
      ("save", { try folder.save(1, as: "f/x") }), ("load", { _ = try folder.load("f/x") as Int }),
      ("copy", { try folder.copy("f", to: "f/x") }), ("move", { try folder.move("f", to: "f/x") }),
      ("create", { try folder.subfolder("f").create() }),
    ] as [(String, () throws -> Void)] {
      let error = #expect(throws: StorageError.self) { try body() }
      #expect(error?.operation == operation && error?.path?.hasPrefix(home.path) == true)
      #expect(error?.remedy.contains("file") == true, "\(String(describing: error))")
    }
    #expect(try home.tree() == ["f": "file 600 f"])
  }

  @Test func aFolderWhereAFileBelongsStays() throws {
    try folder.save("x", as: "d/x")
    try folder.save("f", as: "f")
    for body in [
      { try folder.save("new", as: "d") }, { try folder.copy("f", to: "d") },
      { try folder.move("f", to: "d") }, { try folder.adopt(home.file("f"), as: "d") },
    ] as [() throws -> Void] {
      let error = #expect(throws: StorageError.self) { try body() }
      #expect(error?.path == home.path + "/d" && error?.remedy.contains("folder") == true)
    }
    #expect(try home.tree() == ["d": "folder 700", "d/x": "file 600 x", "f": "file 600 f"])
    #expect(try home.leftOvers() == [])
  }

  @Test func linksAreRefusedByWhateverWouldFollowThem() throws {
    try folder.save("x", as: "d/x")
    try home.link("link", to: "d")
    try home.link("file", to: "d/x")
    for (operation, body) in [
      ("load", { _ = try folder.load("file") as String }),
      ("load", { _ = try folder.load("link/x") as String? }),
      ("save", { try folder.save(1, as: "link/x") }),
      ("exists", { _ = try folder.exists("link/x") }),
      ("size", { _ = try folder.size("link/x") }),
      ("list", { _ = try folder.list("link") }),
      ("totalSize", { _ = try folder.totalSize("link") }),
      ("delete", { try folder.delete("link/x") }),
      ("clear", { try folder.subfolder("link").clear() }),
      ("create", { try folder.subfolder("link").create() }),
      ("adopt", { try folder.adopt(home.file("file"), as: "y") }),
    ] as [(String, () throws -> Void)] {
      let error = expectFailure(.accessDenied) { try body() }
      #expect(error?.operation == operation && error?.path?.hasPrefix(home.path) == true)
      #expect(error?.remedy.contains("link") == true, "\(operation)")
    }
    try folder.delete("link")
    try folder.save("new", as: "file")
    #expect(try folder.load("d/x") as String == "x" && folder.load("file") as String == "new")
  }

  @Test func freeSpaceIsThatOfTheFileSystem() throws {
    let free = try folder.freeSpace
    #expect(free > 0)
    #expect(try folder.subfolder("not/yet").freeSpace > 0)
    try folder.requireFreeSpace(0)
    try folder.requireFreeSpace(-1)
    try folder.requireFreeSpace(1)
    let error = expectFailure(.diskFull) { try folder.requireFreeSpace(.max) }
    #expect(error?.operation == "requireFreeSpace" && error?.path == home.path)
    #expect(error?.failureReason?.contains("9.22 EB are needed") == true)
    expectFailure(.misuse) { _ = try folder.subfolder("..").freeSpace }
  }

  @Test func aFolderWithoutAPlaceSaysSoAtEachCall() throws {
    let finder = DirectoryFinder(
      app: "test", environment: { _ in nil }, registeredHome: { nil })
    try inScope(finder) { () throws in
      for folder in [Folder.documents, .applicationSupport, .caches] {
        for body in [
          { try folder.save(1, as: "x") }, { _ = try folder.load("x") as Int? },
          { _ = try folder.exists("x") }, { _ = try folder.list() }, { try folder.clear() },
          { _ = try folder.url() }, { _ = try folder.freeSpace },
        ] as [() throws -> Void] {
          let error = expectFailure(.notFound) { try body() }
          #expect(error?.remedy.contains("HOME") == true)
        }
      }
      #expect(try Folder.temporary.url().path == "/tmp/test-\(geteuid())/files")
    }
  }
}
