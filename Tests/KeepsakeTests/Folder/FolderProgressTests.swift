import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Copies that report how far they are, and that end when their task is cancelled.
@Suite(.timeLimit(.minutes(10))) struct FolderProgressTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }
  private static let size = 2_500_000

  init() throws {
    home = try TemporaryDirectory(isQuick: true)
    try home.setMode(0o700)
    var bytes = Data()
    for number in 0..<Self.size / 1_000 {
      // Text, which ``TemporaryDirectory/tree()`` takes them for.
      bytes.append(Data(repeating: UInt8(33 + number % 90), count: 1_000))
    }
    try directory.save(bytes, as: "film")
    for name in ["a", "e/b"] { try directory.save(bytes.prefix(1_100_000), as: "d/" + name) }
    try directory.save(Data(), as: "empty")
  }

  @Test func copiesReportTheirBytes() async throws {
    for (name, total) in [("film", Self.size), ("d", 2_200_000), ("empty", 0)] {
      var seen: [Int] = []
      try await directory.copy(name, to: "copy of " + name) { bytes, all in
        #expect(all == total)
        seen.append(bytes)
      }
      #expect(seen == seen.sorted() && seen.last == total)
      #expect(try directory.totalSize("copy of " + name) == total)
    }
    #expect(try home.bytes(of: "copy of film") == home.bytes(of: "film"))
    #expect(try home.bytes(of: "copy of d/e/b") == home.bytes(of: "d/e/b"))
    #expect(try home.leftoverFiles() == [])
  }

  @Test func updatesAreRare() async throws {
    try await CopyProgress.$shortestInterval.withValue(.max) {
      for number in 0..<4 {
        var count = 0
        try await directory.copy("film", to: "\(number)") { _, _ in count += 1 }
        // The first one and the last one need not wait. A slow task may miss the first one.
        #expect((1...2).contains(count))
      }
    }
  }

  @Test func adoptionReportsItsBytes() async throws {
    let bytes = try home.bytes(of: "film")
    var seen: [[Int]] = []
    try await directory.adopt(home.file("film"), as: "moved") { seen.append([$0, $1]) }
    #expect(seen == [[Self.size, Self.size]], "moved, and not copied")
    #expect(try home.bytes(of: "moved") == bytes && !directory.exists("film"))
    try #require(link(home.path + "/moved", home.path + "/other") == 0)
    seen = []
    try await directory.adopt(home.file("moved"), as: "copied") { seen.append([$0, $1]) }
    #expect(seen.last == [Self.size, Self.size])
    #expect(try home.bytes(of: "copied") == bytes && !directory.exists("moved"))
  }

  @Test func errorsAreThoseOfTheCall() async throws {
    await #expect { try await directory.copy("none", to: "x") { _, _ in } } throws: {
      ($0 as? StorageError)?.code == .notFound && ($0 as? StorageError)?.operation == "copy"
    }
    await #expect { try await directory.adopt(home.file("none"), as: "x") { _, _ in } } throws: {
      ($0 as? StorageError)?.code == .notFound && ($0 as? StorageError)?.operation == "adopt"
    }
  }

  private static let operations:
    [@Sendable (Folder, URL, (Int, Int) -> Void) async throws -> Void] =
      [
        { try await $0.copy("film", to: "old", progress: $2) },
        { try await $0.copy("d", to: "new/d", progress: $2) },
        { try await $0.adopt($1, as: "old", progress: $2) },
      ]

  @Test(arguments: operations.indices)
  func aCancelledCopyLeavesNothingBehind(which: Int) async throws {
    try directory.save("old", as: "old")
    // So that it is copied, not moved.
    try #require(link(home.path + "/film", home.path + "/other") == 0)
    try directory.subfolder("new").create()
    let before = try home.tree()
    let handle = Locked<Task<Void, any Error>?>(nil)
    let writeCount = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .clone { return .fail(EOPNOTSUPP) }
      if event.call == .write, writeCount.increment() == 2 {
        // Set right after the task was created.
        waitUntil("the task has a handle") { handle.withLock { $0 != nil } }
        handle.withLock { $0?.cancel() }
        waitUntil("the copy is cancelled") { Task.isCancelled }
      }
      return .proceed
    })
    let (directory, file) = (directory, home.file("film"))
    let task = Task {
      try await FaultPlan.$current.withValue(plan) {
        try await Self.operations[which](directory, file) { _, _ in }
      }
    }
    handle.withLock { $0 = task }
    await #expect(throws: CancellationError.self) { try await task.value }
    #expect(try home.tree() == before)
    // A task that is cancelled before does not begin.
    let cancelled = Task {
      withUnsafeCurrentTask { $0?.cancel() }
      try await Self.operations[which](directory, file) { _, _ in Issue.record("an update") }
    }
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    #expect(try home.tree() == before)
  }

  @MainActor @Test func progressRunsInTheCallersIsolation() async throws {
    final class Model { var bytes = 0 }
    let model = Model()
    try await directory.copy("film", to: "copy") { bytes, _ in
      MainActor.assertIsolated()
      model.bytes = bytes
    }
    #expect(model.bytes == Self.size)
  }

  @Test(.temporaryStorage) func usesTheStoresOfTheTask() async throws {
    try Folder.caches.save("x", as: "f")
    var total = 0
    try await Folder.caches.copy("f", to: "g", in: .documents) { total = $1 }
    #expect(try total == 1 && Folder.documents.load("g") == "x")
  }
}
