import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A suite with a file for each value.
@Suite(.timeLimit(.minutes(20))) struct FileEngineTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private func withSuite<R>(
    in directory: TemporaryDirectory, _ body: (Defaults.Store) async throws -> R
  ) async throws -> R {
    let engine = FileEngine(Folder(directory.url))
    return try await StorageSystem.withTemporary(engines: ["files": engine]) {
      try await body(Defaults.suite("files"))
    }
  }

  private func visibleFiles(_ directory: TemporaryDirectory) throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: directory.path)
      .filter { !$0.hasPrefix(".keepsake-") }.sorted()
  }

  private func put(_ text: String, _ name: String, in directory: TemporaryDirectory) throws {
    try text.write(to: directory.file(name), atomically: true, encoding: .utf8)
  }

  @Test func eachKeyIsAReadableFile() async throws {
    try await withSuite(in: directory) { store async throws in
      try store.set("dark", forKey: "theme")
      try store.set(16, forKey: "window/size")
      try store.set(["Ann": [1, 2]], forKey: "scores")
      #expect(try visibleFiles(directory) == ["scores.json", "theme.json", "window%2Fsize.json"])
      #expect(try directory.text("theme.json") == "\"dark\"")
      #expect(try directory.text("window%2Fsize.json") == "16")
      #expect(try directory.text("scores.json") == #"{"Ann":[1,2]}"#)
      try store.remove("theme")
      #expect(try visibleFiles(directory) == ["scores.json", "window%2Fsize.json"])
    }
  }

  @Test func readSeesEditsByHand() async throws {
    try await withSuite(in: directory) { store async throws in
      try store.set(16, forKey: "size")
      try put(" 18\n", "size.json", in: directory)
      #expect(try store.int("size") == 18)
      #expect(try store.update("size", default: 0) { $0 += 1 } == 19)
      try put("{\n  \"a\" : [ 1 ]\n}\n", "new.json", in: directory)
      #expect(try store.model("new") == ["a": [1]])
      #expect(try store.keys().sorted() == ["new", "size"])
      try FileManager.default.removeItem(at: directory.file("size.json"))
      #expect(try !store.contains("size"))
      for text in ["no JSON", "[1,]"] {
        try put(text, "size.json", in: directory)
        #expect(expectFailure(.damaged) { _ = try store.model("size") as [Int]? }?.key == "size")
      }
      try FileManager.default.removeItem(atPath: directory.path)
      #expect(try store.keys().isEmpty)
      try store.set(1, forKey: "again")
      #expect(try store.int("again") == 1)
    }
  }

  @Test func changesIncludeEditsByHand() async throws {
    try await withSuite(in: directory) { store async throws in
      var changes = store.changes("size", default: 0).makeAsyncIterator()
      try put("1", "size.json", in: directory)
      #expect(await changes.next() == 1)
      // In place, as `echo 2 > size.json` writes.
      try Data("2".utf8).write(to: directory.file("size.json"))
      #expect(await changes.next() == 2)
      try FileManager.default.removeItem(at: directory.file("size.json"))
      #expect(await changes.next() == 0)
    }
  }

  @Test func changesIncludeWritesOfAnotherEngine() async throws {
    let long = String(repeating: "k", count: 900)
    try await withSuite(in: directory) { store async throws in
      let other = FileEngine(Folder(directory.url))
      for key in ["k", long] {
        var changes = store.changes(key, default: 0).makeAsyncIterator()
        try other.set(Data("1".utf8), forKey: key)
        #expect(await changes.next() == 1)
        try other.set(nil, forKey: key)
        #expect(await changes.next() == 0)
      }
    }
  }

  @Test func aDamagedFileHidesNoChangesOfOtherKeys() async throws {
    try await withSuite(in: directory) { store async throws in
      try put("no JSON", "bad.json", in: directory)
      try put("1", "good.json", in: directory)
      let changes = try store.engine.get().changedValues(since: nil)
      #expect(changes.isComplete && changes.values.map(\.key) == ["good"])
      expectFailure(.damaged) { _ = try store.export(as: .json) }
    }
  }

  @Test func removeAllGoesOnAfterAFileThatCannotBeDeleted() throws {
    let engine = FileEngine(Folder(directory.url))
    for key in ["a", "b", "c"] { try engine.set(Data("1".utf8), forKey: key) }
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      event.call == .unlink && count.increment() == 1 ? .fail(EACCES) : .proceed
    })
    FaultPlan.$current.withValue(plan) {
      expectFailure(.accessDenied) { try engine.removeAll() }
    }
    #expect(try engine.keys().count == 1)
  }

  @Test(arguments: ["null\n", " 1\n", "\u{FEFF}1", ""])
  func engineReturnsBytesOfOtherPrograms(_ text: String) throws {
    let engine = FileEngine(Folder(directory.url))
    try put(text, "k.json", in: directory)
    #expect(try engine.data(forKey: "k") == Data(text.utf8))
    #expect(try !engine.replace(nil, with: Data("1".utf8), forKey: "k"))
    #expect(try engine.replace(Data(text.utf8), with: Data("1".utf8), forKey: "k"))
  }

  @Test func removingALongKeyRemovesItsDirectories() throws {
    let engine = FileEngine(Folder(directory.url))
    let (long, longer) = (String(repeating: "k", count: 500), String(repeating: "k", count: 900))
    for key in [long, longer] { try engine.set(Data("1".utf8), forKey: key) }
    try engine.set(nil, forKey: longer)
    #expect(try engine.keys() == [long])
    try engine.set(nil, forKey: long)
    #expect(try directory.names() == [".keepsake-engine.lock"])
    for key in [long, longer] { try engine.set(Data("1".utf8), forKey: key) }
    try engine.removeAll()
    #expect(try directory.names() == [".keepsake-engine.lock"])
  }

  @Test func watchingDoesNotBringBackADeletedDirectory() async throws {
    let engine = WatchCountingEngine(FileEngine(Folder(directory.url)))
    try await StorageSystem.withTemporary(engines: ["files": engine]) {
      var changes = Defaults.suite("files").changes("k", default: 0).makeAsyncIterator()
      try await eventually("it watches") { engine.count == 1 }
      try FileManager.default.removeItem(atPath: directory.path)
      // The suite asks for changes every second.
      try await eventually("it has asked again") { engine.count >= 3 }
      #expect(!FileManager.default.fileExists(atPath: directory.path))
      try FileEngine(Folder(directory.url)).set(Data("1".utf8), forKey: "k")
      #expect(await changes.next() == 1, "the new directory is watched")
    }
  }

  /// Counts the calls that ask for changes.
  private final class WatchCountingEngine: StorageEngines.Engine {
    private let engine: FileEngine
    private let counter = Locked(0)

    init(_ engine: FileEngine) { self.engine = engine }

    var count: Int { counter.withLock { $0 } }

    func changes() throws -> AsyncStream<Void>? {
      defer { counter.withLock { $0 += 1 } }
      return try engine.changes()
    }

    func data(forKey key: String) throws -> Data? { try engine.data(forKey: key) }
    func set(_ data: Data?, forKey key: String) throws { try engine.set(data, forKey: key) }
    func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
      try engine.replace(old, with: new, forKey: key)
    }
    func keys() throws -> [String] { try engine.keys() }
  }

  @Test(arguments: [
    "", "%", ".", "..", "a/b", "a%2Fb", "A", "a+", "+", "a+/+b", ".keepsake-x", "kö", "k\u{0}",
  ])
  func keysThatDifferInEscapedCharactersAreDistinct(_ key: String) async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try await withSuite(in: directory) { store async throws in
      let keys = [key, FileName.encode(key) ?? "", key + ".json", key + "%", "%" + key]
      for (number, key) in keys.enumerated() { try store.set(number, forKey: key) }
      for (number, key) in keys.enumerated() where keys.lastIndex(of: key) == number {
        #expect(try store.int(key) == number)
      }
      #expect(try Set(store.keys()) == Set(keys))
      #expect(try store.keys().count == Set(keys).count)
      #expect(try visibleFiles(directory).count == Set(keys).count)
    }
  }

  /// Lengths around the limits at which the names of long keys are split.
  @Test(arguments: ["", ".json", ".", "..", ".keepsake-x", "+", "/", "+/+", "é", "x"])
  func keysOfAnyLengthAreDistinct(_ end: String) async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try await withSuite(in: directory) { store async throws in
      let keys = [1, 197, 198, 199, 200, 201, 202, 205, 399, 400, 401, 600, 900].map {
        String(repeating: "k", count: $0) + end
      }
      for (number, key) in keys.enumerated() { try store.set(number, forKey: key) }
      for (number, key) in keys.enumerated() { #expect(try store.int(key) == number) }
      #expect(try store.keys().sorted() == keys.sorted())
      for name in try FileManager.default.subpathsOfDirectory(atPath: directory.path) {
        #expect(name.split(separator: "/").allSatisfy { $0.utf8.count <= 255 })
      }
      for key in keys { try store.remove(key) }
      #expect(try store.keys().isEmpty)
    }
  }

  @Test func keyMayHaveAThousandBytes() async throws {
    try await withSuite(in: directory) { store async throws in
      let longest = String(repeating: "/", count: 1_000)
      try store.set(1, forKey: longest)
      #expect(try store.keys() == [longest])
      let error = expectFailure(.misuse) { try store.set(1, forKey: longest + "/") }
      #expect(error?.remedy.contains("1,000 bytes") == true)
      expectFailure(.misuse) { _ = try store.int(longest + "/") }
    }
  }

  @Test func foreignFilesAreLeftAlone() async throws {
    for name in [".git/objects", "theme.json.d", "directory.json", "kkk+", "sealed"] {
      try directory.makeDirectory(name)
    }
    let foreign = [
      "notes.txt", "theme", "theme.json~", ".theme.json", "größe.json", "%2f.json", "%6B.json",
      ".git/objects/a.json", "theme.json.d/a.json", "directory.json/a.json", "kkk+/+a.json",
      "a b.json",
    ]
    for name in foreign { try put("1", name, in: directory) }
    try directory.link("link.json", to: "notes.txt")
    #expect(mkfifo(directory.path + "/pipe.json", 0o600) == 0)
    // The engine must not enter a directory that it may not read.
    try directory.setMode(0, "sealed")
    defer { chmod(directory.path + "/sealed", 0o700) }
    let before = try visibleFiles(directory)
    try await withSuite(in: directory) { store async throws in
      try store.set(1, forKey: "mine")
      #expect(try store.keys() == ["mine"])
      let plan = FaultPlan(decide: { event in
        event.path.contains("/.git") || event.path.contains("/sealed") ? .fail(EACCES) : .proceed
      })
      try FaultPlan.$current.withValue(plan) { try store.removeAll() }
      #expect(try store.keys().isEmpty)
      #expect(try visibleFiles(directory) == before)
      expectFailure(.misuse) { _ = try store.int("directory") }
      expectFailure(.misuse) { _ = try store.int("pipe") }
    }
  }

  @Test func onlyTheUserMayReadTheFilesUnlessTheDirectoryIsShared() async throws {
    chmod(directory.path, 0o770)
    try await withSuite(in: directory) { store async throws in
      try store.set(1, forKey: "k")
      #expect(try directory.status("k.json")?.mode == 0o660)
    }
    try await StorageSystem.withTemporary(engines: ["own": FileEngine(.applicationSupport)]) {
      try Defaults.suite("own").set(1, forKey: "k")
      let url = try Folder.applicationSupport.url("k.json")
      #expect(try FileSystem.status(url.path)?.mode == 0o600)
    }
  }

  // MARK: Directories

  @Test func standardDirectoryFollowsTheScopeInAnyTaskAndQueue() async throws {
    let engine = FileEngine(.applicationSupport.subfolder("themes"))
    // One engine in two scopes, whose stores are used first from elsewhere.
    for _ in 0..<2 {
      try await StorageSystem.withTemporary(engines: ["themes": engine]) {
        let store = Defaults.suite("themes")
        #expect(try store.keys().isEmpty)
        try await Task.detached { try store.set(1, forKey: "detached") }.value
        try await withCheckedThrowingContinuation { continuation in
          DispatchQueue.global().async {
            continuation.resume(with: Result { try store.set(2, forKey: "queue") })
          }
        }
        let names = try Folder.applicationSupport.list("themes")
        #expect(names == ["detached.json", "queue.json"])
      }
    }
    #expect(try !Folder.applicationSupport.exists("themes"))
  }

  // MARK: Failures and durability

  @Test func eachFailingCallThrowsAndKeepsTheOldValue() async throws {
    try await FaultSweep<FileEngineModel>().run()
  }

  @Test func aCallThatIsKilledLeavesTheOldOrTheNewState() throws {
    try FaultSweep<FileEngineModel>().runKills()
  }

  /// In a durable folder, each value survives a power cut when the set returns.
  @Test func setsAreDurableInADurableFolder() throws {
    let engine = FileEngine(Folder(directory.url))
    try engine.set(Data("1".utf8), forKey: "k")
    let value = Data("2".utf8)
    let calls = try systemCalls { try engine.set(value, forKey: "k") }
    let order = calls.filter { [.write, .fsync, .fdatasync, .rename].contains($0) }
    #expect(
      order == [.write, .fsync, .rename, .fsync] || order == [.write, .fdatasync, .rename, .fsync])
    let removal = try systemCalls { try engine.set(nil, forKey: "k") }
    #expect(removal.filter { [.unlink, .fsync].contains($0) } == [.unlink, .fsync])
  }

  @Test(.temporaryStorage) func setsInACacheDirectoryAreDurableAfterSynchronize() throws {
    let engine = FileEngine(.caches.subfolder("settings"))
    let isSync: (SystemCall) -> Bool = { [.fsync, .fdatasync].contains($0) }
    try engine.set(Data("1".utf8), forKey: "k")
    let value = Data("2".utf8)
    #expect(try !systemCalls { try engine.set(value, forKey: "k") }.contains(where: isSync))
    let calls = try systemCalls { try engine.synchronize() }
    // The file, its directory, and its ancestors.
    #expect(calls.filter(isSync).count >= 3)
  }
}

extension OneAtATime {
  /// Several processes on one engine of files.
  @Suite struct FileEngineProcessTests {
    @Test func threeProcessesCountExactly() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let peers = try (0..<3).map { _ in
        try Peer.start(directory, "engine-increment", "count", "300")
      }
      for peer in peers { #expect(peer.finish() == "") }
      let engine = FileEngine(Folder(directory.file("files")))
      #expect(try engine.data(forKey: "count") == Data("900".utf8))
    }
  }
}
