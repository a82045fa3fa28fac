import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Files that are saved only if nothing has their name.
@Suite struct FolderCreatingTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws {
    home = try TemporaryDirectory(isQuick: true)
    try home.setMode(0o700)
  }

  @Test func existingFilesFoldersAndLinksStay() async throws {
    try directory.save("new", as: "d/f", replacing: false)
    try home.link("link", to: "/keepsake-nowhere")
    let before = try home.tree()
    #expect(before["d/f"] == "file 600 new")
    for name in ["d/f", "d", "link"] {
      let error = expectFailure(.alreadyExists) {
        try directory.save("other", as: name, replacing: false)
      }
      #expect(error?.operation == "save" && error?.path == home.path + "/" + name)
      #expect(error?.description.contains("something has this name already") == true)
      let isRead = Locked(false)
      let chunks = AsyncStream<[UInt8]> {
        isRead.withLock { $0 = true }
        return nil
      }
      await #expect {
        try await directory.save(chunks: chunks, as: name, replacing: false)
      } throws: {
        ($0 as? StorageError)?.code == .alreadyExists
      }
      #expect(!isRead.withLock { $0 }, "refused before the sequence is read")
    }
    #expect(try home.tree() == before)
    try directory.save("other", as: "d/f")
    #expect(try directory.load("d/f") == "other")
  }

  @Test func aFileThatAppearsMeanwhileStays() async throws {
    let directory = directory
    await #expect {
      try await directory.save(
        chunks: FolderNameTests.chunks([[1], [2]]), as: "f", replacing: false
      ) { bytes, _ in
        if bytes == 1 { try? directory.save("first", as: "f", replacing: false) }
      }
    } throws: {
      ($0 as? StorageError)?.code == .alreadyExists
    }
    #expect(try home.tree() == ["f": "file 600 first"])
    try await directory.save(chunks: FolderNameTests.chunks([[1]]), as: "g", replacing: false)
    #expect(try directory.load("g") as Data == Data([1]))
  }

  /// How often each call fails on file systems that lack the rename, and also hard links.
  private static let lacking: [[SystemCall: Int]] = [[:], [.rename: 1], [.rename: 1, .link: 1]]

  @Test(arguments: lacking) func otherFileSystemsRefuseToo(lacking: [SystemCall: Int]) throws {
    let home = home
    for (name, isTaken) in [("f", false), ("g", true)] {
      let failures = Locked(lacking)
      let plan = FaultPlan(decide: { event in
        // After the file was written, and before it gets its name.
        if isTaken, event.call == .fdatasync { try? home.write(Array("first".utf8), to: name) }
        return failures.withLock { failures in
          guard let count = failures[event.call], count > 0 else { return .proceed }
          failures[event.call] = count - 1
          return .fail(EINVAL)
        }
      })
      let code = FaultPlan.$current.withValue(plan) { () -> StorageError.Code? in
        do throws(StorageError) {
          try directory.save("second", as: name, replacing: false)
          return nil
        } catch {
          return error.code
        }
      }
      #expect(code == (isTaken ? .alreadyExists : nil))
      #expect(try home.text(name) == (isTaken ? "first" : "second"))
    }
    #expect(try home.names() == ["f", "g"])
  }

  @Test(arguments: [[], [.rename]] as [Set<SystemCall>])
  func oneOfSeveralThreadsSucceeds(lacking: Set<SystemCall>) async throws {
    let directory = directory
    for round in 0..<Coverage.count(sample: 20, complete: 300) {
      let winners = await withTaskGroup(of: Int?.self) { group in
        for number in 0..<4 {
          group.addTask {
            try? await StorageSystem.perform {
              let plan = FaultPlan(decide: { event in
                lacking.contains(event.call) ? .fail(EINVAL) : .proceed
              })
              try FaultPlan.$current.withValue(plan) {
                try directory.save(number, as: "\(round)", replacing: false)
              }
              return number
            }
          }
        }
        return await group.reduce(into: []) { $0 += $1.map { [$0] } ?? [] }
      }
      #expect(winners.count == 1)
      #expect(try [directory.load("\(round)") as Int] == winners)
    }
    #expect(try home.leftoverFiles() == [])
  }

  @Test func oneCallMakesTheFileVisible() throws {
    try directory.save("x", as: "x")
    let calls = try systemCalls { try directory.save("y", as: "y", replacing: false) }
    #expect(calls.suffix(4) == [.write, .fdatasync, .rename, .fsync])
  }
}
