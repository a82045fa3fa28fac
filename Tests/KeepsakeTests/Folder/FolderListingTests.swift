import Foundation
import Testing

@testable import Keepsake

@Suite struct FolderListingTests {
  private let home: TemporaryFolder
  private var folder: Folder { home.files }

  init() throws { home = try TemporaryFolder(isQuick: true) }

  @Test func namesAreSortedAndFoldersEndInASlash() throws {
    for name in ["b", "a/z", "a/c/y", "B", "10", "9", ".h", ".d/x", "a/.i"] {
      try folder.save(name, as: name)
    }
    try home.makeFolder("e")
    #expect(try folder.list() == ["10", "9", "B", "a/", "b", "e/"])
    #expect(try folder.list("a") == ["c/", "z"] && folder.list("a/") == ["c/", "z"])
    #expect(
      try folder.list(recursively: true)
        == ["10", "9", "B", "a/", "a/c/", "a/c/y", "a/z", "b", "e/"])
    #expect(try folder.list("a", recursively: true) == ["c/", "c/y", "z"])
    #expect(
      try folder.list(recursively: true, includingHidden: true)
        == [".d/", ".d/x", ".h", "10", "9", "B", "a/", "a/.i", "a/c/", "a/c/y", "a/z", "b", "e/"])
    #expect(
      try folder.list(includingHidden: true) == [".d/", ".h", "10", "9", "B", "a/", "b", "e/"])
    #expect(try folder.list("e") == [])
  }

  @Test func linksAreListedAsNamesAndNotEntered() throws {
    try folder.save("1234", as: "d/x")
    try home.link("d/loop", to: "..")
    try home.link("link", to: "d")
    try home.link("dangling", to: "nowhere")
    #expect(
      try folder.list(recursively: true) == ["d/", "d/loop", "d/x", "dangling", "link"])
    #expect(try folder.totalSize() == 4)
  }

  @Test func whatTheLibraryKeepsThereIsNotShown() throws {
    try home.write([1], to: ".keepsake-1.tmp")
    try home.makeFolder(".keepsake-2.tmp/d")
    #expect(try folder.list(recursively: true, includingHidden: true) == [])
    // By bytes, as the calls that refuse such a name see it.
    try home.write([1], to: ".keepsake-\u{301}")
    #expect(try folder.list(includingHidden: true) == [])
    expectFailure(.misuse) { _ = try folder.exists(".keepsake-\u{301}") }
  }

  @Test func totalSizeIsThatOfAllFiles() throws {
    #expect(try folder.totalSize() == 0)
    for (name, count) in [("a", 1), ("d/b", 20), ("d/e/c", 300), (".h", 4_000), ("d/.k/l", 50_000)]
    {
      try folder.save(Data(count: count), as: name)
    }
    #expect(try folder.totalSize() == 54_321 && folder.totalSize("d") == 50_320)
    #expect(try folder.totalSize("d/e/c") == 300 && folder.size("d/e/c") == 300)
    #expect(try folder.subfolder("d").totalSize() == 50_320)
    #expect(try folder.subfolder("none").totalSize() == 0)
  }

  private func makeRaw(_ name: [UInt8], _ contents: String) throws {
    let path = Array(home.path.utf8) + [0x2F] + name + [0]
    let descriptor = path.withUnsafeBytes {
      open($0.baseAddress!.assumingMemoryBound(to: CChar.self), O_CREAT | O_WRONLY, 0o600)
    }
    try #require(descriptor >= 0)
    defer { close(descriptor) }
    try #require(write(descriptor, contents, contents.utf8.count) == contents.utf8.count)
  }

  @Test func namesThatAreNoTextAreNotListedButCountedAndRemoved() throws {
    try folder.save("12", as: "d/x")
    try makeRaw([0xFF, 0x61], "345")
    try makeRaw(Array("d/".utf8) + [0xC3], "6789")
    #expect(try folder.list() == ["d/"] && folder.list("d") == ["x"])
    #expect(try folder.list(recursively: true, includingHidden: true) == ["d/", "d/x"])
    #expect(try folder.totalSize() == 9)
    // A copy without them would not be one.
    #expect(throws: StorageError.self) { try folder.copy("d", to: "copy") }
    #expect(try home.leftOvers() == [])
    try folder.clear()
    #expect(try FileSystem.list(home.path).isEmpty)
  }

  @Test func aFolderWhoseNameIsNoTextIsNotEnteredAndSaidSo() throws {
    let raw = Array(home.path.utf8) + [0x2F, 0xFF, 0]
    try #require(
      raw.withUnsafeBytes { mkdir($0.baseAddress!.assumingMemoryBound(to: CChar.self), 0o700) } == 0
    )
    try folder.save("12", as: "x")
    #expect(try folder.list() == ["x"] && folder.list(recursively: true) == ["x"])
    for (operation, body) in [
      ("totalSize", { _ = try folder.totalSize() }), ("clear", { try folder.clear() }),
    ] as [(String, () throws -> Void)] {
      let error = expectFailure(.system(EILSEQ)) { try body() }
      #expect(error?.operation == operation && error?.remedy.contains("Rename") == true)
    }
    #expect(try folder.exists("x"), "nothing was removed before it was found")
    try #require(
      raw.withUnsafeBytes { rmdir($0.baseAddress!.assumingMemoryBound(to: CChar.self)) } == 0)
  }

  @Test func twentyThousandFilesAreAllThere() throws {
    let count = 20_000
    for number in 0..<count {
      let way = home.path + "/f\(number % 7)"
      if number < 7 { try #require(mkdir(way, 0o700) == 0) }
      let descriptor = open(way + "/\(number)", O_CREAT | O_WRONLY, 0o600)
      try #require(descriptor >= 0 && write(descriptor, "abc", number % 4) == number % 4)
      close(descriptor)
    }
    let names = try folder.list(recursively: true)
    #expect(names.count == count + 7 && Set(names).count == names.count && names == names.sorted())
    #expect(try folder.totalSize() == (0..<count).reduce(0) { $0 + $1 % 4 })
    #expect(try folder.list("f0").count == (count + 6) / 7)
    try folder.clear()
    #expect(try folder.list() == [])
  }

  /// More folders than a process may have open.
  @Test func aDeepTreeIsMeasuredCopiedAndRemoved() throws {
    let deep = String(repeating: "d/", count: 1_500)
    try folder.save("1234", as: "a/" + deep + "f")
    #expect(try folder.totalSize() == 4)
    #expect(try folder.list(recursively: true).count == 1_502)
    try folder.move("a", to: "b")
    try folder.delete("b")
    #expect(try home.names().isEmpty)
  }

  @Test(arguments: [0, ENOSYS]) func aPathThatTheSystemDoesNotTakeIsAnErrorEitherWay(
    code: Int32
  ) throws {
    let plan = FaultPlan(decide: { $0.call == .openUnlinked && code != 0 ? .fail(code) : .proceed })
    let deep = String(repeating: "d/", count: 2_500) + "f"
    FaultPlan.$current.withValue(plan) {
      expectFailure(.system(ENAMETOOLONG)) { try folder.save(1, as: deep) }
      expectFailure(.system(ENAMETOOLONG)) { _ = try folder.exists(deep) }
      expectFailure(.system(ENAMETOOLONG)) { _ = try folder.load(deep) as Int? }
    }
    #expect(try home.names().isEmpty)
  }

  // MARK: What a look costs

  @Test func existsCostsOneCall() throws {
    try folder.save("x", as: "f")
    try folder.save("x", as: "a/b/c/f")
    for name in ["f", "none", "a/b/c/f", "a/b/c/none", "a/none/x", "none/x", "a", "f/x"] {
      #expect(try systemCalls { _ = try folder.exists(name) }.count == 1, "\(name)")
    }
    #expect(try systemCalls { _ = try folder.subfolder("a").exists("b") }.count == 1)
    #expect(try systemCalls { _ = try folder.size("f") } == [.stat])
    #expect(try systemCalls { _ = try folder.load("a/b/c/f") as Data }.first == .openUnlinked)
    #expect(try systemCalls { _ = try folder.url("f") } == [])
  }

  @Test func aPlaceIsFoundWithoutLookingTheUserUp() throws {
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
      for folder in [Folder.documents, .applicationSupport, .caches, .temporary] {
        try folder.save("x", as: "a/b/f")
        let paths = Locked<[String]>([])
        let plan = FaultPlan(decide: { event in
          paths.withLock { $0.append(event.path) }
          return .proceed
        })
        try FaultPlan.$current.withValue(plan) {
          _ = try folder.list(recursively: true)
          _ = try folder.list("a")
          #expect(try folder.totalSize() == 1)
          #expect(try folder.exists("a/b/f"))
        }
        #expect(paths.withLock { $0 }.allSatisfy { $0.hasPrefix(home.path) })
      }
      // The file that names the documents is read once.
      let calls = try systemCalls { _ = try Folder.documents.exists("a/b/f") }
      #expect(calls.count == 1)
      #expect(try systemCalls { _ = try Folder.applicationSupport.exists("a/f") }.count == 1)
    }
    #expect(asked.withLock { $0 } == 0)
  }
}
