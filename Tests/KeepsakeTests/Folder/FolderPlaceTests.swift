import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Where the folders of an app are, and who can access them.
@Suite struct FolderPlaceTests {
  private func paths(_ environment: [String: String], home: String? = nil) throws -> [String] {
    try inScope(environment, home: home) {
      try [Folder.documents, .applicationSupport, .caches, .temporary].map { try $0.url("x").path }
    }
  }

  @Test(arguments: [
    (
      ["HOME": "/h"],
      ["/h/Documents/app/x", "/h/.local/share/app/files/x", "/h/.cache/app/files/x"]
    ),
    (
      ["HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/c", "XDG_CONFIG_HOME": "/no"],
      ["/h/Documents/app/x", "/d/app/files/x", "/c/app/files/x"]
    ),
    (
      ["HOME": "/h", "XDG_DATA_HOME": "d", "XDG_CACHE_HOME": "./c", "XDG_STATE_HOME": "/s"],
      ["/h/Documents/app/x", "/h/.local/share/app/files/x", "/h/.cache/app/files/x"]
    ),
    (
      ["HOME": "/h", "STATE_DIRECTORY": "/s:/t", "CACHE_DIRECTORY": "/c", "XDG_DATA_HOME": "/d"],
      ["/h/Documents/app/x", "/s/files/x", "/c/files/x"]
    ),
    (
      ["HOME": "relative"],
      ["/r/Documents/app/x", "/r/.local/share/app/files/x", "/r/.cache/app/files/x"]
    ),
  ])
  func foldersFollowTheSpecifications(
    _ environment: [String: String], _ expected: [String]
  ) throws {
    #expect(try paths(environment, home: "/r") == expected + ["/tmp/app-\(geteuid())/files/x"])
  }

  @Test(arguments: [
    ("/own", "/own"), ("relative", "/tmp"), ("", "/tmp"), ("/own/", "/own/"),
  ])
  func temporaryFilesAreBelowTMPDIR(_ variable: String, _ base: String) throws {
    let found = try paths(["HOME": "/h", "TMPDIR": variable])[3]
    #expect(found == "\(base)/app-\(geteuid())/files/x")
  }

  @Test func usesTheUsersDocumentsDirectory() throws {
    let home = try TemporaryDirectory()
    try home.makeDirectory(".config")
    try home.makeDirectory("xdg")
    try home.write(
      Array("# mine\nXDG_DOCUMENTS_DIR=\"$HOME/Dokumente\"\n".utf8), to: ".config/user-dirs.dirs")
    try home.write(Array("XDG_DOCUMENTS_DIR=\"/elsewhere\"\n".utf8), to: "xdg/user-dirs.dirs")
    #expect(try paths(["HOME": home.path])[0] == home.path + "/Dokumente/app/x")
    let other = ["HOME": home.path, "XDG_CONFIG_HOME": home.path + "/xdg"]
    #expect(try paths(other)[0] == "/elsewhere/app/x")
    let none = ["HOME": home.path, "XDG_CONFIG_HOME": home.path + "/none"]
    #expect(try paths(none)[0] == home.path + "/Documents/app/x")
    // A directory of that name is ignored.
    try home.makeDirectory("bad/user-dirs.dirs")
    let bad = ["HOME": home.path, "XDG_CONFIG_HOME": home.path + "/bad"]
    #expect(try paths(bad)[0] == home.path + "/Documents/app/x")
  }

  @Test func directoriesAndFilesArePrivate() throws {
    let home = try TemporaryDirectory()
    try home.setMode(0o755)
    try home.asHome { () throws in
      for directory in [Folder.documents, .applicationSupport, .caches, .temporary] {
        try directory.save("x", as: "d/e/f")
        try directory.copy("d", to: "copy")
        try directory.create()
      }
    }
    let tree = try home.tree()
    #expect(tree.count > 20)
    for (name, what) in tree {
      let isRight = what.hasPrefix("directory 700") || what.hasPrefix("file 600")
      #expect(isRight, "\(name): \(what)")
    }
  }

  @Test(
    arguments: [
      (0o770, 0o770, 0o660), (0o755, 0o755, 0o644), (0o2775, 0o2775, 0o664), (0o700, 0o700, 0o600),
      // Like /tmp: a folder that all users can write to is not a shared one.
      (0o1777, 0o700, 0o600), (0o711, 0o711, 0o600),
    ] as [(mode_t, mode_t, mode_t)])
  func callersFolderPassesItsModeOn(_ mode: mode_t, _ directories: mode_t, _ files: mode_t)
    throws
  {
    let home = try TemporaryDirectory()
    try home.setMode(mode)
    try home.files.save("x", as: "d/e/f")
    try home.files.copy("d/e", to: "copy")
    try home.write([1], to: "incoming")
    try home.files.adopt(home.file("incoming"), as: "adopted")
    let tree = try home.tree()
    for (name, what) in tree {
      let expected =
        what.hasPrefix("directory")
        ? "directory \(String(directories, radix: 8))" : "file \(String(files, radix: 8))"
      #expect(what.hasPrefix(expected), "\(name): \(what)")
    }
    // A folder that is created is private, but inherits a setgid group.
    try Folder(home.file("new/own")).save("x", as: "d/f")
    let made = try home.tree()
    #expect(made["new/own/d/f"] == "file 600 x")
    #expect(made["new/own/d"] == (mode & 0o2000 == 0 ? "directory 700" : "directory 2700"))
  }

  @Test(arguments: ["writable by others", "writable by a group", "a link", "a file", "another's"])
  func refusesTemporaryDirectoryThatOthersCanChange(_ kind: String) throws {
    let home = try TemporaryDirectory()
    let name = "app-\(geteuid())"
    let target = kind == "a link" ? "elsewhere" : name
    if kind == "a file" {
      try home.write([1], to: name)
    } else {
      try home.makeDirectory(target + "/files")
      // Files that another user created there must not be used.
      try home.write(Array("forged".utf8), to: target + "/files/x")
    }
    switch kind {
    case "writable by others": try home.setMode(0o777, name)
    case "writable by a group": try home.setMode(0o770, name)
    case "a link":
      try home.setMode(0o700, target)
      try home.link(name, to: target)
    case "another's":
      try home.setMode(getuid() == 0 ? 0o700 : 0o777, name)
      if getuid() == 0 { try #require(chown(home.path + "/" + name, 65_534, 65_534) == 0) }
    default: break
    }
    let before = try home.tree()
    try home.asHome { () throws in
      let directory = Folder.temporary
      for (operation, body) in [
        ("save", { try directory.save("x", as: "x") }),
        ("load", { _ = try directory.load("x") as Data? }),
        ("create", { try directory.create() }), ("delete", { try directory.delete("x") }),
        ("list", { _ = try directory.list() }), ("clear", { try directory.clear() }),
        ("exists", { _ = try directory.exists("x") }),
        ("copy", { try directory.copy("x", to: "y") }),
      ] as [(String, () throws -> Void)] {
        let error = expectFailure(.accessDenied) { try body() }
        #expect(error?.operation == operation && error?.path == home.path + "/" + name)
        #expect(error?.remedy.contains("TMPDIR") == true)
      }
    }
    #expect(try home.tree() == before)
  }

  @Test func foldersOfATestAreInItsTemporaryDirectory() async throws {
    var paths: Set<String> = []
    try await StorageSystem.withTemporary {
      let scope = try #require(StorageScope.temporary).finder.directory(.data)
        .components(separatedBy: "/data/")[0]
      for directory in [Folder.documents, .applicationSupport, .caches, .temporary] {
        try directory.save("x", as: "d/x")
        paths.insert(try directory.url("d/x").path)
        #expect(try directory.create().path.hasPrefix(scope + "/"))
      }
      #expect(paths.count == 4)
      for path in paths {
        #expect(path.hasPrefix(scope + "/") && FileManager.default.fileExists(atPath: path))
      }
      try await Folder.caches.save(chunks: FolderNameTests.chunks([[1]]), as: "c")
      #expect(try Folder.caches.exists("c"))
      for directory in [Folder.documents, .applicationSupport, .caches, .temporary] {
        try directory.clear()
        #expect(try directory.list() == [])
      }
    }
    #expect(!paths.contains { FileManager.default.fileExists(atPath: $0) })
    // Outside the scope, a test run uses a directory that is removed at its end.
    #expect(try !Folder.documents.url().path.contains("/Documents/"))
    #expect(try Folder.documents.url().path.contains("/keepsake-\(getpid())-"))
  }
}

/// Reads lines by the same rules as the programs of xdg-user-dirs.
@Suite struct FolderUserDirectoriesTests {
  @Test(
    arguments: [
      (#"XDG_DOCUMENTS_DIR="$HOME/Documents""#, "/h/Documents"),
      (#"XDG_DOCUMENTS_DIR="/data/docs""#, "/data/docs"),
      (#"  XDG_DOCUMENTS_DIR  =   "$HOME/D""#, "/h/D"),
      ("\tXDG_DOCUMENTS_DIR\t=\t\"$HOME/D\"", "/h/D"),
      (#"XDG_DOCUMENTS_DIR="$HOME/D" # mine"#, "/h/D"),
      ("XDG_DOCUMENTS_DIR=\"$HOME/D\"\r\n", "/h/D"),
      (#"XDG_DOCUMENTS_DIR="$HOME/a b""#, "/h/a b"),
      (#"XDG_DOCUMENTS_DIR="$HOME/Docs\"1\"""#, "/h/Docs\"1\""),
      (#"XDG_DOCUMENTS_DIR="$HOME/a\\b""#, #"/h/a\b"#),
      (#"XDG_DOCUMENTS_DIR="$HOME/\$x\`""#, "/h/$x`"),
      (#"XDG_DOCUMENTS_DIR="$HOME/Übung""#, "/h/Übung"),
      ("XDG_DOCUMENTS_DIR=\"$HOME/a\u{2028}b\u{85}c\"", "/h/a\u{2028}b\u{85}c"),
      (#"XDG_DOCUMENTS_DIR="$HOME/D/""#, "/h/D"),
      (#"XDG_DOCUMENTS_DIR="$HOME/D///""#, "/h/D"),
      (#"XDG_DOCUMENTS_DIR="$HOME/""#, "/h"),
      (#"XDG_DOCUMENTS_DIR="$HOME""#, "/h"),
      (#"XDG_DOCUMENTS_DIR="/""#, "/"),
      ("XDG_DOCUMENTS_DIR=\"/a\"\nXDG_DOCUMENTS_DIR=\"/b\"", "/b"),
      ("XDG_DOCUMENTS_DIR=\"/a\"\nXDG_DOCUMENTS_DIR=\"b\"", "/a"),
      ("XDG_MUSIC_DIR=\"/m\"\n\n#x\nXDG_DOCUMENTS_DIR=\"/b\"\nXDG_DESKTOP_DIR=\"/d\"", "/b"),
      (#"#XDG_DOCUMENTS_DIR="$HOME/D""#, nil),
      (#"  # XDG_DOCUMENTS_DIR="$HOME/D""#, nil),
      (#"XDG_DOCUMENTS_DIR="Documents""#, nil),
      (#"XDG_DOCUMENTS_DIR="./D""#, nil),
      (#"XDG_DOCUMENTS_DIR="~/D""#, nil),
      (#"XDG_DOCUMENTS_DIR="$HOMEX/D""#, nil),
      (#"XDG_DOCUMENTS_DIR="${HOME}/D""#, nil),
      (#"XDG_DOCUMENTS_DIR="$USER/D""#, nil),
      (#"XDG_DOCUMENTS_DIR=$HOME/D"#, nil),
      (#"XDG_DOCUMENTS_DIR='$HOME/D'"#, nil),
      (#"XDG_DOCUMENTS_DIR="$HOME/D"#, nil),
      (#"XDG_DOCUMENTS_DIR="$HOME/D\""#, nil),
      (#"XDG_DOCUMENTS_DIR="$HOME/D\"#, nil),
      (#"XDG_DOCUMENTS_DIR=""#, nil), (#"XDG_DOCUMENTS_DIR="""#, nil), ("XDG_DOCUMENTS_DIR=", nil),
      ("XDG_DOCUMENTS_DIR", nil), (#"XDG_DOCUMENTS_DIR "/a""#, nil), ("", nil), ("\n\n", nil),
      (#"xdg_documents_dir="/a""#, nil), (#"XDG_DOCUMENTS_DIRX="/a""#, nil),
      (#"export XDG_DOCUMENTS_DIR="/a""#, nil), ("XDG_DOCUMENTS_DIR=\"/a\0b\"", nil),
    ] as [(String, String?)])
  func readsALineLikeXdgUserDirs(_ text: String, _ directory: String?) {
    let file = Array(text.utf8)
    #expect(XDGUserDirectories.directory("DOCUMENTS", in: file, home: "/h") == directory)
  }

  @Test func ignoresANameThatIsNotUTF8() {
    let line = Array("XDG_DOCUMENTS_DIR=\"/".utf8)
    let bad = line + [0xFC, 0x22, 10]
    #expect(XDGUserDirectories.directory("DOCUMENTS", in: bad, home: "/h") == nil)
    // Other lines are still read.
    let both = Array("# caf".utf8) + [0xE9, 10] + line + Array("d\"\n".utf8) + bad
    #expect(XDGUserDirectories.directory("DOCUMENTS", in: both, home: "/h") == "/d")
  }
}
