import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

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

  /// A store that does not know the file yet.
  private func open(_ store: Store) throws -> any ByteStore {
    switch store {
    case .settings: try DefaultsModel.open(directory)
    case .cache: try AppCacheModel.open(directory)
    case .vault: try VaultModel.open(directory)
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
    try open(store).set(Data([1]), "k")
    let path = try path(of: store)
    let target = elsewhere.file("target").path
    try FileSystem.rename(path, to: target)
    try #require(symlink(target, path) == 0)
    try #require(lchown(path, link.owner, link.owner) == 0)
    try #require(chown(target, link.target, link.target) == 0)
    let before = try elsewhere.contents()
    let calls: [(name: String, make: (any ByteStore) throws -> Void)] = [
      ("get", { _ = try $0.bytes("k") }), ("set", { try $0.set(Data([2]), "k") }),
      ("remove", { try $0.remove("k") }), ("removeAll", { try $0.removeAll() }),
    ]
    for call in calls {
      if link.isFollowed {
        try call.make(open(store))
      } else {
        expectFailure(.accessDenied) { try call.make(open(store)) }
        #expect(try elsewhere.contents() == before, "\(call.name)")
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
    expectFailure(.accessDenied) { try open(store).set(Data([1]), "k") }
    #expect(try elsewhere.names() == [])
  }
}
