import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct FolderListingTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws { home = try TemporaryDirectory(isQuick: true) }

  @Test func namesAreSortedAndDirectoriesEndInASlash() throws {
    for name in ["b", "a/z", "a/c/y", "B", "10", "9", ".h", ".d/x", "a/.i"] {
      try directory.save(name, as: name)
    }
    try home.makeDirectory("e")
    #expect(try directory.list() == ["10", "9", "B", "a/", "b", "e/"])
    #expect(try directory.list("a") == ["c/", "z"] && directory.list("a/") == ["c/", "z"])
    #expect(
      try directory.list(recursively: true)
        == ["10", "9", "B", "a/", "a/c/", "a/c/y", "a/z", "b", "e/"])
    #expect(try directory.list("a", recursively: true) == ["c/", "c/y", "z"])
    #expect(
      try directory.list(recursively: true, includingHidden: true)
        == [".d/", ".d/x", ".h", "10", "9", "B", "a/", "a/.i", "a/c/", "a/c/y", "a/z", "b", "e/"])
    #expect(
      try directory.list(includingHidden: true) == [".d/", ".h", "10", "9", "B", "a/", "b", "e/"])
    #expect(try directory.list("e") == [])
  }

  @Test func linksAreListedAndNotFollowed() throws {
    try directory.save("1234", as: "d/x")
    try home.link("d/loop", to: "..")
    try home.link("link", to: "d")
    try home.link("dangling", to: "nowhere")
    #expect(
      try directory.list(recursively: true) == ["d/", "d/loop", "d/x", "dangling", "link"])
    #expect(try directory.totalSize() == 4)
  }

  @Test func reservedNamesAreNotListed() throws {
    try home.write([1], to: ".keepsake-1.tmp")
    try home.makeDirectory(".keepsake-2.tmp/d")
    #expect(try directory.list(recursively: true, includingHidden: true) == [])
    // Compared by bytes, like the calls that refuse such a name.
    try home.write([1], to: ".keepsake-\u{301}")
    #expect(try directory.list(includingHidden: true) == [])
    expectFailure(.misuse) { _ = try directory.exists(".keepsake-\u{301}") }
  }

  @Test func totalSizeCountsAllFiles() throws {
    #expect(try directory.totalSize() == 0)
    for (name, count) in [("a", 1), ("d/b", 20), ("d/e/c", 300), (".h", 4_000), ("d/.k/l", 50_000)]
    {
      try directory.save(Data(count: count), as: name)
    }
    #expect(try directory.totalSize() == 54_321 && directory.totalSize("d") == 50_320)
    #expect(try directory.totalSize("d/e/c") == 300 && directory.size("d/e/c") == 300)
    #expect(try directory.subfolder("d").totalSize() == 50_320)
    #expect(try directory.subfolder("none").totalSize() == 0)
  }

  /// Calls `body` with the path of a name that is not UTF-8.
  private func withRaw(_ name: [UInt8], _ body: (UnsafePointer<CChar>) -> Int32) throws {
    let path = (Array(home.path.utf8) + [0x2F] + name).map { CChar(bitPattern: $0) } + [0]
    try #require(body(path) == 0)
  }

  private func makeRaw(_ name: [UInt8], size: Int) throws {
    try withRaw(name) { mknod($0, S_IFREG | 0o600, 0) }
    try withRaw(name) { truncate($0, size) }
  }

  @Test func invalidNamesAreCountedAndRemovedButNotListed() throws {
    try directory.save("12", as: "d/x")
    try makeRaw([0xFF, 0x61], size: 3)
    try makeRaw(Array("d/".utf8) + [0xC3], size: 4)
    #expect(try directory.list() == ["d/"] && directory.list("d") == ["x"])
    #expect(try directory.list(recursively: true, includingHidden: true) == ["d/", "d/x"])
    #expect(try directory.totalSize() == 9)
    // A copy without them would be incomplete.
    #expect(throws: StorageError.self) { try directory.copy("d", to: "copy") }
    #expect(try home.leftoverFiles() == [])
    try directory.clear()
    #expect(try FileSystem.list(home.path).isEmpty)
  }

  @Test func directoryWithInvalidNameIsAnError() throws {
    try withRaw([0xFF]) { mkdir($0, 0o700) }
    try directory.save("12", as: "x")
    #expect(try directory.list() == ["x"] && directory.list(recursively: true) == ["x"])
    for (operation, body) in [
      ("totalSize", { _ = try directory.totalSize() }), ("clear", { try directory.clear() }),
    ] as [(String, () throws -> Void)] {
      let error = expectFailure(.system(EILSEQ)) { try body() }
      #expect(error?.operation == operation && error?.remedy.contains("Rename") == true)
    }
    #expect(try directory.exists("x"), "nothing was removed before it was found")
    try withRaw([0xFF]) { rmdir($0) }
  }

  @Test func listsTwentyThousandFiles() throws {
    let count = 20_000
    for number in 0..<count {
      let way = home.path + "/f\(number % 7)"
      if number < 7 { try #require(mkdir(way, 0o700) == 0) }
      let descriptor = open(way + "/\(number)", O_CREAT | O_WRONLY, 0o600)
      try #require(descriptor >= 0 && write(descriptor, "abc", number % 4) == number % 4)
      close(descriptor)
    }
    let names = try directory.list(recursively: true)
    #expect(names.count == count + 7 && Set(names).count == names.count && names == names.sorted())
    #expect(try directory.totalSize() == (0..<count).reduce(0) { $0 + $1 % 4 })
    #expect(try directory.list("f0").count == (count + 6) / 7)
    try directory.clear()
    #expect(try directory.list() == [])
  }

  /// More directories than a process may have open.
  @Test func deepTreeIsMeasuredCopiedAndRemoved() throws {
    let deep = String(repeating: "d/", count: 1_500)
    try directory.save("1234", as: "a/" + deep + "f")
    #expect(try directory.totalSize() == 4)
    #expect(try directory.list(recursively: true).count == 1_502)
    try directory.move("a", to: "b")
    try directory.delete("b")
    #expect(try home.names().isEmpty)
  }

  @Test(arguments: [0, ENOSYS]) func tooLongPathIsAnErrorWithAndWithoutOpenat2(
    code: Int32
  ) throws {
    let plan = FaultPlan(decide: {
      $0.call == .openNoSymlinks && code != 0 ? .fail(code) : .proceed
    })
    let deep = String(repeating: "d/", count: 2_500) + "f"
    FaultPlan.$current.withValue(plan) {
      expectFailure(.system(ENAMETOOLONG)) { try directory.save(1, as: deep) }
      expectFailure(.system(ENAMETOOLONG)) { _ = try directory.exists(deep) }
      expectFailure(.system(ENAMETOOLONG)) { _ = try directory.load(deep) as Int? }
    }
    #expect(try home.names().isEmpty)
  }

  // MARK: System calls of a lookup

  @Test func existsMakesOneSystemCall() throws {
    try directory.save("x", as: "f")
    try directory.save("x", as: "a/b/c/f")
    for name in ["f", "none", "a/b/c/f", "a/b/c/none", "a/none/x", "none/x", "a", "f/x"] {
      #expect(try systemCalls { _ = try directory.exists(name) }.count == 1, "\(name)")
    }
    #expect(try systemCalls { _ = try directory.subfolder("a").exists("b") }.count == 1)
    #expect(try systemCalls { _ = try directory.size("f") } == [.stat])
    #expect(try systemCalls { _ = try directory.load("a/b/c/f") as Data }.first == .openNoSymlinks)
    #expect(try systemCalls { _ = try directory.url("f") } == [])
  }

  @Test func folderIsFoundWithoutTheUserDatabase() throws {
    let asked = Locked(0)
    let home = home
    let environment = ["HOME": home.path, "TMPDIR": home.path]
    let finder = DirectoryFinder(
      app: "app", environment: { environment[$0] },
      registeredHome: {
        asked.withLock { $0 += 1 }
        return home.path
      })
    try inScope(finder) { () throws in
      for directory in [Folder.documents, .applicationSupport, .caches, .temporary] {
        try directory.save("x", as: "a/b/f")
        let paths = Locked<[String]>([])
        let plan = FaultPlan(decide: { event in
          paths.withLock { $0.append(event.path) }
          return .proceed
        })
        try FaultPlan.$current.withValue(plan) {
          _ = try directory.list(recursively: true)
          _ = try directory.list("a")
          #expect(try directory.totalSize() == 1)
          #expect(try directory.exists("a/b/f"))
        }
        #expect(paths.withLock { $0 }.allSatisfy { $0.hasPrefix(home.path) })
      }
      // user-dirs.dirs is read only once.
      let calls = try systemCalls { _ = try Folder.documents.exists("a/b/f") }
      #expect(calls.count == 1)
      #expect(try systemCalls { _ = try Folder.applicationSupport.exists("a/f") }.count == 1)
    }
    #expect(asked.withLock { $0 } == 0)
  }
}
