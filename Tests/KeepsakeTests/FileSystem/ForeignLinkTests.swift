import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A link at a store's path chooses where this process writes, so another user may not have made
/// it. Needs root, which can give a link to another user.
@Suite(.enabled(if: geteuid() == 0)) struct ForeignLinkTests {
  enum Store: CaseIterable {
    case settings, cache, vault
  }

  private let directory: TemporaryDirectory
  private let elsewhere: TemporaryDirectory

  init() throws {
    (directory, elsewhere) = (try TemporaryDirectory(), try TemporaryDirectory())
  }

  /// All by stores that do not know the file yet.
  private func call(_ call: String, _ store: Store) throws {
    switch store {
    case .settings: try Self.call(call, directory.store())
    case .cache:
      let cache = directory.cache()
      switch call {
      case "set": try cache.set(1, forKey: "k")
      case "get": _ = try cache.get("k")
      case "remove": try cache.remove("k")
      default: try cache.removeAll()
      }
    case .vault:
      let secrets = directory.secrets()
      switch call {
      case "set": try secrets.set("1", forKey: "k")
      case "get": _ = try secrets.get("k")
      case "remove": try secrets.remove("k")
      default: try secrets.removeAll()
      }
    }
  }

  private static func call(_ call: String, _ settings: Defaults.Store) throws {
    switch call {
    case "set": try settings.set(1, forKey: "k")
    case "get": _ = try settings.int("k")
    case "remove": try settings.remove("k")
    default: try settings.removeAll()
    }
  }

  private func path(of store: Store) throws -> String {
    switch store {
    case .settings: try #require(try directory.store().fileURL).path
    case .cache: try directory.cache().files.paths.directory
    case .vault: FileSystem.parent(of: directory.headerPath)
    }
  }

  /// - Parameters:
  ///   - owner: Who has made the link.
  ///   - targetOwner: Who has made what it leads to.
  @Test(
    arguments: Store.allCases,
    [(owner: 65_534, target: 0, isFollowed: false), (65_534, 65_534, true), (0, 65_534, true)])
  func aLinkOfAnotherUserIsNotFollowed(
    _ store: Store, _ link: (owner: uid_t, target: uid_t, isFollowed: Bool)
  ) throws {
    try call("set", store)
    let path = try path(of: store)
    let target = elsewhere.file("target").path
    try FileSystem.rename(path, to: target)
    try #require(symlink(target, path) == 0)
    try #require(lchown(path, link.owner, link.owner) == 0)
    try #require(chown(target, link.target, link.target) == 0)
    let before = try elsewhere.contents()
    for name in ["get", "set", "remove", "removeAll"] {
      if link.isFollowed {
        try call(name, store)
      } else {
        expectFailure(.accessDenied) { try call(name, store) }
        #expect(try elsewhere.contents() == before, "\(name)")
      }
    }
  }

  /// Nothing is made there either.
  @Test(arguments: [Store.cache, .vault]) func aLinkToAnEmptyDirectoryIsNotFilled(
    _ store: Store
  ) throws {
    let path = try path(of: store)
    try FileManager.default.createDirectory(
      atPath: FileSystem.parent(of: path), withIntermediateDirectories: true)
    // With a slash, the path of a link is that of its target.
    try directory.link("own", to: elsewhere.path)
    let link = directory.file("own").path
    try #require(lchown(link, 65_534, 65_534) == 0)
    try #require(symlink(link + "/", path) == 0)
    expectFailure(.accessDenied) { try call("set", store) }
    #expect(try elsewhere.names() == [])
  }
}
