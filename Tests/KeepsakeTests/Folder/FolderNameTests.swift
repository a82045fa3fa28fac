import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// No path reaches anything outside the folder, in any call.
///
/// Each call is made twice: beside a tree outside the folder, and without that tree. The call must
/// not change the tree, and its results and errors must be the same in both cases.
///
/// These calls delete and overwrite files, and they also run against a library that was broken on
/// purpose. So no path and no link in this file may lead to anything but that tree, even if it is
/// followed: not to `/`, not to `/etc`, not to a home directory. `ARENA` stands for the directory
/// of the test.
@Suite(.proofThread, .singleThreaded) struct FolderNameTests {
  private static let secret = "SENTINEL"

  /// A folder with links in all directions, and a tree beside it.
  private struct Arena {
    let home: TemporaryDirectory
    let directory: Folder

    init(hasOutside: Bool) throws {
      home = try TemporaryDirectory(isQuick: true)
      try home.setMode(0o700)
      directory = Folder(home.file("inside"))
      for name in ["inside/dir", "other"] { try make(name) }
      try write("inside", to: "inside/f")
      try write("inside", to: "inside/dir/x")
      try write("incoming", to: "incoming")
      for (name, target) in [
        ("file", "../outside/secret"), ("link", "../outside"), ("up", ".."), ("self", "."),
        ("absolute", home.path + "/outside"), ("absoluteFile", home.path + "/outside/secret"),
        ("chain1", "chain2"), ("chain2", "link"), ("dangling", "../outside/new"),
        ("loop", "loop"), ("loopA", "loopB"), ("loopB", "loopA"), ("inner", "dir"),
        ("dir/link", "../../outside"), ("dir/file", "../../outside/secret"),
        ("empty", "../outside/empty"),
      ] { try home.link("inside/" + name, to: target) }
      guard hasOutside else { return }
      for name in ["outside/sub", "outside/empty", "outside/\u{301}x"] { try make(name) }
      for name in ["secret", "sub/secret", "f", "x", "\u{301}x/f", "\u{301}f"] {
        try write(FolderNameTests.secret, to: "outside/" + name)
      }
    }

    private func make(_ name: String) throws {
      try FileSystem.createDirectory(home.path + "/" + name, durable: false)
    }

    private func write(_ text: String, to name: String) throws {
      try FileSystem.replace(
        home.path + "/" + name, with: Array(text.utf8), mode: 0o600, durable: false)
    }

    /// Replaces the name of this arena in the result of a call.
    func anonymous(_ text: String) -> String {
      // By bytes: a combining mark may follow the path.
      String(decoding: Data(text.utf8).replacing(home.path, with: "HOME"), as: UTF8.self)
    }

    /// The contents of the folder and its surroundings, and of the tree beside it.
    func trees() throws -> (own: [String: String], outside: [String: String]) {
      let tree = try home.tree().mapValues { anonymous($0) }
      func isOutside(_ name: String) -> Bool { name.utf8.starts(with: "outside".utf8) }
      return (tree.filter { !isOutside($0.key) }, tree.filter { isOutside($0.key) })
    }
  }

  private static let untouched = (try? Arena(hasOutside: true).trees().outside) ?? [:]

  private static let names: [String] = {
    let climbs = [
      "..", "../", "../outside", "../outside/secret", "a/../../outside/secret", "./../outside",
      "dir/..", "dir/../..", "dir/../../outside/secret", "dir/../f", "dir/.", "./..", "./f", ".",
      "./", "dir/./x", "ARENA", "ARENA/outside", "ARENA/outside/secret", "/ARENA/outside/secret",
      "ARENA/outside/new", "dir/ARENA/outside/secret", "", " ",
      "a//b", "dir//x", "dir/", "dir//", "f/", "f/.", "f/..", "f/../../outside/secret", "f/x",
    ]
    let links = [
      "file", "file/", "file/x", "link", "link/", "link/secret", "link/new", "link/sub",
      "link/sub/secret", "link/sub/new/deep", "link/.", "link/..", "link/../outside/secret",
      "link//secret", "up", "up/outside/secret", "up/outside", "self", "self/f",
      "self/up/outside/secret", "self/self/link/secret", "absolute", "absolute/secret",
      "absolute/new", "absoluteFile", "chain1", "chain1/secret", "chain2/sub/secret", "dangling",
      "dangling/x", "loop", "loop/x", "loopA", "loopA/x", "inner", "inner/x", "inner/new",
      "inner/link/secret", "dir/link", "dir/link/", "dir/link/secret", "dir/link/new/x",
      "dir/file", "empty", "empty/x",
    ]
    let characters = [
      "..\u{301}", "..\u{301}/x", "..\u{301}/../outside/secret", "link/\u{301}x", "link/\u{301}x/f",
      "link/\u{301}f", "/\u{301}x", "/\u{301}x/f", "dir/\u{301}/../../outside/secret", ".\u{301}.",
      "link\u{301}/f", "..\u{200D}", "\u{200D}../x", "link/\u{200D}", "..\u{600}/",
      "f\u{600}/", "dir\u{600}/", "link/\u{600}", "link\u{600}/", "\u{600}/link/secret",
      "\u{FF0E}\u{FF0E}/outside/secret", "\u{FF0E}\u{FF0E}\u{FF0F}outside", "\u{2025}/secret",
      "\u{2024}\u{2024}/secret", "..\u{2215}outside", "..\u{2044}outside", "\u{FEFF}..",
      "\u{202E}..", "%2e%2e%2foutside%2fsecret", "%2e%2e/outside/secret", "..%2foutside",
      "%2e", "..%00/x", "link%2Fsecret", "..\\outside\\secret", "\\..\\outside", "link\\secret",
      "~keepsake-nobody", "~keepsake-nobody/x", "$KEEPSAKE_NOTHING/x", "${KEEPSAKE_NOTHING}x",
      "`echo x`", "-rf",
      "file://ARENA/outside/secret", "file://outside", "file:../outside/secret", "...", "....",
      "..../f",
      ".. ", " ..", ".. /x", "..\t/outside/secret", "..\n/outside/secret", "..\n", "\n", "a\nb",
      "\r\n", "\r\n/x", "\u{85}", "\u{2028}", "\u{1}", "\u{7F}",
    ]
    let zeros = [
      "\0", "f\0", "\0f", "f\0/../../outside/secret", "..\0", "../outside/secret\0.json",
      "link\0/secret", "dir/\0", "link/secret\0",
    ]
    let lengths = [
      String(repeating: "n", count: 255), String(repeating: "n", count: 256),
      String(repeating: "ü", count: 128), String(repeating: "n", count: 5_000),
      String(repeating: "d/", count: 2_500),
      String(repeating: "../", count: 1_700) + "ARENA/outside/secret",
      String(repeating: "../", count: 20) + "ARENA/outside/secret",
      String(repeating: "self/", count: 60) + "link/secret",
      "link/" + String(repeating: "n", count: 5_000),
      "dir/" + String(repeating: "n", count: 256) + "/../../outside/secret",
    ]
    let reserved = [
      ".keepsake-x.tmp", "dir/.keepsake-x.tmp", ".keepsake-", ".keepsake-own", ".keepsake-x/f",
      ".keepsake-\u{301}", ".keepsake-own/", ".KEEPSAKE-x", ".keepsakeX",
    ]
    return climbs + links + characters + zeros + lengths + reserved
  }()

  private typealias Call = (
    name: String, body: @Sendable (Folder, String, TemporaryDirectory) async throws -> Any
  )

  private static let calls: [Call] = [
    (
      "save",
      { directory, name, _ in
        try directory.save("new", as: name)
        return try directory.load(name) as String
      }
    ),
    ("load", { directory, name, _ in try directory.load(name) as String }),
    ("load optional", { directory, name, _ in try directory.load(name) as Data? as Any }),
    ("delete", { directory, name, _ in try directory.delete(name) }),
    ("exists", { directory, name, _ in try directory.exists(name) }),
    (
      "url",
      { directory, name, home in
        let path = try directory.url(name).path
        let way = path.utf8.dropFirst((home.path + "/inside").utf8.count)
        #expect(path.utf8.starts(with: (home.path + "/inside").utf8))
        #expect(way.first == nil || way.first == UInt8(ascii: "/"))
        #expect(!way.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual("..".utf8) })
        return path
      }
    ),
    ("list", { directory, name, _ in try directory.list(name, includingHidden: true) }),
    ("list recursively", { directory, name, _ in try directory.list(name, recursively: true) }),
    ("size", { directory, name, _ in try directory.size(name) }),
    ("totalSize", { directory, name, _ in try directory.totalSize(name) }),
    ("copy from", { directory, name, _ in try directory.copy(name, to: "copied") }),
    ("copy to", { directory, name, _ in try directory.copy("f", to: name) }),
    ("copy directory to", { directory, name, _ in try directory.copy("dir", to: name) }),
    (
      "copy elsewhere",
      { directory, name, home in
        try directory.copy(name, to: "copied", in: Folder(home.file("other")))
      }
    ),
    (
      "copy from elsewhere",
      { directory, name, home in
        let other = Folder(home.file("other"))
        try other.save("other", as: "o")
        return try other.copy("o", to: name, in: directory)
      }
    ),
    ("move from", { directory, name, _ in try directory.move(name, to: "moved") }),
    ("move to", { directory, name, _ in try directory.move("f", to: name) }),
    ("move directory to", { directory, name, _ in try directory.move("dir", to: name) }),
    (
      "move elsewhere",
      { directory, name, home in
        try directory.move(name, to: name, in: Folder(home.file("other")))
      }
    ),
    ("adopt", { directory, name, home in try directory.adopt(home.file("incoming"), as: name) }),
    (
      "save chunks",
      { directory, name, _ in try await directory.save(chunks: chunks([[1, 2], [3]]), as: name) }
    ),
    (
      "subfolder save",
      { directory, name, _ in try directory.subfolder(name).save("new", as: "secret") }
    ),
    (
      "subfolder load",
      { directory, name, _ in try directory.subfolder(name).load("secret") as String }
    ),
    ("subfolder exists", { directory, name, _ in try directory.subfolder(name).exists("secret") }),
    (
      "subfolder list",
      { directory, name, _ in try directory.subfolder(name).list(recursively: true) }
    ),
    ("subfolder size", { directory, name, _ in try directory.subfolder(name).totalSize() }),
    ("subfolder delete", { directory, name, _ in try directory.subfolder(name).delete("secret") }),
    ("clear", { directory, name, _ in try directory.subfolder(name).clear() }),
    ("create", { directory, name, _ in try directory.subfolder(name).create().path }),
  ]

  static func chunks(_ chunks: [[UInt8]]) -> AsyncStream<[UInt8]> {
    AsyncStream { continuation in
      for chunk in chunks { continuation.yield(chunk) }
      continuation.finish()
    }
  }

  /// Makes the call in a new arena, and returns all its observable effects.
  private func outcome(
    of call: Call, _ name: String, hasOutside: Bool, plan: FaultPlan?
  ) async throws -> [String: String] {
    let arena = try Arena(hasOutside: hasOutside)
    let subject = "\(call.name) of \(name.prefix(60).debugDescription)"
    let name = name.replacing("ARENA", with: arena.home.path)
    var answer: String
    do {
      answer = try await FaultPlan.$current.withValue(plan) {
        "\(try await call.body(arena.directory, name, arena.home))"
      }
    } catch {
      answer = "\(try #require(error as? StorageError))"
    }
    answer = arena.anonymous(answer)
    let comment: Comment = "\(subject): \(answer)"
    let trees = try arena.trees()
    var seen = trees.own
    #expect(trees.outside == (hasOutside ? Self.untouched : [:]), comment)
    let isReadable = (Array(seen.values) + [answer]).contains { $0.contains(Self.secret) }
    #expect(!isReadable, comment)
    let isLeft = seen.keys.contains { $0.contains(".keepsake-") && $0.hasSuffix(".tmp") }
    #expect(!isLeft, comment)
    seen["answer"] = answer
    return seen
  }

  @Test(arguments: [0, ENOSYS, EPERM], calls.indices)
  func noPathLeadsOut(withoutOpenat2: Int32, which: Int) async throws {
    let plan =
      withoutOpenat2 == 0
      ? nil
      : FaultPlan(decide: { $0.call == .openNoSymlinks ? .fail(withoutOpenat2) : .proceed })
    let call = Self.calls[which]
    try #require(Self.untouched.count == 10)
    for name in Coverage.cases(Self.names, every: 16, from: which) {
      let outcome = try await outcome(of: call, name, hasOutside: true, plan: plan)
      guard withoutOpenat2 != EPERM else { continue }
      let alone = try await self.outcome(of: call, name, hasOutside: false, plan: plan)
      #expect(outcome == alone, "\(call.name) of \(name.prefix(60).debugDescription)")
    }
  }

  /// Proves that the folder does not simply refuse every path.
  @Test(arguments: [
    "..\u{301}", "..\u{301}/x", ".\u{301}.", "\u{FF0E}\u{FF0E}/x", "%2e%2e%2fx", "..\\x",
    "~keepsake-nobody/x", "$KEEPSAKE_NOTHING/x", "file:x", "...", "..../f", ".. ", " ..", "a\nb",
    "\n", " ", "*", "-rf", "\u{202E}..",
    String(repeating: "n", count: 255), String(repeating: "n/", count: 900) + "n", ".hidden",
    "a\u{600}", ".KEEPSAKE-x", "..\r\n", "\u{301}x",
  ])
  func unusualNamesAreValid(_ name: String) throws {
    let home = try TemporaryDirectory(isQuick: true)
    try home.files.save("x", as: name)
    #expect(try home.files.load(name) as String == "x" && home.files.exists(name))
    let found = try home.files.list(recursively: true, includingHidden: true)
    #expect(found.contains { Array($0.utf8) == Array(name.utf8) })
    try home.files.move(name, to: "moved")
    #expect(try !home.files.exists(name) && home.files.load("moved") as String == "x")
  }

  @Test func onlyOneTrailingSlashIsIgnored() throws {
    let home = try TemporaryDirectory()
    for name in ["a", "a\u{600}"] { try home.makeDirectory(name) }
    // A slash and such a mark form one `Character`.
    try home.files.delete("a\u{600}/")
    #expect(try home.names() == ["a"])
  }
}

extension Data {
  /// Replaces each occurrence of `text`, compared by bytes.
  fileprivate func replacing(_ text: String, with other: String) -> Data {
    var (rest, result) = (self[...], Data())
    while let range = rest.range(of: Data(text.utf8)) {
      result += rest[..<range.lowerBound] + Data(other.utf8)
      rest = rest[range.upperBound...]
    }
    return result + rest
  }
}
