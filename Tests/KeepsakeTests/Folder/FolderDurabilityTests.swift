import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What is synced, and in which order, according to recorded system calls.
@Suite struct FolderDurabilityTests {
  private let home: TemporaryDirectory
  private static let durable: [Folder] = [.documents, .applicationSupport]
  private static let fleeting: [Folder] = [.caches, .temporary]

  init() throws { home = try TemporaryDirectory() }

  /// The calls that change or sync something, with paths relative to `root` and without temporary
  /// names.
  private func steps(_ body: () throws -> Void) throws -> [String] {
    let steps = Locked<[String]>([])
    let kinds: Set<SystemCall> = [
      .write, .fsync, .fdatasync, .rename, .unlink, .rmdir, .mkdir, .link,
    ]
    let root = home.path
    let plan = FaultPlan(decide: { event in
      guard kinds.contains(event.call) else { return .proceed }
      let path = event.path.split(separator: "\0").last.map(String.init) ?? ""
      var shown = path.replacingOccurrences(of: root, with: "~")
      if let range = shown.range(of: ".keepsake-[0-9a-f]+.tmp", options: .regularExpression) {
        shown.replaceSubrange(range, with: "TMP")
      }
      steps.withLock { $0.append("\(event.call) \(shown)") }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan, operation: body)
    return steps.withLock { $0 }
  }

  @Test func saveSyncsFileThenRenamesThenSyncsDirectory() throws {
    let directory = home.files
    try directory.save("old", as: "f")
    #expect(
      try steps { try directory.save("new", as: "f") }
        == ["write ~/TMP", "fdatasync ~/TMP", "rename ~/f", "fsync ~"])
    #expect(try steps { try directory.delete("f") } == ["unlink ~/f", "fsync ~"])
    // Another program may write without syncing.
    try home.write([1], to: "a")
    #expect(
      try steps { try directory.move("a", to: "b") }
        == ["fdatasync ~/a", "rename ~/b", "fsync ~", "fsync ~"])
  }

  @Test func namesOfNewDirectoriesAreSynced() throws {
    try home.asHome { () throws in
      let support = try steps { try Folder.applicationSupport.save("x", as: "d/f") }
      for path in [
        "~", "~/.local", "~/.local/share", "~/.local/share/app",
        "~/.local/share/app/files", "~/.local/share/app/files/d",
      ] {
        let made = support.firstIndex(of: "mkdir \(path)") ?? -1
        let synced = try #require(support.lastIndex(of: "fsync \(path)"), "\(path)")
        #expect(synced > made)
      }
      let documents = try steps { try Folder.documents.create() }
      #expect(documents.contains("fsync ~/Documents") && documents.contains("fsync ~"))
      // Only the first time.
      let again = try steps { try Folder.applicationSupport.save("x", as: "d/g") }
      #expect(again.filter { $0.hasPrefix("fsync") } == ["fsync ~/.local/share/app/files/d"])
    }
  }

  private static let operations: [(String, @Sendable (Folder, TemporaryDirectory) throws -> Void)] =
    [
      ("save", { directory, _ in try directory.save("new", as: "f") }),
      ("save new", { directory, _ in try directory.save("new", as: "n/e/w") }),
      ("copy", { directory, _ in try directory.copy("f", to: "g") }),
      ("copy link", { directory, _ in try directory.copy("d/link", to: "g") }),
      ("copy directory", { directory, _ in try directory.copy("d", to: "g") }),
      ("move", { directory, _ in try directory.move("f", to: "g") }),
      ("move directory", { directory, _ in try directory.move("d", to: "g") }),
      ("adopt", { directory, home in try directory.adopt(home.file("incoming"), as: "f") }),
      ("delete", { directory, _ in try directory.delete("d") }),
      ("clear", { directory, _ in try directory.clear() }),
      ("create", { directory, _ in try directory.subfolder("x/y").create() }),
    ]

  @Test(arguments: operations.indices)
  func onlyDurableFoldersWaitForTheDisk(which: Int) throws {
    let (name, body) = Self.operations[which]
    for (directories, isDurable) in [(Self.durable, true), (Self.fleeting, false)] {
      for directory in directories {
        try home.asHome { () throws in
          try directory.save("old", as: "f")
          try directory.save("x", as: "d/x")
          try FileManager.default.createSymbolicLink(
            atPath: directory.url("d/link").path, withDestinationPath: "x")
          try home.write([1], to: "incoming")
          let calls = try systemCalls { try body(directory, home) }
          let syncs = calls.filter { [.fsync, .fdatasync].contains($0) }
          #expect(syncs.isEmpty != isDurable, "\(name) in \(directory.base): \(calls)")
          if isDurable { #expect(calls.last == .fsync || name == "create", "\(name): \(calls)") }
          try directory.clear()
          try directory.delete("d")
        }
      }
    }
  }

  @Test func directoryCopyIsSyncedBeforeItsRename() throws {
    let directory = home.files
    for name in ["d/a", "d/e/b"] { try directory.save(name, as: name) }
    let steps = try steps { try directory.copy("d", to: "g") }
    let rename = try #require(steps.lastIndex(of: "rename ~/g"))
    for path in ["~/TMP", "~/TMP/e"] {
      let sync = try #require(steps.firstIndex(of: "fsync \(path)"), "\(path)")
      #expect(sync < rename)
    }
    #expect(steps.last == "fsync ~")
  }

  @Test func moveFromCachesToDocumentsSyncsTheDataFirst() throws {
    try home.asHome { () throws in
      try Folder.caches.save("x", as: "f")
      try Folder.caches.save("y", as: "d/e/g")
      try Folder.documents.create()
      let file = try steps { try Folder.caches.move("f", to: "f", in: .documents) }
      #expect(
        file == [
          "fdatasync ~/.cache/app/files/f", "rename ~/Documents/app/f", "fsync ~/Documents/app",
        ])
      let directory = try steps { try Folder.caches.move("d", to: "d", in: .documents) }
      let rename = try #require(directory.firstIndex(of: "rename ~/Documents/app/d"))
      for step in [
        "fdatasync ~/.cache/app/files/d/e/g", "fsync ~/.cache/app/files/d/e",
        "fsync ~/.cache/app/files/d",
      ] {
        #expect(try #require(directory.firstIndex(of: step), "\(step)") < rename)
      }
      try home.write([1], to: "incoming")
      let adopted = try steps { try Folder.documents.adopt(home.file("incoming"), as: "a") }
      #expect(
        adopted == [
          "fdatasync ~/incoming", "rename ~/Documents/app/TMP.taken", "rename ~/Documents/app/a",
          "fsync ~/Documents/app",
        ])
    }
  }

  /// It could not be synced, as it could not be copied.
  @Test func fileWhoseNameIsNotUTF8IsNotMovedFromCachesToDocuments() throws {
    try home.asHome { () throws in
      try Folder.caches.save("x", as: "d/x")
      let path = Array(try Folder.caches.url("d").path.utf8CString.dropLast())
      let file = open(path + [0x2F, CChar(bitPattern: 0xE9), 0], O_CREAT | O_WRONLY, 0o600)
      try #require(file >= 0)
      close(file)
      let error = expectFailure(.system(EILSEQ)) {
        try Folder.caches.move("d", to: "d", in: .documents)
      }
      #expect(error?.operation == "move" && error?.remedy == "Rename the file or delete it.")
      #expect(try Folder.caches.load("d/x") == "x" && !Folder.documents.exists("d"))
    }
  }

  @Test(.enabled(if: TwoFileSystems.areHere), arguments: [false, true])
  func namesOnTheWayToACopyAreSyncedBeforeTheOriginalIsRemoved(_ isAdopted: Bool) throws {
    let other = try TemporaryDirectory(isQuick: true)
    try home.asHome(["XDG_CACHE_HOME": other.path + "/new"]) { () throws in
      try home.files.save("x", as: "f")
      let steps = try steps {
        if isAdopted {
          try Folder.caches.adopt(home.file("f"), as: "d/f")
        } else {
          try home.files.move("f", to: "d/f", in: .caches)
        }
      }
      let removed = try #require(steps.firstIndex(of: "unlink ~/f"))
      for name in ["", "/new", "/new/app", "/new/app/files"] {
        let made = steps.firstIndex(of: "mkdir \(other.path)\(name)") ?? -1
        let synced = try #require(
          steps.firstIndex(of: "fsync \(other.path)\(name)"), "\(name)")
        #expect(made < synced && synced < removed)
      }
    }
  }

  @Test(.enabled(if: TwoFileSystems.areHere), arguments: ["f", "link", "d"])
  func copyOnAnotherFileSystemIsSyncedBeforeTheOriginalIsRemoved(_ name: String) throws {
    let other = try TemporaryDirectory(isQuick: true)
    try home.files.save("x", as: "f")
    try home.files.save("x", as: "d/x")
    try home.link("link", to: "f")
    let steps = try steps { try home.files.move(name, to: "new/moved", in: other.files) }
    let renamed = try #require(steps.lastIndex(of: "rename \(other.path)/new/moved"))
    let synced = try #require(steps[renamed...].firstIndex(of: "fsync \(other.path)/new"))
    let gone = try #require(
      steps.firstIndex { $0.hasPrefix("unlink ~") || $0.hasPrefix("rmdir ~") })
    #expect(synced < gone)
    if name != "link" {
      #expect(try #require(steps.firstIndex { $0.hasPrefix("fdatasync ") }) < renamed)
    }
    #expect(steps.last == "fsync ~")
  }
}
