import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What clearing a folder removes, and what it keeps.
@Suite struct FolderClearingTests {
  private let home: TemporaryDirectory

  init() throws {
    home = try TemporaryDirectory()
    try home.setMode(0o700)
  }

  private func fill() throws {
    try Defaults.shared.set(1, forKey: "k")
    try SecureVault.shared.set("s", forKey: "k")
    try DiskCache.shared.set(Data([1]), forKey: "k")
    for directory in [Folder.documents, .applicationSupport, .caches, .temporary] {
      try directory.save("f", as: "d/f")
    }
    try home.makeDirectory("Documents/other")
    try home.write([1], to: "Documents/mine.txt")
  }

  private func expectStoresIntact(sourceLocation: SourceLocation = #_sourceLocation) throws {
    // Read from the disk, not from memory.
    try home.asHome { () throws in
      #expect(try Defaults.shared.int("k") == 1, sourceLocation: sourceLocation)
      #expect(try SecureVault.shared.get("k") == "s", sourceLocation: sourceLocation)
      #expect(try DiskCache.shared.get("k") == Data([1]), sourceLocation: sourceLocation)
    }
    #expect(try home.bytes(of: "Documents/mine.txt") == [1], sourceLocation: sourceLocation)
  }

  @Test(arguments: ["Pictures", "Documents", "Downloads", "Bilder", "Documents/app", ""])
  func refusesDirectoriesOfTheUserUnderAnyPath(_ name: String) throws {
    try FileSystem.createDirectory(home.path + "/.config")
    try home.write(Array("XDG_PICTURES_DIR=\"$HOME/Bilder\"".utf8), to: ".config/user-dirs.dirs")
    try FileSystem.createDirectory(home.path + "/" + (name.isEmpty ? "x" : name))
    let directory = Folder(name.isEmpty ? home.url : home.file(name))
    try home.asHome { () throws in
      try directory.save("mine", as: "mine.txt")
      expectFailure(.misuse) { try directory.clear() }
      #expect(try directory.load("mine.txt") as String == "mine")
    }
  }

  @Test func clearsOnlyItsOwnFiles() throws {
    let places: [Folder] = [.documents, .applicationSupport, .caches, .temporary]
    for place in places {
      try home.asHome { () throws in
        try fill()
        try place.save("h", as: ".hidden/.h")
        try place.clear()
        #expect(try place.list(recursively: true, includingHidden: true) == [])
        for other in places where other != place {
          #expect(try other.load("d/f") as String == "f")
        }
        // It can be cleared again.
        try place.save("f", as: "d/f")
        try place.subfolder("d").clear()
        #expect(try place.list(recursively: true) == ["d/"])
        try place.clear()
      }
      try expectStoresIntact()
    }
  }

  @Test func refusesDirectoriesThatContainOrBelongToAStoreOrAreTheHome() throws {
    try home.asHome { () throws in
      try fill()
      try home.link("linked", to: ".config")
      let before = try home.tree()
      // The directories for the secrets of a service, and for the entries of a cache.
      let inside = before.filter {
        $0.value.hasPrefix("directory")
          && ($0.key.hasPrefix(".local/share/app/vault/")
            || $0.key.hasPrefix(".cache/app/caches/standard/"))
      }
      try #require(inside.count >= 2)
      let names = [
        ".config/app", ".config", "", ".local/share/app", ".local/share/app/vault",
        ".local/state/app", ".cache/app", ".cache/app/caches", ".cache/app/caches/standard",
        ".cache", "Documents", "linked", "linked/app", "Documents/../.config/app", ".local/share",
      ]
      for name in names + inside.keys {
        for directory in [Folder(home.file(name)), Folder(home.file(name)).subfolder("")] {
          let error = expectFailure(.misuse) { try directory.clear() }
          #expect(error?.operation == "clear" && error?.remedy.isEmpty == false, "\(name)")
          #expect(error?.path?.hasPrefix(home.path) == true, "\(name)")
        }
      }
      #expect(try home.tree() == before)
    }
    try expectStoresIntact()
  }

  @Test func refusesDirectoriesOfEmptyStores() throws {
    try home.asHome { () throws in
      for name in [".config/app", ".config", ".local/share", ".cache/app", "Documents"] {
        try home.makeDirectory(name)
        expectFailure(.misuse) { try Folder(home.file(name)).clear() }
      }
      // A path that only starts with the same characters is not inside it.
      try home.makeDirectory(".config/app2/x")
      try Folder(home.file(".config/app2")).clear()
      #expect(try home.tree()[".config/app2/x"] == nil)
    }
  }

  @Test(arguments: ["suite", "cache", "vault"])
  func refusesSharedDirectoryWithAStoreAtAnyDepth(_ kind: String) throws {
    try home.makeDirectory("all/shared/deep")
    let url = home.file("all/shared/deep")
    try home.asHome(["HOME": home.path + "/elsewhere"]) { () throws in
      switch kind {
      case "suite": try Defaults.suite(Defaults.Suite("team", in: url)).set(1, forKey: "k")
      case "cache": try DiskCache.named(DiskCache.Name("x", in: url)).set("v", forKey: "k")
      default: try SecureVault.service(SecureVault.Service("x", in: url)).set("s", forKey: "k")
      }
      let before = try home.tree()
      for name in ["all", "all/shared", "all/shared/deep"] {
        expectFailure(.misuse) { try Folder(home.file(name)).clear() }
        expectFailure(.misuse) { try home.files.subfolder(name).clear() }
      }
      #expect(try home.tree() == before)
    }
  }

  @Test func refusesDocumentsDirectoryOlderThanTheApp() throws {
    try home.makeDirectory("Documents/app")
    try home.write([1], to: "Documents/app/mine")
    try home.asHome { () throws in
      try Folder.documents.save("x", as: "d/x")
      expectFailure(.misuse) { try Folder.documents.clear() }
      expectFailure(.misuse) { try Folder.documents.subfolder("d").clear() }
      #expect(try Folder.documents.list() == ["d/", "mine"])
      try Folder.documents.delete("d")
    }
    #expect(try home.bytes(of: "Documents/app/mine") == [1])
  }

  @Test func documentsCanBeClearedAlthoughTheFirstCallFailed() throws {
    try home.asHome { () throws in
      let plan = FaultPlan { $0.path.hasSuffix("/.keepsake-own") ? .fail(ENOSPC) : .proceed }
      FaultPlan.$current.withValue(plan) {
        _ = expectFailure(.diskFull) { try Folder.documents.save("x", as: "x") }
      }
      try Folder.documents.save("x", as: "x")
      try Folder.documents.clear()
      #expect(try Folder.documents.list() == [])
    }
  }

  @Test func clearingRemovesLinksWithoutFollowingThem() throws {
    let outside = try TemporaryDirectory()
    try outside.write([1], to: "f")
    try home.makeDirectory("d/e")
    for name in ["link", "d/link", "d/e/link"] { try home.link(name, to: outside.path) }
    try home.link("d/file", to: outside.path + "/f")
    try home.link("d/loop", to: "..")
    try home.files.clear()
    #expect(try home.tree().isEmpty && outside.bytes(of: "f") == [1])
    try home.makeDirectory("d/e")
    try home.link("d/e/link", to: outside.path)
    try home.files.delete("d")
    #expect(try home.tree().isEmpty && outside.bytes(of: "f") == [1])
    // The path of the folder itself may contain a link.
    try outside.link("way", to: home.path)
    try home.files.save("x", as: "x")
    try Folder(outside.file("way")).clear()
    #expect(try home.tree().isEmpty && outside.names() == ["f", "way"])
  }

  @Test func filesBeingSavedOrCopiedStay() async throws {
    let directory = home.files
    try directory.save("x", as: "d/x")
    try directory.save("y", as: "d/y")
    // Just before the copy gets its final name.
    try interrupt(before: .rename, at: "/copy") {
      try directory.clear()
    } in: {
      try directory.copy("d", to: "e/copy")
    }
    #expect(try directory.list(recursively: true) == ["e/", "e/copy/", "e/copy/x", "e/copy/y"])
    let (stream, continuation) = AsyncStream<[UInt8]>.makeStream()
    continuation.yield([1])
    let started = Locked(false)
    let task = Task {
      try await directory.save(chunks: stream, as: "g/f") { _, _ in started.withLock { $0 = true } }
    }
    try await eventually("the first chunk is written") { started.withLock { $0 } }
    try directory.clear()
    continuation.yield([2])
    continuation.finish()
    try await task.value
    #expect(try home.bytes(of: "g/f") == [1, 2])
  }

  @Test func filesOfKilledWritersAreRemoved() throws {
    try home.makeDirectory("d/.keepsake-2.tmp/e")
    for name in [".keepsake-1.tmp", "d/.keepsake-1.tmp", "d/.keepsake-2.tmp/f"] {
      try home.write([1], to: name)
    }
    for name in [".keepsake-1.tmp", "d/.keepsake-1.tmp", "d/.keepsake-2.tmp"] {
      try home.age(name, seconds: 4_000)
    }
    try home.files.clear()
    #expect(try home.tree().isEmpty)
  }

  @Test func clearsIfTheHomeIsNotADirectory() throws {
    for path in ["/dev/null", "/nonexistent"] {
      try home.asHome(["HOME": path, "STATE_DIRECTORY": home.path + "/state"]) { () throws in
        try Folder.applicationSupport.save(1, as: "x")
        try Folder.applicationSupport.clear()
        #expect(try Folder.applicationSupport.list() == [])
      }
    }
  }

  @Test(.enabled(if: getuid() == 0, "mounting needs root"))
  func mountedFileSystemStays() throws {
    try home.files.save("x", as: "a/x")
    try home.makeDirectory("b/mounted")
    guard mount("tmpfs", home.path + "/b/mounted", "tmpfs", 0, "size=64k") == 0 else { return }
    defer { umount(home.path + "/b/mounted") }
    try home.write([1], to: "b/mounted/f")
    try home.files.save("y", as: "z/y")
    let before = try home.tree()
    for body in [{ try home.files.clear() }, { try home.files.delete("b") }] as [() throws -> Void]
    {
      let error = expectFailure(.misuse) { try body() }
      #expect(error?.path == home.path + "/b/mounted" && error?.remedy.contains("nmount") == true)
      #expect(try home.tree() == before)
    }
  }
}
