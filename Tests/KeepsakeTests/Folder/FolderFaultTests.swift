import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What happens to files if a system call fails.
@Suite(.proofThread, .singleThreaded) struct FolderFaultTests {
  private static let old = String(repeating: Fault.mark + " old. ", count: 40)
  private static let new = String(repeating: Fault.mark + " new. ", count: 60)

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

  /// What a directory in memory cannot show: links, other file systems, and progress.
  private static let operations: [Operation] = [
    (
      "copy with progress", { try await $0.directory.copy("l", to: "k") { _, _ in } }, ["own/k"]
    ),
    ("copy link", { try $0.directory.copy("d/link", to: "k") }, ["own/k"]),
    ("move away", { try $0.directory.move("k", to: "a/k", in: $0.other) }, ["own/k"]),
    ("move link away", { try $0.directory.move("d/link", to: "k", in: $0.other) }, ["own/d/link"]),
    ("move directory away", { try $0.directory.move("d", to: "a/d", in: $0.other) }, ["own/d"]),
    ("copy directory away", { try $0.directory.copy("d", to: "a/d", in: $0.other) }, []),
    ("adopt away", { try $0.other.adopt($0.home.file("incoming"), as: "k") }, ["incoming"]),
    ("freeSpace", { _ = try $0.directory.subfolder("a/b").freeSpace }, []),
  ]

  @Test func eachFailingCallLeavesTheOldOrTheNewState() async throws {
    try await FaultSweep<FolderModel>().run()
  }

  @Test func aCallThatIsKilledLeavesTheOldOrTheNewState() throws {
    try FaultSweep<FolderModel>().runKills()
  }

  @Test func eachFailingSystemCallIsAnErrorAndLosesNothing() async throws {
    var count = 0
    for (index, operation) in Self.operations.enumerated() {
      count += try await failEachCall(of: operation, offset: index)
    }
    print("proof: faults, links and other disks: \(count) failing calls")
  }

  private func failEachCall(of operation: Operation, offset: Int) async throws -> Int {
    let (name, body, changes) = operation
    let usesDisk = name.hasSuffix("away")
    return try await failingEachCall(
      every: 6, offset: offset, body,
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
        for (file, contents) in after where file.hasSuffix("/k") && contents.hasPrefix("file") {
          let isOld = contents.hasSuffix(Self.old)
          let isInPlace = call.isAfterChange { $0.hasSuffix("/" + file) }
          #expect(isOld || (isInPlace || failure == nil) && contents.hasSuffix(Self.new), comment)
        }
        if name.hasPrefix("move") {
          // In the source, in the target, or in both.
          let count = try stage.places(of: Self.old).count
          #expect((4...7).contains(count), comment)
        }
        if name.hasPrefix("copy directory") {
          // Everything or nothing.
          let copies = try stage.places(of: Self.old).count - 4
          #expect(copies == 0 || copies == 2, comment)
          if failure == nil { #expect(copies == 2, comment) }
        }
        if name == "adopt away" {
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

  @Test func failingSweepDoesNotFailTheWrite() throws {
    let home = try TemporaryDirectory()
    let plan = FaultPlan(decide: { $0.call == .list || $0.call == .lock ? .fail(EIO) : .proceed })
    try FaultPlan.$current.withValue(plan) { try home.files.save("x", as: "f") }
    #expect(try home.text("f") == "x")
  }
}
