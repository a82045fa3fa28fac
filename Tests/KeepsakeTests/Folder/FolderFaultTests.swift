import Foundation
import Testing

@testable import Keepsake

/// What happens to files if a system call fails.
@Suite(.proofThread, .singleThreaded) struct FolderFaultTests {
  private static let old = String(repeating: Fault.mark + " old. ", count: 40)
  private static let new = String(repeating: Fault.mark + " new. ", count: 60)
  /// Large enough for several writes.
  private static let large = String(repeating: "large, ", count: 150_000)

  /// A directory with files, one beside it, and one on another file system if there is one.
  private struct Stage {
    let home: TemporaryDirectory
    let disk: TemporaryDirectory
    var directory: Folder { Folder(home.file("own")) }
    var other: Folder { Folder(disk.file("own")) }
    let before: [String: String]

    /// - Parameter usesDisk: Whether the operation uses the other file system.
    init(usesDisk: Bool = true) throws {
      home = try TemporaryDirectory(isQuick: true)
      disk = usesDisk ? try TemporaryDirectory() : home
      try home.setMode(0o700)
      let directory = Folder(home.file("own"))
      for name in ["k", "d/a", "d/e/b", "l"] { try directory.save(old, as: name) }
      try home.link("own/d/link", to: "a")
      try home.makeDirectory("own/empty")
      try home.write(Array(new.utf8), to: "incoming")
      before = try home.tree()
    }

    /// All files that have these contents.
    func places(of contents: String) throws -> [String] {
      let trees = disk === home ? [try home.tree()] : [try home.tree(), try disk.tree()]
      return trees.flatMap { tree in
        tree.filter { $0.value.hasSuffix(contents) && $0.value.hasPrefix("file") }.keys
      }.sorted()
    }
  }

  private typealias Operation = (
    name: String, body: @Sendable (Stage) async throws -> Void,
    /// The names that it may change; everything else must stay the same.
    changes: [String]
  )

  private static let operations: [Operation] = [
    ("save", { try $0.directory.save(new, as: "k") }, ["own/k"]),
    ("save new", { try $0.directory.save(new, as: "new/deep/k") }, ["own/new"]),
    ("save large", { try $0.directory.save(large, as: "k") }, ["own/k"]),
    (
      "save exclusively", { try $0.directory.save(new, as: "empty/k", replacing: false) },
      ["own/empty"]
    ),
    ("load", { _ = try $0.directory.load("d/a") as String }, []),
    (
      "chunks",
      { stage in
        var bytes = Data()
        for try await piece in try stage.directory.chunks(of: "k", size: 100) { bytes += piece }
        #expect(bytes == Data(old.utf8))
      }, []
    ),
    ("delete", { try $0.directory.delete("k") }, ["own/k"]),
    ("delete directory", { try $0.directory.delete("d") }, ["own/d"]),
    (
      "exists",
      {
        _ =
          try $0.directory.exists("d/e/b") && $0.directory.exists("k") && $0.directory.exists("d/e")
      }, []
    ),
    ("list", { _ = try $0.directory.list("d", recursively: true) + $0.directory.list("d") }, []),
    ("size", { _ = try $0.directory.size("k") + $0.directory.size("d/a") }, []),
    ("totalSize", { _ = try $0.directory.totalSize() }, []),
    ("clear", { try $0.directory.clear() }, ["own/"]),
    ("copy", { try $0.directory.copy("l", to: "k") }, ["own/k"]),
    (
      "copy with progress", { try await $0.directory.copy("l", to: "k") { _, _ in } }, ["own/k"]
    ),
    ("copy link", { try $0.directory.copy("d/link", to: "k") }, ["own/k"]),
    ("copy directory", { try $0.directory.copy("d", to: "new/d") }, ["own/new"]),
    ("copy directory onto empty", { try $0.directory.copy("d", to: "empty") }, ["own/empty"]),
    ("move", { try $0.directory.move("l", to: "k") }, ["own/l", "own/k"]),
    ("move directory", { try $0.directory.move("d", to: "new/d") }, ["own/d", "own/new"]),
    ("move away", { try $0.directory.move("k", to: "a/k", in: $0.other) }, ["own/k"]),
    ("move link away", { try $0.directory.move("d/link", to: "k", in: $0.other) }, ["own/d/link"]),
    ("move directory away", { try $0.directory.move("d", to: "a/d", in: $0.other) }, ["own/d"]),
    ("copy directory away", { try $0.directory.copy("d", to: "a/d", in: $0.other) }, []),
    (
      "adopt", { try $0.directory.adopt($0.home.file("incoming"), as: "k") }, ["own/k", "incoming"]
    ),
    ("adopt away", { try $0.other.adopt($0.home.file("incoming"), as: "k") }, ["incoming"]),
    (
      "save chunks",
      { stage in
        let chunks = [Array(new.utf8.prefix(7)), Array(new.utf8.dropFirst(7))]
        try await stage.directory.save(chunks: FolderNameTests.chunks(chunks), as: "k", total: 5)
      }, ["own/k"]
    ),
    ("create", { try $0.directory.subfolder("new/x").create() }, ["own/new"]),
    ("freeSpace", { _ = try $0.directory.subfolder("a/b").freeSpace }, []),
  ]

  @Test func eachFailingSystemCallIsAnErrorAndLosesNothing() async throws {
    var count = 0
    for operation in Self.operations { count += try await failEachCall(of: operation) }
    print("proof: faults, files in directories: \(count) failing calls")
  }

  private func failEachCall(of operation: Operation) async throws -> Int {
    let (name, body, changes) = operation
    let usesDisk = name.hasSuffix("away")
    return try await failingEachCall(
      body,
      on: {
        let stage = try Stage(usesDisk: usesDisk)
        return (stage, [stage.home, stage.disk])
      },
      check: { stage, _, call in
        let failure = call.failure
        let comment: Comment = "\(name): \(call.comment)"
        let after = try stage.home.tree()
        let left = try stage.home.leftoverFiles() + stage.disk.leftoverFiles()
        #expect(left == [], comment)
        for (file, contents) in stage.before
        where !changes.contains(where: { file.hasPrefix($0) }) {
          #expect(after[file] == contents, comment)
        }
        let new = name == "save large" ? Self.large : Self.new
        for (file, contents) in after where file.hasSuffix("/k") && contents.hasPrefix("file") {
          let isOld = contents.hasSuffix(Self.old)
          if failure == nil, ["save", "save large", "adopt", "save chunks"].contains(name) {
            #expect(contents.hasSuffix(new), comment)
          } else {
            let isInPlace = call.isAfterChange { $0.hasSuffix("/" + file) }
            #expect(isOld || (isInPlace || failure == nil) && contents.hasSuffix(new), comment)
          }
        }
        if name.hasPrefix("move") {
          // In the source, in the target, or in both.
          let count = try stage.places(of: Self.old).count
          let kept = name == "move" ? 3...4 : 4...7
          #expect(kept.contains(count), comment)
          if name == "move", failure != nil, after["own/l"] != nil { #expect(count == 4, comment) }
        }
        if name.hasPrefix("copy directory") {
          // Everything or nothing.
          let copies = try stage.places(of: Self.old).count - 4
          #expect(copies == 0 || copies == 2, comment)
          if failure == nil { #expect(copies == 2, comment) }
        }
        if name.hasPrefix("adopt") {
          #expect(try stage.places(of: Self.new).count >= 1, comment)
          if let incoming = after["incoming"] {
            #expect(incoming == stage.before["incoming"], comment)
          }
        }
        if let failure {
          let call = name.split(separator: " ").first.map(String.init)
          #expect(failure.operation == call, comment)
        }
        // The folder works as before.
        try stage.directory.save("after", as: "after")
        #expect(try stage.directory.load("after") as String == "after", comment)
      })
  }

  @Test(arguments: [SystemCall.write, .fdatasync, .rename])
  func failureBeforeTheRenameKeepsTheOldFile(_ call: SystemCall) throws {
    let stage = try Stage()
    let plan = FaultPlan(decide: { $0.call == call ? .fail(EIO) : .proceed })
    for name in ["k", "d/a", "new"] {
      let error = expectFailure(.system(EIO)) {
        try FaultPlan.$current.withValue(plan) { try stage.directory.save(Self.new, as: name) }
      }
      #expect(error?.operation == "save")
    }
    #expect(try stage.home.tree() == stage.before)
  }

  @Test(arguments: [0, 1, 63, 799, 1_199])
  func shortWriteThenFullDiskKeepsTheOldFile(length: Int) async throws {
    for (name, body, _) in Self.operations
    where [
      "save", "save exclusively", "save chunks", "copy", "copy with progress", "move away",
      "copy directory away", "adopt away",
    ].contains(name) {
      let stage = try Stage()
      let isFull = Locked(false)
      let plan = FaultPlan(
        decide: { event in
          event.call == .clone || event.call == .write && isFull.withLock { $0 }
            ? .fail(ENOSPC) : .proceed
        },
        shorten: { _ in
          isFull.withLock { $0 = true }
          return length
        })
      do {
        try await FaultPlan.$current.withValue(plan) { try await body(stage) }
        // The text may be shorter than the accepted part, or not need the second file system.
        #expect(name.hasSuffix("away") || length >= 799, "\(name)")
      } catch {
        #expect((error as? StorageError)?.code == .diskFull, "\(name)")
        #expect(try stage.home.tree() == stage.before, "\(name)")
        #expect(try stage.disk.leftoverFiles() == [], "\(name)")
      }
    }
  }

  @Test func shortWritesAreContinued() throws {
    let stage = try Stage()
    let plan = FaultPlan(decide: { _ in .proceed }, shorten: { _ in 7 })
    try FaultPlan.$current.withValue(plan) {
      try stage.directory.save(Self.new, as: "k")
      try stage.directory.copy("k", to: "copy")
    }
    #expect(try stage.directory.load("k") as String == Self.new)
    #expect(try stage.directory.load("copy") as String == Self.new)
  }

  @Test func failingSweepDoesNotFailTheWrite() throws {
    let home = try TemporaryDirectory()
    let plan = FaultPlan(decide: { $0.call == .list || $0.call == .lock ? .fail(EIO) : .proceed })
    try FaultPlan.$current.withValue(plan) { try home.files.save("x", as: "f") }
    #expect(try home.text("f") == "x")
  }
}
