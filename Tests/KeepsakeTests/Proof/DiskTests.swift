import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// All stores on small disks with the usual file systems of Linux.
@Suite(
  .serialized, .singleThreaded, .multiprocess,
  .enabled(if: MountedDisk.isPossible, "needs root, mount(8), mkfs.ext4, mkfs.btrfs, mkfs.xfs"))
struct DiskTests {
  @Test(arguments: MountedDisk.kinds)
  func valuesSurviveAnotherProcessAndAMount(kind: String) async throws {
    let disk = try MountedDisk(kind)
    let directory = disk.directory
    do {
      let app = App(directory)
      try app.fill()
      for item in App.items { #expect(try App(directory).get(item) == item.value, "\(item)") }
      // Locks and published words are shared with another process.
      let peer = try Peer.start(directory, "serve")
      #expect(try peer.ask("set theirs 1") == "ok")
      #expect(try app.directory.store().int("theirs") == 1)
      #expect(peer.finish() == "")
      try directory.store().journal.compact()
      try directory.secrets().rotateKeys()
      let cache = directory.cache()
      for number in 0..<20 { try cache.set(Data(count: 8_000), forKey: "\(number)") }
      try aSecondAgo { try cache.set("v", forKey: "short", expiry: .seconds(0.001)) }
      try cache.remove("0")
      #expect(try cache.removeExpired() <= 1 && cache.get("short") == nil)
      #expect(try cache.totalSize > 19 * 8_000)
      let other = directory.cache("other")
      try other.set("v", forKey: "k", durable: true)
      try other.removeAll()
      #expect(try other.keys() == [])
      try directory.files.save("text", as: "x/y")
      try directory.files.move("x/y", to: "z")
      try directory.store().synchronize()
      #expect(app.failures.all.isEmpty, "\(app.failures.all)")
    }
    try await disk.remount()
    let app = App(directory)
    for item in App.items { #expect(try app.get(item) == item.value, "\(item)") }
    #expect(try directory.files.load("z") == "text")
    #expect(try directory.temporaries() + directory.leftoverFiles() == [])
  }

  @Test(arguments: MountedDisk.kinds)
  func killedWritersLoseNothing(kind: String) throws {
    let disk = try MountedDisk(kind)
    var last = 0
    for _ in 0..<Coverage.count("KEEPSAKE_KILLS", sample: 2, complete: 40) {
      let peer = try Peer.start(disk.directory, "acknowledge", "\(last)")
      let first = peer.line().flatMap { Int($0) } ?? last
      waitForARandomMoment(upTo: .milliseconds(20))
      kill(peer.identifier, SIGKILL)
      let said = peer.finish().split(separator: "\n").compactMap { Int($0) }
      last = said.last ?? first
      let value: String? = try disk.directory.store().get("key\(last % 50)")
      #expect(value?.hasPrefix("\(last) ") == true, "\(last): \(value?.prefix(20) ?? "nil")")
    }
  }

  /// The word is stored through a mapping. The disk is full, and nothing of the files in memory.
  @Test(arguments: ["ext4", "xfs"])
  func wordsAreStoredOnAFullDisk(kind: String) async throws {
    let disk = try MountedDisk(kind)
    let directory = disk.directory
    for number in 0...40 { try directory.store().set(number, forKey: "k\(number)") }
    try directory.store().synchronize()
    let filler = directory.file("filler").path
    do {
      let file = try File(filler, .create)
      for size in [16 << 20, 1 << 20, 64 << 10, 4 << 10] {
        while posix_fallocate(file.descriptor, off_t(try file.status().size), off_t(size)) == 0 {}
      }
    }
    try await disk.remount()
    #expect(throws: StorageError.self) {
      try File(directory.file("more").path, .create).writeAll(Array(repeating: 1, count: 1 << 20))
    }
    let (store, reader) = (directory.store(), directory.store())
    // The space that was allocated ahead is still there.
    var count = 0
    while (try? store.set(count, forKey: "a")) != nil {
      count += 1
      try #require(count < 1_000)
    }
    let calls = try systemCalls { try store.remove("k0") }
    #expect(calls.contains(.publish))
    for number in 1...30 {
      try store.remove("k\(number)")
      #expect(try !reader.contains("k\(number)") && !directory.store().contains("k\(number)"))
    }
    // The blocks belong to a copy, too, so that a store into the page needs a new one.
    let copy = try Child(
      "cp",
      ["--reflink=always", directory.file(TemporaryDirectory.journal).path, filler + "-copy"],
      mergesErrors: true)
    _ = copy.finish()
    for number in 31...40 {
      var isRemoved = true
      do {
        try store.remove("k\(number)")
      } catch {
        #expect(error.code == .diskFull)
        isRemoved = false
      }
      let seen = try [reader, directory.store(), store].map { try $0.contains("k\(number)") }
      #expect(seen == Array(repeating: !isRemoved, count: 3), "\(kind): \(seen)")
    }
    try FileSystem.unlink(filler)
    try store.set(-1, forKey: "a")
    #expect(try reader.int("a") == -1 && directory.store().int("a") == -1)
  }
}
