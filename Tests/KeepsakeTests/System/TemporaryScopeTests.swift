import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Which calls use the stores of a temporary scope.
@Suite(.timeLimit(.minutes(20))) struct TemporaryScopeTests {
  /// The directory of the current scope, or of the test run.
  private func scopeRoot() throws -> String {
    let path = try StorageScope.current.finder.directory(.configuration)
    return FileSystem.parent(of: FileSystem.parent(of: path))
  }

  /// Stores something of each kind, and expects it below `root`.
  private func expectFilling(
    _ mark: String, below root: String, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let paths = try OneOfEachStore.set(mark)
    #expect(paths.count == 6)
    let keyFile = try StorageScope.current.finder.directory(.state) + "/vault.key"
    for path in paths + [keyFile] {
      #expect(path.hasPrefix(root + "/"), "\(path)", sourceLocation: sourceLocation)
      #expect(
        FileManager.default.fileExists(atPath: path), "\(path)", sourceLocation: sourceLocation)
    }
    #expect(try OneOfEachStore.values() == [mark], sourceLocation: sourceLocation)
  }

  @Test func fiftyParallelScopesAreSeparateAndLeaveNothing() async throws {
    let roots = try await withThrowingTaskGroup(of: String.self) { group in
      for number in 0..<50 {
        group.addTask {
          try await StorageSystem.withTemporary {
            let root = try scopeRoot()
            #expect(try OneOfEachStore.values() == ["nothing"])
            #expect(Defaults.keys(suite: .memory).isEmpty && DiskCache.keys(cache: .memory).isEmpty)
            try expectFilling("\(number)", below: root)
            Defaults.set(number, forKey: "k", suite: .memory)
            DiskCache.set(number, forKey: "k", cache: .memory)
            for _ in 0..<10 { await Task.yield() }
            #expect(try OneOfEachStore.values() == ["\(number)"])
            #expect(Defaults.int("k", suite: .memory) == number)
            #expect(DiskCache.model("k", cache: .memory) == number)
            return root
          }
        }
      }
      return try await group.reduce(into: Set()) { $0.insert($1) }
    }
    #expect(roots.count == 50)
    for root in roots { #expect(!FileManager.default.fileExists(atPath: root)) }
  }

  @Test func childTasksUseTheScope() async throws {
    try await StorageSystem.withTemporary {
      let root = try scopeRoot()
      async let bound: Void = expectFilling("async let", below: root)
      try await bound
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try expectFilling("group", below: root) }
        try await group.waitForAll()
      }
      try await Task { try expectFilling("task", below: root) }.value
      try await Task { @MainActor in try expectFilling("actor", below: root) }.value
      // A scope within it has stores of its own.
      try await StorageSystem.withTemporary { () throws in
        #expect(try OneOfEachStore.values() == ["nothing"])
        try expectFilling("inner", below: scopeRoot())
      }
      #expect(try OneOfEachStore.values() == ["actor"])
    }
  }

  @Test func codeThatCannotWaitHasAScopeToo() throws {
    struct Failure: Error {}
    var root = ""
    let value = try StorageSystem.withTemporarySynchronously(engines: ["team": MemoryEngine()]) {
      root = try scopeRoot()
      try expectFilling("synchronous", below: root)
      Defaults.set(1, forKey: "k", suite: "team")
      #expect(try Defaults.suite("team").fileURL == nil)
      return Defaults.keys().count
    }
    #expect(value > 0 && !FileManager.default.fileExists(atPath: root))
    #expect(throws: Failure.self) {
      try StorageSystem.withTemporarySynchronously {
        root = try scopeRoot()
        Defaults.set(1, forKey: "k")
        throw Failure()
      }
    }
    #expect(!FileManager.default.fileExists(atPath: root))
    #expect(try scopeRoot() != root)
  }

  @Test func detachedTasksQueuesAndThreadsUseTheTestRunsStores() async throws {
    let home = try #require(ProcessInfo.processInfo.environment["HOME"])
    try await StorageSystem.withTemporary {
      let root = try scopeRoot()
      let detached = try await Task.detached { try paths() }.value
      let queued: [String] = try await withCheckedThrowingContinuation { continuation in
        DispatchQueue.global().async { continuation.resume(with: Result { try paths() }) }
      }
      let threaded: [String] = try await withCheckedThrowingContinuation { continuation in
        Thread.detachNewThread { continuation.resume(with: Result { try paths() }) }
      }
      let all = detached + queued + threaded
      #expect(all.count == 27)
      for path in all {
        #expect(path.contains("/keepsake-\(getpid())-") && path.contains("/tests-"), "\(path)")
        #expect(!path.hasPrefix(root + "/") && !path.hasPrefix(home + "/"), "\(path)")
      }
    }
  }

  /// The files that the calls would create.
  private func paths() throws -> [String] {
    let directories: [Folder] = [.documents, .applicationSupport, .caches, .temporary]
    let finder = StorageScope.current.finder
    return try [
      try #require(try Defaults.shared.fileURL?.path), try finder.directory(.data),
      try finder.directory(.state), try finder.directory(.cache), try finder.documents(),
    ] + directories.map { try $0.url("k").path }
  }

  @Test func callsOnOtherQueuesUseTheScope() async throws {
    let (stream, continuation) = AsyncStream.makeStream(of: Data.self)
    continuation.yield(Data("chunk".utf8))
    continuation.finish()
    try await StorageSystem.withTemporary {
      let root = try scopeRoot()
      try await DiskCache.shared.perform { _ in try expectFilling("perform", below: root) }
      try await Defaults.shared.perform { _ in try expectFilling("defaults", below: root) }
      try await SecureVault.shared.perform { _ in try expectFilling("vault", below: root) }
      try await StorageSystem.perform { try expectFilling("system", below: root) }
      let fetched: String = try await DiskCache.fetch("fetched") {
        try expectFilling("fetch", below: root)
        return "value"
      }
      #expect(fetched == "value" && DiskCache.model("fetched") == "value")
      try await Folder.documents.save(chunks: stream, as: "film")
      #expect(try Folder.documents.load("film") == "chunk")
      #expect(try Folder.documents.url("film").path.hasPrefix(root))
      try await DiskCache.shared.set(chunks: AsyncStream { nil as Data? }, forKey: "empty")
      #expect(DiskCache.get("empty") == Data())
    }
    #expect(!DiskCache.contains("fetched"))
    #expect(try !Folder.documents.exists("film"))
  }

  /// It sees neither the values of the test run nor, in a program, the user's values.
  @Test func taskThatOutlivesItsScopeKeepsItsStores() async throws {
    let (opened, gate) = AsyncStream.makeStream(of: Void.self)
    let (root, late) = try await StorageSystem.withTemporary {
      let root = try scopeRoot()
      let late = Task {
        for await _ in opened {}
        try expectFilling("late", below: root)
      }
      return (root, late)
    }
    #expect(!FileManager.default.fileExists(atPath: root))
    gate.finish()
    try await late.value
    try FileSystem.removeTree(root)
  }

  @Test func errorOfTheBodyIsRethrownAndNothingStays() async throws {
    struct Refused: Error {}
    let root = Locked("")
    await #expect(throws: Refused.self) {
      try await StorageSystem.withTemporary {
        let path = try scopeRoot()
        root.withLock { $0 = path }
        try expectFilling("k", below: path)
        throw Refused()
      }
    }
    #expect(!FileManager.default.fileExists(atPath: root.withLock { $0 }))
  }
}

extension OneAtATime {
  /// Separate processes, whose temporary directory and home can be inspected afterwards.
  @Suite struct TemporaryScopeProcessTests {
    private func run(
      _ directory: TemporaryDirectory, _ program: String = Peer.executable,
      arguments: [String] = [], library: String = ""
    ) throws -> (outside: [String], inside: [String]) {
      for name in ["tmp", "home"] {
        try FileManager.default.createDirectory(
          at: directory.file(name), withIntermediateDirectories: true)
      }
      var environment = [
        "TMPDIR": directory.path + "/tmp", "HOME": directory.path + "/home",
        "LD_PRELOAD": library,
      ]
      for name in [
        "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
        "CONFIGURATION_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY",
      ] {
        environment[name] = ""
      }
      let peer = try Child(
        program, [directory.file("data").path, "paths"] + arguments,
        environment: environment)
      let lines = peer.finish().split(separator: "\n").map(String.init)
      #expect(peer.exitStatus == 0)
      func paths(_ word: String) -> [String] {
        lines.filter { $0.hasPrefix(word + " ") }.map { String($0.dropFirst(word.count + 1)) }
      }
      return (paths("outside"), paths("inside"))
    }

    @Test func testRunLeavesNothingBehind() throws {
      let directory = try TemporaryDirectory()
      // As if the program were linked with Swift Testing.
      // Read to the end: the first read has only a part of it.
      let maps = try FileHandle(forReadingFrom: URL(filePath: "/proc/self/maps")).readToEnd()
      let lines = String(decoding: maps ?? Data(), as: UTF8.self).split(separator: "\n")
      let line = lines.first { $0.hasSuffix("/libTesting.so") }
      let library = try #require(line?.split(separator: " ").last)
      let (outside, inside) = try run(directory, library: String(library))
      #expect(outside.count == 12 && inside.count == 126)
      for path in outside + inside { #expect(path.hasPrefix(directory.path + "/tmp/"), "\(path)") }
      #expect(Set(outside).isDisjoint(with: inside))
      #expect(try directory.names() == ["home", "tmp"], "not even what bootstrap names is made")
      for name in ["home", "tmp"] {
        let rest = try FileManager.default.subpathsOfDirectory(atPath: directory.path + "/" + name)
        #expect(rest.isEmpty, "\(rest)")
      }
    }

    /// Also if its name and arguments are those of a test run.
    @Test(arguments: [false, true])
    func programsScopesLeaveNothingAndItsOwnDataStays(looksLikeATestRun: Bool) throws {
      let directory = try TemporaryDirectory()
      var (program, arguments) = (Peer.executable, [String]())
      if looksLikeATestRun {
        program = try directory.copyProgram(Peer.executable, as: "demo-test-runner.xctest")
        arguments = ["--testing-library", "swift-testing"]
      }
      let (outside, inside) = try run(directory, program, arguments: arguments)
      #expect(outside.count == 12 && inside.count == 126)
      for path in outside {
        #expect(FileManager.default.fileExists(atPath: path))
        #expect(!inside.contains(path))
      }
      for path in inside { #expect(path.hasPrefix(directory.path + "/tmp/"), "\(path)") }
      // Its own temporary files are there; no scope is.
      let rest = try FileManager.default.contentsOfDirectory(atPath: directory.path + "/tmp")
      #expect(rest == ["peer-\(geteuid())"], "\(rest)")
      let file = directory.file("data/files/k.json")
      #expect(try String(contentsOf: file, encoding: .utf8) == "\"detached\"")
    }
  }
}
