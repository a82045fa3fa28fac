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

  private func set(_ store: Store) throws {
    switch store {
    case .settings: try directory.store().set(1, forKey: "k")
    case .cache: try directory.cache().set(1, forKey: "k")
    case .vault: try directory.secrets().set("1", forKey: "k")
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
    try set(store)
    let path = try path(of: store)
    let target = elsewhere.file("target").path
    try FileSystem.rename(path, to: target)
    try #require(symlink(target, path) == 0)
    try #require(lchown(path, link.owner, link.owner) == 0)
    try #require(chown(target, link.target, link.target) == 0)
    // By a store that does not know the file yet.
    if link.isFollowed {
      try set(store)
    } else {
      let before = try elsewhere.contents()
      expectFailure(.accessDenied) { try set(store) }
      #expect(try elsewhere.contents() == before)
    }
  }
}
