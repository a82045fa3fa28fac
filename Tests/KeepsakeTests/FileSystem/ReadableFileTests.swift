import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A file that seems to end before its size, as on a failing disk or network.
@Suite(.singleThreaded) struct ReadableFileTests {
  /// Reads of matching files return nothing after the first `count` ones.
  private func endOfFile(
    after count: Int = 0, where isMatching: @escaping @Sendable (String) -> Bool
  ) -> FaultPlan {
    let reads = Locked(0)
    return FaultPlan(decide: { event in
      guard event.call == .read, isMatching(event.path) else { return .proceed }
      return reads.increment() > count ? .succeed(0) : .proceed
    })
  }

  @Test func eachStoreThrowsAndKeepsWhatItHas() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try App(directory).fill()
    let before = try directory.contents()
    for item in App.items where item.key == "a" {
      FaultPlan.$current.withValue(endOfFile { _ in true }) {
        let app = App(directory)
        let error = #expect(throws: StorageError.self, "\(item)") { _ = try app.get(item) }
        #expect(error?.code == .system(EIO), "\(item): \(String(describing: error))")
        // A file is replaced without being read.
        if item.store != .files && item.store != .engine {
          let failure = #expect(throws: StorageError.self, "\(item)") {
            try app.set("new", for: item)
          }
          #expect(failure?.code == .system(EIO), "\(item): \(String(describing: failure))")
        }
      }
    }
    #expect(try directory.contents() == before)
    let app = App(directory)
    for item in App.items { #expect(try app.get(item) == item.value, "\(item)") }
    #expect(app.failures.all.isEmpty)
  }

  @Test func aSecretKeepsItsProtection() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let sources: [SecureVault.KeySource] = [.keyFile]
    let store = directory.secrets(keySources: sources, authenticate: { _ in "correct horse" })
    try store.protect(with: .keyFile)
    try store.set("v", forKey: "k", access: .userPresence)
    let path = try directory.secretPath("k", "standard", sources)
    let old = try Bytes.read(path)
    #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(endOfFile { $0 == path }) {
        try store.set("w", forKey: "k")
      }
    }
    #expect(try Bytes.read(path) == old)
  }

  @Test(.enabled(if: TwoFileSystems.areHere), arguments: [0, 1])
  func aMoveToAnotherFileSystemKeepsTheOriginal(_ count: Int) throws {
    let (home, disk) = (try TemporaryDirectory(isQuick: true), try TemporaryDirectory())
    let value = Data(repeating: 1, count: 3 << 20)
    try home.files.save(value, as: "film")
    #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(endOfFile(after: count) { $0.hasSuffix("/film") }) {
        try home.files.move("film", to: "film", in: disk.files)
      }
    }
    #expect(try home.files.load("film") == value)
    #expect(try disk.tree() == [:])
    // One empty read is not the end: another process may have appended in the meantime.
    let reads = Locked(0)
    let plan = FaultPlan { event in
      event.call == .read && reads.increment() == 2 ? .succeed(0) : .proceed
    }
    try FaultPlan.$current.withValue(plan) {
      try home.files.move("film", to: "film", in: disk.files)
    }
    #expect(try disk.files.load("film") == value)
  }

  @Test func aFileThatShrankEndsThere() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try directory.write([1, 2, 3], to: "f")
    let file = try File(directory.file("f").path, .read)
    #expect(try file.read(from: 0, count: 10) == [1, 2, 3])
    #expect(try file.read(from: 3, count: 1) == [])
    #expect(try file.contents() == Data([1, 2, 3]))
  }

  @Test func interruptedListingsAreContinued() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    for number in 0..<10 { try directory.write([], to: "\(number)") }
    let calls = Locked(0)
    // Each call is interrupted once.
    let plan = FaultPlan { event in
      event.call == .list && calls.increment() % 2 == 0 ? .fail(EINTR) : .proceed
    }
    let names = try FaultPlan.$current.withValue(plan) { try FileSystem.list(directory.path) }
    #expect(names.count == 10 && calls.withLock { $0 } >= 20)
  }
}
