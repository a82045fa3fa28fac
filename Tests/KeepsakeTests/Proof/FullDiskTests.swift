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

      /// The command that makes the file system in an image, and the size of the image in MiB.
      fileprivate var format: (command: [String], size: Int)? {
        switch self {
        case .tmpfs: nil
        case .ext4: (["mkfs.ext4", "-q", "-F"], 16)
        case .xfs: (["mkfs.xfs", "-q"], 300)
        case .btrfs: (["mkfs.btrfs", "-q"], 128)
        case .btrfsMixed: (["mkfs.btrfs", "-q", "--mixed"], 32)
        }
      }
    }

    /// A mounted file system; nil if the system does not let the test mount it.
    private final class Mount {
      let directory: TemporaryDirectory
      private let image: TemporaryDirectory

      init?(_ disk: Disk) async throws {
        (directory, image) = (try TemporaryDirectory(), try TemporaryDirectory())
        guard let (command, size) = disk.format else {
          guard
            try await Self.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", directory.path])
          else { return nil }
          return
        }
        let path = image.file("image").path
        guard try await Self.run(["truncate", "-s", "\(size)M", path]),
          try await Self.run(command + [path]),
          try await Self.run(["mount", "-o", "loop", path, directory.path])
        else { return nil }
      }

      static func run(_ arguments: [String]) async throws -> Bool {
        try await Command.run(["/usr/bin/env"] + arguments).status == 0
      }

      /// Takes all space: first large pieces, then files that hardly need any.
      func fill() async throws {
        try FileManager.default.createDirectory(
          at: directory.file("filler"), withIntermediateDirectories: true)
        for size in ["64M", "16M", "4M", "1M", "256K", "64K", "16K", "4K"] {
          for number in 0..<12 {
            let path = directory.file("filler/\(size)-\(number)").path
            if try await !Self.run(["fallocate", "-l", size, path]) { break }
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

      /// Takes all space, as a program does that writes a log.
      func fillWithLog() throws {
        let log = try File(directory.file("log").path, .create)
        for size in [1 << 20, 1 << 16, 1 << 12, 1 << 8] {
          let bytes = [UInt8](repeating: 1, count: size)
          while (try? log.writeAll(bytes)) != nil {}
        }
      }

      deinit { umount2(directory.path, 2) }  // MNT_DETACH: stores may be open
    }

    @Test(arguments: Coverage.cases(Disk.allCases, every: Disk.allCases.count))
    func removalsWorkOnAFullDisk(disk: Disk) async throws {
      guard let mount = try await Mount(disk) else {
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
      try await mount.fill()
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
      _ = try await Mount.run(["sync", "-f", directory.path])
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
    func removalsWorkBesideAnIdleProcess(disk: Disk) async throws {
      guard let mount = try await Mount(disk) else { return }
      let suite = Defaults.Suite("app", in: mount.directory.url)
      var store = mount.directory.store(suite)
      for number in 0..<50 { try store.set("value", forKey: "k\(number)") }
      let opened = try File(mount.directory.file("app.jsonl").path, .read)
      try mount.fillWithLog()
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
      guard let upper = try await Mount(.tmpfs) else { return }
      let (lower, merged) = (try TemporaryDirectory(), try TemporaryDirectory())
      for number in 0..<20 { try lower.cache().set(number, forKey: "k\(number)") }
      for name in ["upper", "work"] {
        try FileSystem.makeDirectory(upper.directory.file(name).path, mode: 0o700)
      }
      let layers = "lowerdir=\(lower.path),upperdir=\(upper.directory.path)/upper"
      let options = layers + ",workdir=\(upper.directory.path)/work,redirect_dir=off"
      guard try await Mount.run(["mount", "-t", "overlay", "-o", options, "none", merged.path])
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
