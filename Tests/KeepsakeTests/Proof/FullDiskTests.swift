import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// Removals on file systems that have no byte left, where the system lets the test mount them.
  @Suite(.singleThreaded, .serialized) struct FullDiskTests {
    enum Disk: String, CaseIterable {
      case tmpfs, ext4, xfs, btrfs
      /// btrfs with files and their names in the same blocks, so that not even those are left.
      case btrfsMixed = "btrfs mixed"

      /// A mounted one; nil if the system does not let the test mount it.
      func mount() -> MountedDisk? {
        let (kind, size, options): (String, Int, [String]) =
          switch self {
          case .tmpfs: ("tmpfs", 2, [])
          case .ext4: ("ext4", 16, [])
          case .xfs: ("xfs", 300, [])
          case .btrfs: ("btrfs", 128, [])
          case .btrfsMixed: ("btrfs", 32, ["--mixed"])
          }
        return try? MountedDisk(kind, mebibytes: size, options: options)
      }
    }

    /// Takes all space: first large pieces, then files that hardly need any.
    private func fill(_ directory: TemporaryDirectory) throws {
      try directory.makeDirectory("filler")
      for shift in stride(from: 26, through: 12, by: -2) {
        for number in 0..<12 {
          let path = directory.file("filler/\(shift)-\(number)").path
          guard let file = try? File(path, .create),
            posix_fallocate(file.descriptor, 0, 1 << shift) == 0
          else { break }
        }
      }
      var failures = 0
      for number in 0..<20_000 where failures < 20 {
        let path = directory.file("filler/\(number)").path
        do {
          try File(path, .create).writeAll(Array(repeating: 1, count: 1_000))
        } catch {
          failures += 1
        }
      }
    }

    private func run(_ arguments: [String]) async throws -> Bool {
      try await Command.run(["/usr/bin/env"] + arguments).status == 0
    }

    @Test(arguments: Coverage.cases(Disk.allCases, every: Disk.allCases.count))
    func removalsWorkOnAFullDisk(disk: Disk) async throws {
      guard let mount = disk.mount() else {
        print("proof: full disk: \(disk.rawValue) cannot be mounted here")
        return
      }
      let directory = mount.directory
      let cache = directory.cache()
      for number in 0..<20 { try cache.set(Data(count: 10_000), forKey: "k\(number)") }
      try cache.set(Data(count: 10_000), forKey: "old", expiry: .seconds(0.01))
      let secrets = directory.secrets()
      for number in 0..<3 { try secrets.set("secret", forKey: "k\(number)") }
      try directory.write([1, 2, 3], to: "file")
      let folder = Folder(directory.url)
      func openSettings(_ name: String) -> Defaults.Store {
        directory.store(Defaults.Suite(name, in: directory.url))
      }
      let (small, large) = (openSettings("small"), openSettings("large"))
      for number in 0..<100 { try small.set("value", forKey: "k\(number)") }
      for number in 0..<200 {
        try large.set(String(repeating: "v", count: 1_000), forKey: "k\(number)")
      }
      try fill(directory)
      var lines: [String] = []
      func check(_ name: String, _ body: () throws -> Bool) {
        do {
          if try !body() { lines.append("\(name): no effect") }
        } catch {
          lines.append("\(name): \(error)")
        }
      }
      #expect(throws: StorageError.self) { try cache.set(Data(count: 1_000_000), forKey: "large") }
      check("failed set") { try !cache.contains("large") && !directory.cache().contains("large") }
      for number in 0..<20 {
        check("set over") {
          let isSet = (try? cache.set(Data(count: 20_000), forKey: "k\(number)")) != nil
          return try cache.get("k\(number)")?.count == (isSet ? 20_000 : 10_000)
        }
      }
      for (name, store, rest) in [("small", small, 0), ("large", large, 100)] {
        // Until the last block of the journal is full, unless the file system took more in advance.
        for number in 0..<1_000 {
          let value = String(repeating: "w", count: 100)
          if (try? store.set(value, forKey: "filler\(number % 4)")) == nil { break }
        }
        // About as many as the space takes that is kept for them.
        for number in 0..<70 {
          check("\(name): remove") {
            try store.remove("k\(number)")
            return try !store.contains("k\(number)")
          }
        }
        check("\(name): remove, opened again") {
          let opened = openSettings(name)
          return try (0..<200).count { try opened.contains("k\($0)") } == rest + 30
        }
        check("\(name): removeAll") {
          try store.removeAll()
          return try store.keys().isEmpty && openSettings(name).keys().isEmpty
        }
      }
      check("remove") {
        try cache.remove("k0")
        return try !cache.contains("k0") && !directory.cache().contains("k0")
      }
      check("totalSize") { try cache.totalSize > 0 }
      check("removeExpired") {
        try cache.removeExpired()
        return try !cache.keys().contains("old")
      }
      check("evict") {
        cache.sizeLimit = 100_000
        try waitUntil("entries are evicted") { try cache.keys().count <= 10 }
        cache.sizeLimit = nil
        return try (1...10).contains(cache.keys().count)
      }
      check("secrets.remove") {
        try secrets.remove("k0")
        return try !secrets.contains("k0") && directory.secrets().get("k1") == "secret"
      }
      check("secrets.removeAll") {
        try secrets.removeAll()
        return try directory.secrets().keys().isEmpty
      }
      check("folder.delete") {
        try folder.delete("file")
        return try FileSystem.status(directory.file("file").path) == nil
      }
      check("removeAll") {
        try cache.removeAll()
        return try cache.keys().isEmpty && cache.totalSize == 0
      }
      check("trash") {
        try waitUntil("the trash is removed") { try directory.names("caches/standard").isEmpty }
        return true
      }
      try FileManager.default.removeItem(at: directory.file("filler"))
      // btrfs reuses space after the next commit.
      _ = try await run(["sync", "-f", directory.path])
      check("small: set again") {
        try small.set("value", forKey: "k")
        return try openSettings("small").get("k") == "value"
      }
      check("set again") {
        try directory.cache().set(Data(count: 5_000), forKey: "k")
        return try cache.get("k")?.count == 5_000
      }
      #expect(lines == [], "\(disk.rawValue)")
      print("proof: full disk: \(disk.rawValue)")
    }

    /// An idle process keeps the journal open that it has read, so that its blocks stay in use.
    @Test(arguments: Coverage.cases([Disk.tmpfs, .ext4, .btrfs], every: 3))
    func removalsWorkBesideAnIdleProcess(disk: Disk) throws {
      guard let mount = disk.mount() else { return }
      let suite = Defaults.Suite("app", in: mount.directory.url)
      var store = mount.directory.store(suite)
      for number in 0..<50 { try store.set("value", forKey: "k\(number)") }
      let opened = try File(mount.directory.file("app.jsonl").path, .read)
      _ = try mount.fill()
      while (try? store.set(1, forKey: "filler")) != nil {}
      for number in 0..<50 {
        try store.remove("k\(number)")
        expectFailure(.diskFull) { try store.set("value", forKey: "k\(number)") }
        // As another process would.
        if number % 10 == 3 { store = mount.directory.store(suite) }
      }
      let keys = try mount.directory.store(suite).keys()
      #expect(keys.filter { $0.hasPrefix("k") } == [])
      withExtendedLifetime(opened) {}
    }

    @Test func removeAllWorksInTheLowerLayerOfAnOverlay() async throws {
      guard let upper = Disk.tmpfs.mount() else { return }
      let (lower, merged) = (try TemporaryDirectory(), try TemporaryDirectory())
      for number in 0..<20 { try lower.cache().set(number, forKey: "k\(number)") }
      for name in ["upper", "work"] {
        try FileSystem.makeDirectory(upper.directory.file(name).path, mode: 0o700)
      }
      let layers = "lowerdir=\(lower.path),upperdir=\(upper.directory.path)/upper"
      let options = layers + ",workdir=\(upper.directory.path)/work,redirect_dir=off"
      guard try await run(["mount", "-t", "overlay", "-o", options, "none", merged.path])
      else { return }
      defer { umount2(merged.path, 2) }
      let (store, other) = (merged.cache(), merged.cache())
      #expect(try store.model("k1") == 1 && other.keys().count == 20)
      try store.set("new", forKey: "new")
      try store.remove("k1")
      try store.removeAll()
      for cache in [store, other, merged.cache()] {
        #expect(try cache.keys().isEmpty && cache.totalSize == 0)
      }
      try other.set("after", forKey: "k2")
      #expect(try store.model("k2") == "after" && lower.cache().keys().count == 20)
    }
  }
}

extension TemporaryDirectory {
  /// What was moved away to be deleted.
  fileprivate func names(_ path: String) throws -> [String] {
    try FileSystem.list(self.path + "/" + path).filter { $0.hasSuffix(".trash") }
  }
}
