import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Root in a directory of another user, as with `sudo -E`.
@Suite(.multiprocess, .enabled(if: getuid() == 0, "only root can act for another user"))
struct ForeignDirectoryTests {
  private static let user: UInt32 = 65_534
  private static let stores = ["settings", "engine", "secrets", "cache", "file"]

  /// A directory of another user, in which the peer's directories are missing.
  private func makeHome() throws -> (TemporaryDirectory, TemporaryDirectory) {
    let home = try TemporaryDirectory(isQuick: true)
    try #require(chown(home.path, Self.user, Self.user) == 0 && chmod(home.path, 0o700) == 0)
    return (home, TemporaryDirectory("config/app", in: home))
  }

  /// The entries of other owners than the user, and the unfinished ones.
  private func strangers(in directory: TemporaryDirectory) throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: directory.path).filter { name in
      let status = try FileSystem.status(directory.file(name).path, followsLinks: false)
      return status.map { $0.owner != Self.user || $0.group != Self.user } ?? false
        || name.hasSuffix(".tmp")
    }
  }

  @Test func theUserCanUseWhatRootStores() throws {
    let (home, directory) = try makeHome()
    // A cache in a directory of the caller's needs that directory.
    let prepared = try Peer.start(directory, "hazards")
    for store in Self.stores {
      #expect(try prepared.ask("set \(store) k root") == "ok", "\(store)")
    }
    prepared.finish()
    #expect(try strangers(in: home) == [])

    let peer = try Peer.start(directory, "hazards")
    #expect(try peer.ask("become \(Self.user)") == "ok")
    for store in Self.stores {
      #expect(try peer.ask("get \(store) k") == "root", "\(store)")
      #expect(try peer.ask("set \(store) k user") == "ok", "\(store)")
      #expect(try peer.ask("fill \(store) large 100000") == "ok", "\(store)")
      #expect(try peer.ask("set \(store) large small") == "ok", "\(store)")
    }
    #expect(peer.finish() == "")

    let root = try Peer.start(directory, "hazards")
    for store in Self.stores {
      #expect(try root.ask("get \(store) k") == "user", "\(store)")
      #expect(try root.ask("fill \(store) k 200000") == "ok", "\(store)")
      #expect(try root.ask("set \(store) k root") == "ok", "\(store)")
      #expect(try root.ask("set \(store) new root") == "ok", "\(store)")
    }
    #expect(root.finish() == "")
    #expect(try strangers(in: home) == [])
    let last = try Peer.start(directory, "hazards")
    #expect(try last.ask("become \(Self.user)") == "ok")
    for store in Self.stores { #expect(try last.ask("get \(store) new") == "root", "\(store)") }
    #expect(last.finish() == "")
  }

  @Test func movedAndAdoptedFilesGetTheOwner() throws {
    let (home, _) = try makeHome()
    let own = try TemporaryDirectory(isQuick: true)
    let files = Folder(home.file("files"))
    for name in ["a", "d/b", "c"] { try own.files.save("root's", as: name) }
    try own.files.move("a", to: "a", in: files)
    try own.files.move("d", to: "d", in: files)
    try own.files.copy("c", to: "copy", in: files)
    try files.adopt(own.file("c"), as: "c")
    #expect(try own.tree() == [:])
    #expect(try strangers(in: home) == [])
    #expect(try files.list(recursively: true) == ["a", "c", "copy", "d/", "d/b"])
    // A file of the user is moved as it is.
    let inode = try home.status("files/a")?.inode
    try files.move("a", to: "e")
    #expect(try home.status("files/e")?.inode == inode)
  }

  /// A process that may not change owners says no.
  @Test func whatCannotBeGivenToTheUserIsNotLeftBehind() throws {
    let (home, _) = try makeHome()
    let plan = FaultPlan(decide: { $0.call == .chown ? .fail(EPERM) : .proceed })
    let error = try FaultPlan.$current.withValue(plan) {
      try #require(throws: StorageError.self) { try home.store().set(1, forKey: "k") }
    }
    #expect(error.code == .accessDenied && error.remedy == "Run the program as that user.")
    #expect(error.reason?.contains("belongs to user \(Self.user)") == true)
    #expect(try home.names() == [])
    let directory = Folder(home.file("new"))
    FaultPlan.$current.withValue(plan) {
      _ = expectFailure(.accessDenied) { try directory.save("x", as: "x") }
    }
    #expect(try home.names() == [])
  }

  @Test func eachFailingCallLeavesNothingOfRoot() async throws {
    _ = try await failingEachCall(
      step: 3,
      { (home: TemporaryDirectory) in
        try Folder(home.file("files")).save("x", as: "d/x")
        _ = try LockFile.createOrOpen(
          home.path + "/.lock", mode: 0o600, timeout: .seconds(1), wordCount: 1, initial: { [1] })
      },
      on: {
        let home = try makeHome().0
        return (home, [home])
      },
      check: { _, home, call in
        let strangers = try strangers(in: home).filter { !$0.hasSuffix(".tmp") }
        #expect(strangers == [], call.comment)
      })
  }
}
