import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A process that only reads notices that the path leads elsewhere, although nobody tells it.
///
/// One case after the other, because each mount is an event for all stores.
@Suite(.serialized) struct ReplacedDirectoryTests {
  enum Replacement: CaseIterable {
    case moved, exchanged, ancestorMoved, linkToFile, linkToDirectory, linkInDirectory
    case linkInChain, mounted, ancestorMounted

    var isMount: Bool { self == .mounted || self == .ancestorMounted }
    var hasAncestor: Bool { self == .ancestorMoved || self == .ancestorMounted }
  }

  private let directory: TemporaryDirectory

  init() throws {
    directory = try TemporaryDirectory()
    for (name, value) in [("old", 1), ("new", 2)] {
      // A copy, because what a store of this process does later would be an event.
      let source = "source of \(name)"
      try directory.makeDirectory(source)
      try suite(in: source).set(value, forKey: "a")
      try FileManager.default.copyItem(at: directory.file(source), to: directory.file(name))
    }
  }

  private func suite(in name: String) -> Defaults.Store {
    directory.store(Defaults.Suite("team", in: directory.file(name)))
  }

  /// Makes `used`, which leads to the old file.
  private func prepare(_ replacement: Replacement) throws {
    switch replacement {
    case .ancestorMoved, .ancestorMounted:
      for (name, parent) in [("old", "used"), ("new", "next")] {
        try directory.makeDirectory(parent + "/between")
        try FileSystem.rename(
          directory.file(name).path, to: directory.file(parent + "/between/team").path)
      }
    case .moved, .exchanged, .mounted:
      try FileSystem.rename(directory.file("old").path, to: directory.file("used").path)
    case .linkToFile:
      try directory.makeDirectory("used")
      try link("old/team.jsonl", "used/team.jsonl")
    case .linkToDirectory: try link("old", "used")
    case .linkInChain:
      try directory.makeDirectory("used")
      try link("old", "current")
      try link("current/team.jsonl", "used/team.jsonl")
    case .linkInDirectory:
      // As a ConfigMap of Kubernetes.
      try directory.makeDirectory("used")
      try link("old", "used/..data")
      try directory.link("used/team.jsonl", to: "..data/team.jsonl")
    }
  }

  private func link(_ target: String, _ name: String) throws {
    try directory.link("next", to: directory.file(target).path)
    try FileSystem.rename(directory.file("next").path, to: directory.file(name).path)
  }

  /// Has `used` lead to the new file.
  private func replace(_ replacement: Replacement) throws {
    let (used, new) = (directory.file("used").path, directory.file("new").path)
    switch replacement {
    case .moved:
      try FileSystem.rename(used, to: directory.file("away").path)
      try FileSystem.rename(new, to: used)
    case .ancestorMoved:
      try FileSystem.rename(used, to: directory.file("away").path)
      try FileSystem.rename(directory.file("next").path, to: used)
    case .exchanged: #expect(try FileSystem.exchange(new, with: used, in: nil))
    case .linkToFile: try link("new/team.jsonl", "used/team.jsonl")
    case .linkToDirectory: try link("new", "used")
    case .linkInChain: try link("new", "current")
    case .linkInDirectory: try link("new", "used/..data")
    case .mounted: try mount(new, over: used)
    case .ancestorMounted: try mount(directory.file("next").path, over: used)
    }
  }

  private func mount(_ source: String, over path: String) throws {
    try #require(Glibc.mount(source, path, nil, UInt(MS_BIND), nil) == 0)
  }

  @Test(arguments: Replacement.allCases.filter { OneAtATime.HazardTests.canMount || !$0.isMount })
  func aReaderNoticesThatItsPathLeadsElsewhere(_ replacement: Replacement) async throws {
    try prepare(replacement)
    defer { if replacement.isMount { umount2(directory.file("used").path, Int32(MNT_DETACH)) } }
    let reader = suite(in: replacement.hasAncestor ? "used/between/team" : "used")
    #expect(try reader.int("a") == 1)
    // It would begin within a second.
    try reader.journal.watchPath()
    try replace(replacement)
    try await eventually("the new value is read") { try reader.int("a") == 2 }
  }

  /// Nothing but reading begins the watch, and nothing else tells the reader of a replacement.
  @Test func readingASettingBeginsTheWatchOfItsPath() async throws {
    try prepare(.linkToFile)
    let reader = suite(in: "used")
    #expect(try reader.int("a") == 1)
    for (target, value) in [("new", 2), ("old", 1)] {
      try link("\(target)/team.jsonl", "used/team.jsonl")
      try await eventually("the value of \(target) is read") { try reader.int("a") == value }
    }
  }

  /// The directory was away for a while, and the watch of it with it.
  @Test func aReaderNoticesAReplacementInADirectoryThatCameBack() async throws {
    try prepare(.moved)
    let (used, file) = (directory.file("used").path, directory.file("used/team.jsonl").path)
    let reader = suite(in: "used")
    #expect(try reader.int("a") == 1)
    try reader.journal.watchPath()
    try FileSystem.rename(used, to: directory.file("away").path)
    try await eventually("the values are gone") { try reader.keys() == [] }
    try directory.makeDirectory("used")
    // The reader has been told of the directory when it is told of what follows.
    let marker = Locked(false)
    let watch = FileWatcher.shared.watch(.names, of: directory.path) { _ in
      marker.withLock { $0 = true }
    }
    try directory.write([], to: "marker")
    try await eventually("events arrive") { marker.withLock { $0 } }
    withExtendedLifetime(watch) {}
    try FileManager.default.copyItem(
      atPath: directory.file("away/team.jsonl").path, toPath: file)
    try await eventually("the old value is read again") { try reader.int("a") == 1 }
    try FileSystem.rename(directory.file("new/team.jsonl").path, to: file)
    try await eventually("the new value is read") { try reader.int("a") == 2 }
  }

  /// The link is pointed elsewhere, back, and then into a directory that is missing for a while.
  @Test(.timeLimit(.minutes(20)))
  func aFollowerNoticesEachFileThatItsLinkLeadsTo() async throws {
    try prepare(.linkToFile)
    let follower = suite(in: "used")
    var changes = follower.changes("a", default: 0).makeAsyncIterator()
    func expect(_ value: Int) async {
      var found: Int?
      repeat { found = await changes.next(isolation: nil) } while found != nil && found != value
      #expect(found == value)
    }
    try link("new/team.jsonl", "used/team.jsonl")
    await expect(2)
    try link("old/team.jsonl", "used/team.jsonl")
    await expect(1)
    try link("late/team.jsonl", "used/team.jsonl")
    await expect(0)
    try FileManager.default.copyItem(
      at: directory.file("source of new"), to: directory.file("late"))
    await expect(2)
    try suite(in: "late").set(3, forKey: "a")
    await expect(3)
  }

  /// The file was read before, and the way to it was not watched yet.
  @Test(.timeLimit(.minutes(20)))
  func aLinkThatWasPointedElsewhereBeforeItIsFollowedIsNoticed() async throws {
    try prepare(.linkToFile)
    let follower = suite(in: "used")
    #expect(try follower.int("a") == 1)
    try link("new/team.jsonl", "used/team.jsonl")
    var changes = follower.changes("a", default: 0).makeAsyncIterator()
    #expect(await changes.next(isolation: nil) == 2)
  }
}
