import Foundation
import Testing

@testable import Keepsake

extension OneAtATime {
  /// What can befall a whole process or its disk: a clear error, nothing lost, and all works again
  /// afterwards.
  @Suite struct HazardTests {
    private static let stores = ["settings", "engine", "secrets", "cache", "file"]

    private func start(_ directory: TemporaryDirectory) throws -> Child {
      try Peer.start(directory, "hazards")
    }

    /// A value under `k` in each store, set by a process that is gone.
    private func fill(_ directory: TemporaryDirectory) throws {
      let peer = try start(directory)
      for store in Self.stores { #expect(try peer.ask("set \(store) k old") == "ok") }
      #expect(peer.finish() == "")
    }

    private func expectAll(
      _ value: String, _ key: String = "k", in peer: Child, _ comment: Comment
    ) throws {
      for store in Self.stores {
        #expect(try peer.ask("get \(store) \(key)") == value, "\(comment): \(store)")
      }
    }

    /// What a new process finds, and whether it can go on.
    private func expectIntact(_ directory: TemporaryDirectory, _ comment: Comment) throws {
      let peer = try start(directory)
      try expectAll("old", in: peer, comment)
      for store in Self.stores { #expect(try peer.ask("set \(store) next next") == "ok", comment) }
      try expectAll("next", "next", in: peer, comment)
      #expect(peer.finish() == "", comment)
    }

    // MARK: Limits of a process

    @Test(arguments: [true, false])
    func withoutDescriptorsEachStoreSaysWhatToDo(isOpen: Bool) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let peer = try start(directory)
      if isOpen { try expectAll("old", in: peer, "before") }
      #expect(try peer.ask("limit files 3") == "ok")
      for store in Self.stores {
        for request in ["get \(store) k", "set \(store) k new"] {
          let answer = try #require(try peer.ask(request))
          // What needs no new descriptor is done.
          let isDone = isOpen && ["ok", "old"].contains(answer)
          #expect(
            isDone || answer.contains("Close files or raise the limit on open descriptors."),
            "\(request): \(answer)")
        }
      }
      #expect(try peer.ask("limit files 1000") == "ok")
      for store in Self.stores {
        let value = try peer.ask("get \(store) k")
        #expect(value == "old" || isOpen && value == "new", "\(store)")
        #expect(try peer.ask("set \(store) k old") == "ok", "\(store)")
      }
      #expect(peer.finish() == "")
      try expectIntact(directory, "afterwards")
    }

    /// Whatever the watch has of the system, it may be the first thing to be missing.
    @Test func whoWatchesWithoutDescriptorsGoesOn() async throws {
      var peers: [(directory: TemporaryDirectory, peer: Child, comment: Comment)] = []
      /// Failures to watch are reported besides.
      func ask(_ peer: Child, _ request: String) throws -> String? {
        try peer.say(request)
        while let line = peer.line() {
          if !line.hasPrefix("report ") { return line }
        }
        return nil
      }
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
      // As long as it takes to look again where there is no watch, and to sync.
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

    @Test func memoryThatMayNotBeLockedIsReportedOnce() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let peer = try start(directory)
      if geteuid() == 0 {
        // The limit is not for root.
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

    /// A write beyond the limit sends SIGXFSZ, which ends a program unless it ignores it: that is
    /// the program's affair and no library's. Nothing that was there is lost.
    @Test(arguments: stores)
    func aFileSizeLimitEndsAProgramOrIsAnErrorAndLosesNothing(store: String) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let killed = try start(directory)
      try expectAll("old", in: killed, "before")
      #expect(try killed.ask("limit size 20000") == "ok")
      #expect(try killed.ask("fill \(store) k 100000") == nil)
      #expect(killed.exitStatus == 128 + SIGXFSZ)
      let peer = try start(directory)
      try expectAll("old", in: peer, "after the signal")
      #expect(try peer.ask("ignore-size") == "ok")
      #expect(try peer.ask("limit size 20000") == "ok")
      let answer = try #require(try peer.ask("fill \(store) k 100000"))
      #expect(
        answer.contains("disk full") && answer.contains("Raise the file-size limit"), "\(answer)")
      try expectAll("old", in: peer, "after the error")
      #expect(try peer.ask("limit size 1000000") == "ok")
      #expect(try peer.ask("fill \(store) large 100000") == "ok")
      #expect(peer.finish() == "")
      try expectIntact(directory, "afterwards")
    }

    @Test func aForkedChildAndItsParentLoseNothingInAnyStore() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try fill(directory)
      let peer = try start(directory)
      try expectAll("old", in: peer, "before")
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

    // MARK: The clock

    @Test(arguments: [-10 * 365, -2, 1, 10 * 365])
    func aClockThatIsSetLosesNothing(days: Int) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try App(directory).fill()
      let size = try directory.cache().totalSize
      try directory.cache().set("soon over", forKey: "lasting", expiry: .hours(1))
      let shift = Int64(days) * 86_400 * WallClock.second
      func expectAll(_ app: App, _ comment: Comment) throws {
        for (place, found) in try app.findAll() {
          #expect(found == .value(place.value), "\(comment): \(place) is \(found)")
        }
      }
      let open = App(directory)
      try expectAll(open, "before")
      try WallClock.$shift.withValue(shift) {
        // But for what has a lifetime, which is over or has not begun.
        #expect(try directory.cache().totalSize == size)
        for app in [open, App(directory)] {
          try expectAll(app, "under another time")
          for store in App.Store.allCases {
            let place = App.Place(store: store, key: "c")
            try app.set(place.value, at: place)
            #expect(try app.get(place) == place.value && App(directory).get(place) == place.value)
          }
        }
        // Its hour is over, or has not begun.
        #expect(try directory.cache().get("lasting") == nil)
        try directory.cache().removeExpired()
        try expectAll(App(directory), "after a sweep")
      }
      for app in [open, App(directory)] {
        try expectAll(app, "with the clock set right")
        for store in App.Store.allCases {
          let place = App.Place(store: store, key: "c")
          #expect(try app.get(place) == place.value)
        }
      }
    }

    // MARK: The disk

    /// Puts a small file system in the place of a test's directory; false where that may not be.
    private static func mountDisk(at directory: TemporaryDirectory) -> Bool {
      mount("tmpfs", directory.path, "tmpfs", 0, "size=1m,mode=700") == 0
    }

    private static func unmountDisk(at directory: TemporaryDirectory) {
      umount2(directory.path, 2)  // MNT_DETACH: stores may be open
    }

    /// Found out by doing it: not even root may in some containers.
    private static let canMount: Bool = {
      guard let directory = try? TemporaryDirectory(), mountDisk(at: directory) else {
        return false
      }
      unmountDisk(at: directory)
      return true
    }()

    @Test(.enabled(if: canMount, "a file system cannot be mounted here"))
    func aFullDiskIsAnErrorInEachStoreAndLosesNothing() throws {
      let directory = try TemporaryDirectory()
      try #require(Self.mountDisk(at: directory))
      defer { Self.unmountDisk(at: directory) }
      let app = App(directory)
      try app.fill()
      let large = String(repeating: "x", count: 60_000)
      let filler = directory.file("filler").path
      let file = try File(filler, .create)
      let chunk = [UInt8](repeating: 1, count: 4_096)
      let isFull = (0..<1_000).contains { _ in (try? file.writeAll(chunk)) == nil }
      #expect(isFull)
      for app in [app, App(directory)] {
        for place in App.places {
          let error = expectFailure(.diskFull) { try app.set(large, at: place) }
          #expect(
            error?.remedy.contains("Free some space") == true && error?.path != nil, "\(place)")
        }
        for (place, found) in try app.findAll() {
          #expect(found == .value(place.value), "\(place) is \(found)")
        }
      }
      let left = try directory.temporaries() + directory.leftOvers()
      #expect(left == [])
      try FileSystem.unlink(filler)
      try #require(ftruncate(file.descriptor, 0) == 0)
      for app in [app, App(directory)] {
        for place in App.places {
          #expect(try app.get(place) == place.value, "\(place)")
          try app.set(large, at: App.Place(store: place.store, key: "c"))
          try app.set(place.value, at: place)
        }
      }
      for place in App.places { #expect(try App(directory).get(place) == place.value, "\(place)") }
    }

    @Test(.enabled(if: canMount, "a file system cannot be mounted here"))
    func aDiskThatTurnsReadOnlyIsReadAndSaysWhyItIsNotWritten() async throws {
      let directory = try TemporaryDirectory()
      try #require(Self.mountDisk(at: directory))
      defer { Self.unmountDisk(at: directory) }
      try App(directory).fill()
      // No file may be open for writing.
      let holdings = Holdings()
      holdings.add(directory.path, "before it turns read-only")
      try await holdings.expectNone()
      func remount(_ flags: Int32) throws {
        let flags = UInt(MS_REMOUNT) | UInt(flags)
        try #require(mount("tmpfs", directory.path, "tmpfs", flags, "size=1m") == 0)
      }
      try remount(Int32(MS_RDONLY))
      let app = App(directory)
      for place in App.places {
        #expect(try app.get(place) == place.value, "\(place)")
        let error = expectFailure(.accessDenied) { try app.set("new", at: place) }
        #expect(error?.remedy.contains("read-only") == true, "\(place): \(error?.remedy ?? "")")
        #expect(try app.get(place) == place.value, "\(place)")
      }
      try remount(0)
      for app in [app, App(directory)] {
        for place in App.places {
          try app.set("new", at: place)
          #expect(try app.get(place) == "new", "\(place)")
        }
      }
    }
  }
}
