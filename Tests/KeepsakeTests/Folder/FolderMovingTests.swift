import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Moving, copying and adopting never lose a file, whatever exists at the source and the target.
@Suite struct FolderMovingTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws {
    home = try TemporaryDirectory()
    try home.setMode(0o700)
  }

  @Test func movingOrCopyingOntoItselfDoesNothing() throws {
    try directory.save("a", as: "a")
    try directory.save("x", as: "d/x")
    let before = try home.tree()
    try directory.move("a", to: "a")
    try directory.copy("a", to: "a")
    try directory.move("d", to: "d")
    try directory.adopt(home.file("a"), as: "a")
    #expect(try home.tree() == before)
  }

  /// One file that is reached through two directories.
  @Test(arguments: ["alias", "x/../plain", "hard"])
  func movingBetweenNamesOfOneFileKeepsIt(_ way: String) throws {
    try home.makeDirectory("plain")
    try home.link("alias", to: "plain")
    try home.makeDirectory("x")
    let plain = Folder(home.file("plain"))
    let other = way == "hard" ? plain : Folder(URL(filePath: home.path + "/" + way))
    try plain.save("a", as: "a")
    try #require(link(home.path + "/plain/a", home.path + "/plain/second") == 0)
    let isOther = way == "hard"
    try other.move("a", to: isOther ? "second" : "a", in: plain)
    #expect(try plain.load("second") as String == "a")
    #expect(try plain.exists("a") == !isOther)
    // The same with a single link.
    try plain.save("b", as: "b")
    try other.move("b", to: "b", in: plain)
    #expect(try plain.load("b") as String == "b")
    try other.copy("b", to: "b", in: plain)
    #expect(try plain.load("b") as String == "b")
  }

  @Test func movingOntoAHardLinkRemovesTheOldName() throws {
    try directory.save("x", as: "a")
    try #require(link(home.path + "/a", home.path + "/b") == 0)
    try directory.move("a", to: "b")
    #expect(try home.tree() == ["b": "file 600 x"])
  }

  @Test func directoryReplacesOnlyAnEmptyDirectory() throws {
    try directory.save("x", as: "d/x")
    for name in ["empty1", "empty2", "full"] { try home.makeDirectory(name) }
    try directory.save("y", as: "full/y")
    try directory.save("f", as: "f")
    for target in ["full", "f"] {
      let before = try home.tree()
      for body in [
        { try directory.move("d", to: target) }, { try directory.copy("d", to: target) },
      ] as [() throws -> Void] {
        let error = #expect(throws: StorageError.self) { try body() }
        #expect(error?.path == home.path + "/" + target)
        #expect(try home.tree() == before)
      }
    }
    try directory.copy("d", to: "empty1")
    try directory.move("d", to: "empty2")
    #expect(
      try directory.load("empty1/x") as String == "x" && directory.load("empty2/x") as String == "x"
    )
    #expect(try !directory.exists("d"))
  }

  @Test func copyingADirectoryIntoItselfEnds() throws {
    try directory.save("x", as: "d/x")
    try directory.save("y", as: "d/e/y")
    try directory.copy("d", to: "d/e/copy")
    #expect(
      try directory.list("d", recursively: true) == [
        "e/", "e/copy/", "e/copy/e/", "e/copy/e/y", "e/copy/x", "e/y", "x",
      ])
    try directory.copy("", to: "all")
    #expect(
      try directory.list("all/d", recursively: true) == directory.list("d", recursively: true))
    #expect(try home.leftoverFiles() == [])
  }

  @Test func directoryCannotBeMovedIntoItselfOrOverItsParent() throws {
    try directory.save("x", as: "d/e/x")
    let before = try home.tree()
    for target in ["d/f", "d/e/f", "d/new/f"] {
      expectFailure(.misuse) { try directory.move("d", to: target) }
    }
    expectFailure(.misuse) { try directory.subfolder("d").move("", to: "x") }
    #expect(throws: StorageError.self) { try directory.move("d/e", to: "d") }
    #expect(try home.tree() == before)
    // A target whose name only starts with the same characters is valid.
    try directory.move("d", to: "d2/d")
    #expect(try directory.load("d2/d/e/x") as String == "x")
  }

  @Test func linksAreCopiedAndMovedAsLinks() throws {
    try directory.save("x", as: "d/x")
    try home.link("d/link", to: "/keepsake-nowhere")
    try home.link("d/nowhere", to: "../nowhere")
    try directory.copy("d", to: "copy")
    try directory.move("d", to: "moved")
    for name in ["copy", "moved"] {
      let tree = try home.tree()
      #expect(tree[name + "/link"] == "link /keepsake-nowhere", "\(name)")
      #expect(tree[name + "/nowhere"] == "link ../nowhere", "\(name)")
    }
    // A link replaces a file, too.
    for target in ["f", "g"] { try directory.save("f", as: target) }
    try directory.copy("moved/link", to: "f")
    try directory.move("moved/link", to: "g")
    let tree = try home.tree()
    #expect(tree["f"] == "link /keepsake-nowhere" && tree["g"] == "link /keepsake-nowhere")
    #expect(tree["moved/link"] == nil && tree["copy/link"] != nil)
    // A link replaces no link.
    expectFailure(.accessDenied) { try directory.copy("copy/link", to: "g") }
    expectFailure(.accessDenied) { try directory.move("copy/link", to: "g") }
    #expect(try home.leftoverFiles() == [])
  }

  @Test func copyGetsTheModesOfItsDirectory() throws {
    try directory.save("x", as: "d/x")
    try home.setMode(0o755, "d")
    try home.setMode(0o4777, "d/x")
    try directory.copy("d", to: "copy")
    #expect(try home.tree()["copy"] == "directory 700" && home.tree()["copy/x"] == "file 600 x")
    try directory.save("new", as: "copy/x")
    #expect(try directory.load("d/x") as String == "x")
  }

  @Test func fileThatIsRemovedDuringTheCopyOfItsDirectoryIsLeftOut() throws {
    for name in ["a", "b"] { try directory.save(name, as: "d/" + name) }
    try interrupt(before: .openNoSymlinks, at: "/d/b") {
      try directory.delete("d/b")
    } in: {
      try directory.copy("d", to: "copy")
    }
    #expect(try directory.list("copy") == ["a"])
    // If the whole directory is gone, the copy could lack anything.
    try interrupt(before: .openNoSymlinks, at: "/d/a") {
      try directory.move("d", to: "e")
    } in: {
      _ = expectFailure(.notFound) { try directory.copy("d", to: "new") }
    }
    #expect(try directory.list() == ["copy/", "e/"])
    #expect(try home.leftoverFiles() == [])
  }

  @Test func reservedFilesAreNotCopied() throws {
    try directory.save("x", as: "d/x")
    try home.write([1], to: "d/.keepsake-1.tmp")
    try directory.copy("d", to: "copy")
    #expect(try home.names().contains("copy"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: home.path + "/copy") == ["x"])
  }

  // MARK: Adopting

  @Test func adoptedFileGetsTheModeOfTheFolder() throws {
    for mode in [0o644, 0o4777, 0o400] as [mode_t] {
      try home.write(Array("x".utf8), to: "incoming")
      try home.setMode(mode, "incoming")
      let inode = try home.status("incoming")?.inode
      try directory.adopt(home.file("incoming"), as: "in/x")
      #expect(try home.tree() == ["in": "directory 700", "in/x": "file 600 x"])
      #expect(try home.status("in/x")?.inode == inode, "moved, and not copied")
    }
  }

  @Test(.enabled(if: TwoFileSystems.areHere)) func fileIsAdoptedFromAnotherFileSystem() throws {
    let two = try TwoFileSystems()
    try two.disk.setMode(0o700)
    try two.memory.write(Array("x".utf8), to: "incoming")
    try two.disk.files.adopt(two.memory.file("incoming"), as: "x")
    #expect(try two.disk.tree() == ["x": "file 600 x"])
    #expect(try two.memory.tree().isEmpty)
  }

  @Test func fileBeingAdoptedIsNotSwept() throws {
    try home.write([7], to: "incoming")
    try home.age("incoming", seconds: 7_200)
    let directory = home.files
    try directory.save("x", as: "x")
    let host = try DirectoryHandle(directory.url().path)
    // Another process sweeps the directory just before the file gets its name. The same happens if
    // this process is killed at that moment.
    try interrupt(before: .rename, at: "/film") {
      AbandonedFiles.sweep(host)
    } in: {
      try directory.adopt(home.file("incoming"), as: "film")
    }
    #expect(try directory.load("film") as Data == Data([7]))
  }

  @Test func fileWithHardLinksIsCopied() throws {
    try home.write(Array("x".utf8), to: "incoming")
    try #require(link(home.path + "/incoming", home.path + "/kept") == 0)
    try directory.adopt(home.file("incoming"), as: "x")
    try home.write(Array("changed".utf8), to: "kept")
    #expect(try directory.load("x") as String == "x" && !directory.exists("incoming"))
    // Even if it is already in the folder, under the target name.
    try #require(link(home.path + "/x", home.path + "/y") == 0)
    try directory.adopt(home.file("x"), as: "x")
    #expect(try directory.load("x") as String == "x" && directory.load("y") as String == "x")
  }

  @Test func fileIsAdoptedAsAnotherOfItsNames() throws {
    try home.write(Array("x".utf8), to: "incoming")
    try #require(link(home.path + "/incoming", home.path + "/x") == 0)
    try directory.adopt(home.file("incoming"), as: "x")
    #expect(try home.names() == ["x"] && home.text("x") == "x")
  }

  /// A new file in a folder that is shared by a group belongs to that group.
  @Test(.enabled(if: getuid() == 0, "giving a file to another group needs root"))
  func adoptedFileGetsTheGroupOfItsFolder() throws {
    let shared = try TemporaryDirectory()
    try #require(chown(shared.path, 0, 1_234) == 0)
    try shared.setMode(0o2770)
    for isAllowed in [true, false] {
      try home.write(Array("x".utf8), to: "incoming")
      let inode = try home.status("incoming")?.inode
      let plan = FaultPlan { $0.call == .chown && !isAllowed ? .fail(EPERM) : .proceed }
      try FaultPlan.$current.withValue(plan) {
        try shared.files.adopt(home.file("incoming"), as: "x")
      }
      let adopted = try #require(try shared.status("x"))
      #expect(adopted.group == 1_234 && adopted.mode == 0o660)
      #expect((adopted.inode == inode) == isAllowed, "copied if it may not be given to the group")
      #expect(try shared.tree() == ["x": "file 660 x"] && home.tree().isEmpty)
      try shared.files.delete("x")
    }
  }

  /// The file cannot get its final name, and another program has made one with its old name.
  @Test func fileThatIsMovedBackReplacesNothing() throws {
    try home.write(Array("x".utf8), to: "incoming")
    let home = home
    let plan = FaultPlan(decide: { event in
      guard event.call == .rename, event.path.hasSuffix("/d/x") else { return .proceed }
      try? home.write(Array("new".utf8), to: "incoming")
      return .fail(EIO)
    })
    let error = FaultPlan.$current.withValue(plan) {
      expectFailure(.alreadyExists) { try directory.adopt(home.file("incoming"), as: "d/x") }
    }
    let path = try #require(error?.path)
    #expect(path.hasPrefix(home.path + "/d/.keepsake-") && path.hasSuffix(".taken"))
    #expect(try Bytes.read(path) == Array("x".utf8) && home.text("incoming") == "new")
  }

  @Test(.enabled(if: getuid() == 0, "giving a file away needs root"))
  func anotherUsersFileIsCopied() throws {
    try home.write(Array("x".utf8), to: "incoming")
    try #require(chown(home.path + "/incoming", 65_534, 65_534) == 0)
    try directory.adopt(home.file("incoming"), as: "x")
    #expect(try home.tree() == ["x": "file 600 x"] && home.status("x")?.owner == geteuid())
  }

  @Test func fileThatChangesDuringAdoptionIsNotLost() throws {
    try home.write(Array("x".utf8), to: "incoming")
    try #require(link(home.path + "/incoming", home.path + "/kept") == 0)
    let home = home
    let plan = FaultPlan(decide: { event in
      if event.call == .rename { try? home.write(Array("changed".utf8), to: "incoming") }
      return .proceed
    })
    _ = try? FaultPlan.$current.withValue(plan) {
      try directory.adopt(home.file("incoming"), as: "x")
    }
    let found = try Set(home.tree().values)
    #expect(found.contains { $0.hasSuffix("changed") })
  }

  // MARK: Another file system

  @Test(.enabled(if: TwoFileSystems.areHere))
  func modesTimesAndLinksAreKeptOnAnotherFileSystem() throws {
    for isBack in [false, true] {
      let two = try TwoFileSystems()
      let (from, to) = isBack ? (two.memory, two.disk) : (two.disk, two.memory)
      try from.files.save("x", as: "d/x")
      try from.files.save("y", as: "d/e/y")
      try from.link("d/link", to: "e/y")
      try from.setMode(0o640, "d/x")
      try from.age("d/x", seconds: 100_000)
      let status = try #require(try from.status("d/x"))
      try from.files.move("d", to: "new/d", in: to.files)
      #expect(try from.tree().isEmpty)
      let tree = try to.tree()
      #expect(tree["new/d/x"] == "file 640 x" && tree["new/d/link"] == "link e/y")
      #expect(tree["new/d/e/y"]?.hasSuffix(" y") == true)
      let moved = try #require(try to.status("new/d/x"))
      #expect(moved.modified == status.modified)
      // Reading the file for the copy changes its access time.
      #expect(moved.accessed >= status.accessed)
      try to.files.move("new/d/link", to: "link", in: from.files)
      #expect(try from.tree() == ["link": "link e/y"])
    }
  }

  @Test(.enabled(if: TwoFileSystems.areHere))
  func hardLinksAreMovedToAnotherFileSystem() throws {
    let two = try TwoFileSystems()
    try two.disk.files.save("x", as: "d/a")
    for name in ["d/b", "d/e"] {
      try #require(link(two.disk.path + "/d/a", two.disk.path + "/" + name) == 0)
    }
    try two.disk.files.move("d", to: "d", in: two.memory.files)
    #expect(try two.disk.tree().isEmpty)
    for name in ["a", "b", "e"] { #expect(try two.memory.text("d/" + name) == "x") }
  }

  @Test(.enabled(if: TwoFileSystems.areHere && getuid() == 0))
  func setuidIsDroppedOnAnotherFileSystem() throws {
    let two = try TwoFileSystems()
    try two.disk.files.save("x", as: "x")
    try two.disk.setMode(0o6755, "x")
    try two.disk.files.move("x", to: "x", in: two.memory.files)
    #expect(try two.memory.tree() == ["x": "file 755 x"])
  }

  @Test(.enabled(if: TwoFileSystems.areHere), arguments: ["x", "d/x", "d/new"])
  func originalThatChangesDuringAMoveStays(_ name: String) throws {
    let two = try TwoFileSystems()
    try two.disk.files.save("old", as: "x")
    try two.disk.files.save("old", as: "d/x")
    let plan = FaultPlan(decide: { event in
      // When the copy gets its final name.
      if event.call == .rename, event.path.contains(".tmp\u{0}"),
        event.path.hasPrefix(two.memory.path)
      {
        try? two.disk.write(Array("changed".utf8), to: name)
      }
      return .proceed
    })
    let moved = name == "x" ? "x" : "d"
    let error = #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(plan) {
        try two.disk.files.move(moved, to: "moved", in: two.memory.files)
      }
    }
    #expect(error?.code == .system(EBUSY) && error?.operation == "move")
    #expect(
      error?.path?.hasPrefix(two.disk.path) == true && error?.remedy.contains("Compare") == true)
    #expect(try two.disk.text(name) == "changed")
    let copy = try two.memory.tree()
    #expect(copy[moved == "x" ? "moved" : "moved/x"]?.hasSuffix("old") == true)
  }

  @Test(.enabled(if: TwoFileSystems.areHere))
  func fileOrEmptyDirectoryOnAnotherFileSystemIsReplaced() throws {
    let two = try TwoFileSystems()
    try two.disk.files.save("new", as: "x")
    try two.disk.link("link", to: "x")
    try two.disk.files.save("new", as: "d/x")
    for name in ["x", "link"] { try two.memory.files.save("old", as: name) }
    try two.memory.makeDirectory("d")
    for name in ["x", "link", "d"] {
      try two.disk.files.move(name, to: name, in: two.memory.files)
    }
    #expect(try two.disk.tree().isEmpty)
    #expect(try two.memory.text("x") == "new" && two.memory.text("d/x") == "new")
    #expect(try two.memory.tree()["link"] == "link x")
    try two.disk.files.save("newer", as: "d/x")
    #expect(throws: StorageError.self) {
      try two.disk.files.move("d", to: "d", in: two.memory.files)
    }
    #expect(try two.disk.text("d/x") == "newer" && two.memory.text("d/x") == "new")
    #expect(try two.memory.leftoverFiles() == [])
  }
}
