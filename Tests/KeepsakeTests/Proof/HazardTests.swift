import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// Exhausted limits, forks, a changed clock, and disks that are full or read-only: each store
  /// throws a clear error, loses nothing, and works again afterwards.
  @Suite(.singleThreaded) struct HazardTests {
    private static let stores = ["settings", "engine", "secrets", "cache", "file"]

    private func start(_ directory: TemporaryDirectory) throws -> Child {
      try Peer.start(directory, "hazards")
    }

    /// Sets `k` in each store, in a process that then ends.
    private func fill(_ directory: TemporaryDirectory) throws {
      let peer = try start(directory)
      for store in Self.stores { #expect(try peer.ask("set \(store) k old") == "ok") }
      #expect(peer.finish() == "")
    }

    /// A process that has `k` in each store, and all stores open.
    private func startWithOpenStores() throws -> (directory: TemporaryDirectory, peer: Child) {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let peer = try start(directory)
      try expectAll("old", in: peer, "before")
      return (directory, peer)
    }

    private func expectAll(
      _ value: String, _ key: String = "k", in peer: Child, _ comment: Comment
    ) throws {
      for store in Self.stores {
        #expect(try peer.ask("get \(store) \(key)") == value, "\(comment): \(store)")
      }
    }

    /// Expects a new process to find all values and to be able to store more.
    private func expectIntact(_ directory: TemporaryDirectory, _ comment: Comment) throws {
      let peer = try start(directory)
      try expectAll("old", in: peer, comment)
      for store in Self.stores { #expect(try peer.ask("set \(store) next next") == "ok", comment) }
      try expectAll("next", "next", in: peer, comment)
      #expect(peer.finish() == "", comment)
    }

    /// Skips reports, such as those of failures to watch or to sync.
    private func ask(_ peer: Child, _ request: String) throws -> String? {
      try peer.writeLine(request)
      while let line = peer.line() {
        if !line.hasPrefix("report ") { return line }
      }
      return nil
    }

    // MARK: Limits of a process

    @Test(arguments: [true, false])
    func eachStoreExplainsThatDescriptorsHaveRunOut(isOpen: Bool) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let peer = try start(directory)
      if isOpen { try expectAll("old", in: peer, "before") }
      #expect(try ask(peer, "limit files 3") == "ok")
      for store in Self.stores {
        for request in ["get \(store) k", "set \(store) k new"] {
          let answer = try #require(try ask(peer, request))
          // A call that needs no new descriptor succeeds.
          let isDone = isOpen && ["ok", "old"].contains(answer)
          #expect(
            isDone || answer.contains("Close files, or raise the limit on open descriptors."),
            "\(request): \(answer)")
        }
      }
      #expect(try ask(peer, "limit files 1000") == "ok")
      for store in Self.stores {
        let value = try ask(peer, "get \(store) k")
        #expect(value == "old" || isOpen && value == "new", "\(store)")
        #expect(try ask(peer, "set \(store) k old") == "ok", "\(store)")
      }
      peer.finish()
      #expect(peer.exitStatus == 0)
      try expectIntact(directory, "afterwards")
    }

    /// Any of the descriptors that watching needs may be the first that is missing.
    @Test func watchingWithoutDescriptorsRecovers() async throws {
      var peers: [(directory: TemporaryDirectory, peer: Child, comment: Comment)] = []
      for (free, isOpen) in (0...3).flatMap({ [($0, true), ($0, false)] }) {
        let directory = try TemporaryDirectory(isQuick: true)
        try fill(directory)
        let peer = try start(directory)
        if isOpen { try expectAll("old", in: peer, "before") }
        let comment: Comment = "\(free) free, \(isOpen ? "open" : "not open")"
        #expect(try ask(peer, "leave \(free)") == "ok", comment)
        #expect(try ask(peer, "watch k") == "ok", comment)
        peers.append((directory, peer, comment))
      }
      // Longer than the interval of polling without a watch, and than the delay of a sync.
      try await Task.sleep(for: .milliseconds(1_500))
      for (directory, peer, comment) in peers {
        guard peer.isRunning else {
          Issue.record("\(comment): it ended with \(peer.exitStatus)")
          continue
        }
        #expect(try ask(peer, "set settings k old") != nil, comment)
        #expect(try ask(peer, "give-back") == "ok", comment)
        for request in ["watch k", "set settings k old"] {
          #expect(try ask(peer, request) == "ok", comment)
        }
        for store in Self.stores { #expect(try ask(peer, "get \(store) k") == "old", comment) }
        peer.finish()
        #expect(peer.exitStatus == 0, comment)
        try expectIntact(directory, comment)
      }
    }

    @Test func aFailureToLockMemoryIsReportedOnce() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let peer = try start(directory)
      if geteuid() == 0 {
        // Root is exempt from the limit.
        try #require(chown(directory.path, 65_534, 65_534) == 0)
        #expect(try peer.ask("become 65534") == "ok")
      }
      #expect(try peer.ask("limit memory 0") == "ok")
      let lines = [try peer.ask("set secrets k value"), peer.line()].compactMap { $0 }
      #expect(lines.contains("ok"))
      #expect(lines.contains { $0.hasPrefix("report ") && $0.contains("ulimit -l") }, "\(lines)")
      #expect(try peer.ask("get secrets k") == "value")
      #expect(try peer.ask("set secrets k other") == "ok")
      #expect(peer.finish() == "")
    }

    /// A write beyond the limit raises SIGXFSZ, which ends a program unless the program ignores it.
    /// The library leaves that choice to the program, and loses no stored value either way.
    @Test(arguments: stores)
    func aFileSizeLimitLosesNothing(store: String) throws {
      let (directory, killed) = try startWithOpenStores()
      #expect(try killed.ask("limit size 20000") == "ok")
      #expect(try killed.ask("fill \(store) k 100000") == nil)
      #expect(killed.exitStatus == 128 + SIGXFSZ)
      let peer = try start(directory)
      try expectAll("old", in: peer, "after the signal")
      #expect(try peer.ask("ignore-size") == "ok")
      #expect(try peer.ask("limit size 20000") == "ok")
      let answer = try #require(try peer.ask("fill \(store) k 100000"))
      #expect(
        answer.contains("size limit") && answer.contains("Raise the file-size limit"), "\(answer)")
      try expectAll("old", in: peer, "after the error")
      #expect(try peer.ask("limit size 1000000") == "ok")
      #expect(try peer.ask("fill \(store) large 100000") == "ok")
      #expect(peer.finish() == "")
      try expectIntact(directory, "afterwards")
    }

    @Test func aForkedChildAndItsParentBothWriteToEachStore() throws {
      let (directory, peer) = try startWithOpenStores()
      #expect(try peer.ask("fork 50") == "ok")
      let next = try start(directory)
      for reader in [peer, next] {
        try expectAll("old", in: reader, "after the fork")
        for writer in ["child", "parent"] {
          for number in 0..<10 {
            try expectAll(
              "\(writer)\(number + 40)", "\(writer)\(number)", in: reader, "after the fork")
          }
        }
      }
      for reader in [peer, next] { #expect(reader.finish() == "") }
      #expect(try Bytes.read(directory.path + "/files/count.json") == Array("100".utf8))
      #expect(try directory.store().int("count") == 100)
    }

    /// Daemons close all descriptors, also those that are not their own.
    @Test(arguments: ["fork 24", "plain 24", "fork 0", "plain 0"], [true, false])
    func theDescriptorsOfAProgramStayItsOwn(kind: String, isWriterFirst: Bool) throws {
      let (directory, peer) = try startWithOpenStores()
      defer { withExtendedLifetime(directory) {} }
      for store in Self.stores { #expect(try peer.ask("set \(store) own own") == "ok") }
      #expect(try peer.ask("take-over \(kind)") == "ok")
      if !isWriterFirst { try expectAll("old", in: peer, "reading first") }
      for store in Self.stores {
        #expect(try peer.ask("set \(store) k new") == "ok", "\(store)")
        #expect(try peer.ask("own") == "ok", "\(store)")
      }
      try expectAll("new", in: peer, "afterwards")
      try expectAll("own", "own", in: peer, "afterwards")
      #expect(try peer.ask("own") == "ok")
      #expect(peer.finish() == "")
      #expect(peer.exitStatus == 0)
    }

    /// The library opens its files again, and some of them get the numbers that they had.
    @Test(arguments: ["fork 0", "plain 0"])
    func eachStoreGoesOnAfterTheProgramHasClosedAllDescriptors(kind: String) throws {
      let (directory, peer) = try startWithOpenStores()
      let other = try start(directory)
      #expect(try peer.ask("take-over \(kind)") == "ok")
      for value in ["first", "second", "third"] {
        for store in Self.stores { #expect(try other.ask("set \(store) k \(value)") == "ok") }
        try expectAll(value, in: peer, "after the descriptors were closed")
      }
      for process in [peer, other] { #expect(process.finish() == "") }
    }

    @Test(arguments: [0, 24])
    func followingGoesOnAfterTheProgramHasClosedAllDescriptors(ownCount: Int) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let peer = try start(directory)
      let other = try start(directory)
      #expect(try peer.ask("follow k") == "ok")
      for value in ["first", "second"] {
        #expect(try other.ask("set settings k \(value)") == "ok")
        var line: String?
        repeat { line = peer.line() } while line != nil && line != "changed \(value)"
        #expect(line == "changed \(value)")
        if value == "first" { #expect(try peer.ask("take-over plain \(ownCount)") == "ok") }
      }
      #expect(try peer.ask("own") == "ok")
      #expect(other.finish() == "")
      #expect(peer.finish() == "")
    }

    // MARK: The clock

    @Test(arguments: [-10 * 365, -2, 1, 10 * 365])
    func changingTheClockLosesNothing(days: Int) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try App(directory).fill()
      let size = try directory.cache().totalSize
      try directory.cache().set("short-lived", forKey: "lasting", expiry: .hours(1))
      let shift = Int64(days) * 86_400 * WallClock.second
      func expectAll(_ app: App, _ comment: Comment) throws {
        for (item, found) in try app.findAll() {
          #expect(found == .value(item.value), "\(comment): \(item) is \(found)")
        }
      }
      let open = App(directory)
      try expectAll(open, "before")
      try WallClock.$fixed.withValue(WallClock.now + shift) {
        #expect(try directory.cache().totalSize == size)
        for app in [open, App(directory)] {
          try expectAll(app, "under another time")
          for store in App.Store.allCases {
            let item = App.Item(store: store, key: "c")
            try app.set(item.value, for: item)
            #expect(try app.get(item) == item.value && App(directory).get(item) == item.value)
          }
        }
        // Its hour is over or has not begun, depending on the direction.
        #expect(try directory.cache().get("lasting") == nil)
        try directory.cache().removeExpired()
        try expectAll(App(directory), "after a sweep")
      }
      for app in [open, App(directory)] {
        try expectAll(app, "with the clock set right")
        for store in App.Store.allCases {
          let item = App.Item(store: store, key: "c")
          #expect(try app.get(item) == item.value)
        }
      }
    }

    // MARK: The disk

    /// Mounts a small file system on a test's directory; false without the right to do so.
    static func mountDisk(at directory: TemporaryDirectory) -> Bool {
      mount("tmpfs", directory.path, "tmpfs", 0, "size=1m,mode=700") == 0
    }

    static func unmountDisk(at directory: TemporaryDirectory) {
      umount2(directory.path, 2)  // MNT_DETACH: stores may be open
    }

    /// Found by trying: in some containers even root may not mount.
    static let canMount: Bool = {
      guard let directory = try? TemporaryDirectory(), mountDisk(at: directory) else {
        return false
      }
      unmountDisk(at: directory)
      return true
    }()

    @Test(
      .enabled(if: canMount, "a file system cannot be mounted here"),
      arguments: ["tmpfs"] + (MountedDisk.isPossible ? MountedDisk.kinds : []))
    func eachStoreThrowsOnAFullDiskAndLosesNothing(kind: String) throws {
      let disk = try MountedDisk(kind, mebibytes: kind == "tmpfs" ? 1 : 120)
      let directory = disk.directory
      let app = App(directory)
      try app.fill()
      let large = String(repeating: "x", count: 60_000)
      let log = try disk.fill()
      var values = Dictionary(uniqueKeysWithValues: App.items.map { ($0, $0.value) })
      for app in [app, App(directory)] {
        for item in App.items {
          do throws(any Error) {
            try app.set(large, for: item)
            // Other file systems may find some space after all.
            #expect(kind != "tmpfs", "\(item)")
            values[item] = large
          } catch {
            let error = try #require(error as? StorageError)
            let isClear = error.remedy.contains("Free some space") && error.path != nil
            #expect(error.code == .diskFull && isClear, "\(item): \(error)")
          }
        }
        for (item, found) in try app.findAll() {
          #expect(found == .value(values[item] ?? ""), "\(item) is \(found)")
        }
      }
      #expect(values.values.contains { $0 != large })
      let left = try directory.temporaries() + directory.leftoverFiles()
      #expect(left == [])
      try disk.makeRoom(log)
      for app in [app, App(directory)] {
        for (item, value) in values {
          #expect(try app.get(item) == value, "\(item)")
          try app.set(large, for: App.Item(store: item.store, key: "c"))
          try app.set(value, for: item)
        }
      }
      for (item, value) in values { #expect(try App(directory).get(item) == value, "\(item)") }
    }

    @Test(.enabled(if: canMount, "a file system cannot be mounted here"))
    func aReadOnlyDiskIsReadableAndWritesExplainTheFailure() async throws {
      let directory = try TemporaryDirectory()
      try #require(Self.mountDisk(at: directory))
      defer { Self.unmountDisk(at: directory) }
      try App(directory).fill()
      // A file system with files open for writing cannot be remounted.
      let resources = HeldResources()
      resources.add(directory.path, "before it turns read-only")
      try await resources.expectReleased()
      func remount(_ flags: Int32) async throws {
        let flags = UInt(MS_REMOUNT) | UInt(flags)
        var isMounted = false
        // A process that another test is starting has all files open until it executes its program.
        try await eventually("\(directory.path) cannot be mounted again") {
          isMounted = mount("tmpfs", directory.path, "tmpfs", flags, "size=1m") == 0
          return isMounted || errno != EBUSY
        }
        try #require(isMounted)
      }
      try await remount(Int32(MS_RDONLY))
      let app = App(directory)
      for item in App.items {
        #expect(try app.get(item) == item.value, "\(item)")
        let error = expectFailure(.accessDenied) { try app.set("new", for: item) }
        #expect(error?.reason?.contains("read-only") == true, "\(item): \(error?.remedy ?? "")")
        #expect(try app.get(item) == item.value, "\(item)")
      }
      try await remount(0)
      for app in [app, App(directory)] {
        for item in App.items {
          try app.set("new", for: item)
          #expect(try app.get(item) == "new", "\(item)")
        }
      }
    }
  }
}
