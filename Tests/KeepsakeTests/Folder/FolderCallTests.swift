import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Each call in normal use, and its errors.
@Suite struct FolderCallTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws {
    home = try TemporaryDirectory()
    try home.setMode(0o700)
  }

  @Test func exists() throws {
    try directory.save("x", as: "f")
    try home.link("dangling", to: "/nowhere")
    try home.makeDirectory("d")
    try home.link("d/dangling", to: "/nowhere")
    #expect(try directory.exists(""))
    #expect(try directory.exists("dangling") && directory.exists("d/dangling"))
    // Nothing can exist below a file.
    #expect(
      try !directory.exists("f/x") && !directory.exists("f/x/y") && !directory.exists("d/none/x"))
    #expect(try !Folder(home.file("none")).exists("") && !Folder(home.file("none")).exists("a/b"))
  }

  @Test func subfolderIsAFolderOfItsOwn() throws {
    let users = directory.subfolder("a").subfolder("users")
    try users.save(1, as: "1.json")
    #expect(try home.text("a/users/1.json") == "1\n")
    #expect(try users.list() == ["1.json"] && users.url("x").path == home.path + "/a/users/x")
    #expect(try users.url().path == home.path + "/a/users")
    #expect(directory.subfolder("a/users") == users && directory.subfolder("") == directory)
    try users.clear()
    #expect(try home.tree().keys.sorted() == ["a", "a/users"])
  }

  @Test func callsAcceptTheNamesThatListReturns() throws {
    try directory.save("x", as: "old/2.json")
    try directory.save("y", as: "1.json")
    for name in try directory.list() where name.hasSuffix("/") {
      #expect(try directory.subfolder(name).load("2.json") as String == "x")
      #expect(try directory.subfolder(name).list() == ["2.json"])
      #expect(try directory.list(name) == ["2.json"] && directory.totalSize(name) == 1)
      #expect(try directory.exists(name))
      try directory.copy(name, to: "copy")
      try directory.move(name, to: "moved")
      try directory.delete("moved/")
    }
    #expect(try directory.list(recursively: true) == ["1.json", "copy/", "copy/2.json"])
  }

  @Test func folderIsCreatedByCreateOrItsFirstFile() throws {
    let inner = directory.subfolder("a").subfolder("b")
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
  func urlNamesTheFile(_ name: String) throws {
    try directory.save("here", as: name)
    let url = try directory.url(name)
    #expect(url.isFileURL && Array(url.path.utf8) == Array((home.path + "/" + name).utf8))
    #expect(try String(contentsOf: url, encoding: .utf8) == "here")
    #expect(try directory.list().map { Array($0.utf8) } == [Array(name.utf8)])
    // The URL of a folder leads to that folder, whatever characters are in its name.
    let inner = Folder(try directory.url("d" + name))
    try inner.save("there", as: "f")
    #expect(try directory.load("d\(name)/f") as String == "there")
  }

  private typealias Call = (
    operation: String, body: @Sendable (Folder, _ missing: URL) throws -> Void
  )

  private static let callsOnWhatIsMissing: [Call] = [
    ("load", { directory, _ in _ = try directory.load("none") as String }),
    ("load", { directory, _ in _ = try directory.load("no/ne") as Data }),
    ("size", { directory, _ in _ = try directory.size("none") }),
    ("size", { directory, _ in _ = try directory.size("no/ne") }),
    ("list", { directory, _ in _ = try directory.list("none") }),
    ("list", { directory, _ in _ = try directory.list("no/ne", recursively: true) }),
    ("totalSize", { directory, _ in _ = try directory.totalSize("none") }),
    ("copy", { directory, _ in try directory.copy("none", to: "x") }),
    ("move", { directory, _ in try directory.move("none", to: "x") }),
    ("move", { directory, _ in try directory.move("no/ne", to: "x") }),
    ("adopt", { directory, missing in try directory.adopt(missing, as: "x") }),
  ]

  @Test(arguments: callsOnWhatIsMissing.indices)
  func missingFileIsNotFound(which: Int) throws {
    let (operation, body) = Self.callsOnWhatIsMissing[which]
    let error = expectFailure(.notFound) { try body(directory, home.file("none")) }
    #expect(error?.operation == operation && error?.remedy.isEmpty == false)
    #expect(error?.path?.hasPrefix(home.path + "/no") == true)
    #expect(try home.names().isEmpty)
  }

  private static let wrongCalls: [Call] = [
    ("save", { directory, _ in try directory.save(1, as: "") }),
    ("save", { directory, _ in try directory.save(1, as: "x/") }),
    ("save", { directory, _ in try directory.save(1, as: "../x") }),
    ("save", { directory, _ in try directory.save(1, as: "fifo") }),
    ("load", { directory, _ in _ = try directory.load("d") as Data }),
    ("load", { directory, _ in _ = try directory.load("d/e") as Data? }),
    ("load", { directory, _ in _ = try directory.load("") as Data }),
    ("load", { directory, _ in _ = try directory.load("fifo") as Data }),
    ("delete", { directory, _ in try directory.delete("") }),
    ("delete", { directory, _ in try directory.subfolder("d").delete("") }),
    ("delete", { directory, _ in try directory.delete("..") }),
    ("size", { directory, _ in _ = try directory.size("d") }),
    ("size", { directory, _ in _ = try directory.size("") }),
    ("list", { directory, _ in _ = try directory.list("f") }),
    ("totalSize", { directory, _ in _ = try directory.totalSize("fifo") }),
    ("clear", { directory, _ in try directory.subfolder("f").clear() }),
    ("copy", { directory, _ in try directory.copy("f", to: "") }),
    ("copy", { directory, _ in try directory.copy("fifo", to: "x") }),
    ("copy", { directory, _ in try directory.copy("f", to: "fifo") }),
    ("move", { directory, _ in try directory.move("", to: "x") }),
    ("move", { directory, _ in try directory.move("f", to: "") }),
    ("move", { directory, _ in try directory.move("f", to: "fifo") }),
    ("move", { directory, _ in try directory.move("d", to: "d/e/f") }),
    ("adopt", { directory, file in try directory.adopt(file, as: "") }),
    ("adopt", { directory, file in try directory.adopt(file, as: "x/") }),
    ("adopt", { directory, file in try directory.adopt(file, as: "fifo") }),
    ("adopt", { directory, _ in try directory.adopt(directory.url("d"), as: "x") }),
    ("adopt", { directory, _ in try directory.adopt(directory.url("fifo"), as: "x") }),
    ("adopt", { directory, _ in try directory.adopt(URL(string: "https://a.b/c")!, as: "x") }),
    ("create", { _, file in try Folder(URL(string: "https://a.b/c")!).create() }),
    ("url", { _, file in _ = try Folder(URL(string: "relative")!).url() }),
    ("exists", { directory, _ in _ = try directory.exists("/") }),
  ]

  @Test(arguments: wrongCalls.indices)
  func incorrectCallIsMisuseAndChangesNothing(which: Int) throws {
    let (operation, body) = Self.wrongCalls[which]
    try directory.save("f", as: "f")
    try directory.save("e", as: "d/e/e")
    try #require(mkfifo(home.path + "/fifo", 0o600) == 0)
    let before = try home.tree()
    let error = expectFailure(.misuse) { try body(directory, home.file("f")) }
    #expect(error?.operation == operation && error?.remedy.isEmpty == false)
    #expect(error?.path != nil)
    #expect(try home.tree() == before)
  }

  @Test func fileInTheWayOfADirectoryIsAnErrorThatNamesTheCall() throws {
    try directory.save("f", as: "f")
    for (operation, body) in [
      ("save", { try directory.save(1, as: "f/x") }),
      ("load", { _ = try directory.load("f/x") as Int }),
      ("copy", { try directory.copy("f", to: "f/x") }),
      ("move", { try directory.move("f", to: "f/x") }),
      ("create", { try directory.subfolder("f").create() }),
    ] as [(String, () throws -> Void)] {
      let error = #expect(throws: StorageError.self) { try body() }
      #expect(error?.operation == operation && error?.path?.hasPrefix(home.path) == true)
      #expect(error?.remedy.contains("file") == true, "\(String(describing: error))")
    }
    #expect(try home.tree() == ["f": "file 600 f"])
  }

  @Test func directoryInTheWayOfAFileStays() throws {
    try directory.save("x", as: "d/x")
    try directory.save("f", as: "f")
    for body in [
      { try directory.save("new", as: "d") }, { try directory.copy("f", to: "d") },
      { try directory.move("f", to: "d") }, { try directory.adopt(home.file("f"), as: "d") },
    ] as [() throws -> Void] {
      let error = #expect(throws: StorageError.self) { try body() }
      #expect(error?.path == home.path + "/d" && error?.remedy.contains("directory") == true)
    }
    #expect(try home.tree() == ["d": "directory 700", "d/x": "file 600 x", "f": "file 600 f"])
    #expect(try home.leftoverFiles() == [])
  }

  @Test func callsRefuseToFollowLinks() throws {
    try directory.save("x", as: "d/x")
    try home.link("link", to: "d")
    try home.link("file", to: "d/x")
    for (operation, body) in [
      ("load", { _ = try directory.load("file") as String }),
      ("load", { _ = try directory.load("link/x") as String? }),
      ("save", { try directory.save(1, as: "link/x") }),
      ("exists", { _ = try directory.exists("link/x") }),
      ("size", { _ = try directory.size("link/x") }),
      ("list", { _ = try directory.list("link") }),
      ("totalSize", { _ = try directory.totalSize("link") }),
      ("delete", { try directory.delete("link/x") }),
      ("clear", { try directory.subfolder("link").clear() }),
      ("create", { try directory.subfolder("link").create() }),
      ("adopt", { try directory.adopt(home.file("file"), as: "y") }),
    ] as [(String, () throws -> Void)] {
      let error = expectFailure(.accessDenied) { try body() }
      #expect(error?.operation == operation && error?.path?.hasPrefix(home.path) == true)
      #expect(error?.remedy.contains("link") == true, "\(operation)")
    }
    try directory.delete("link")
    #expect(try directory.load("d/x") as String == "x")
  }

  @Test func reportsTheFileSystemsFreeSpace() throws {
    let free = try directory.freeSpace
    #expect(free > 0)
    #expect(try directory.subfolder("not/yet").freeSpace > 0)
    try directory.requireFreeSpace(0)
    try directory.requireFreeSpace(-1)
    try directory.requireFreeSpace(1)
    let error = expectFailure(.diskFull) { try directory.requireFreeSpace(.max) }
    #expect(error?.operation == "requireFreeSpace" && error?.path == home.path)
    #expect(error?.failureReason?.contains("9.22 EB is needed") == true)
    expectFailure(.misuse) { _ = try directory.subfolder("..").freeSpace }
  }

  @Test func folderWithoutLocationIsAnErrorOfEachCall() throws {
    try inScope([:]) { () throws in
      for directory in [Folder.documents, .applicationSupport, .caches] {
        for body in [
          { try directory.save(1, as: "x") }, { _ = try directory.load("x") as Int? },
          { _ = try directory.exists("x") }, { _ = try directory.list() },
          { try directory.clear() },
          { _ = try directory.url() }, { _ = try directory.freeSpace },
        ] as [() throws -> Void] {
          let error = expectFailure(.notFound) { try body() }
          #expect(error?.remedy.contains("HOME") == true)
        }
      }
      #expect(try Folder.temporary.url().path == "/tmp/app-\(geteuid())/files")
    }
  }
}
