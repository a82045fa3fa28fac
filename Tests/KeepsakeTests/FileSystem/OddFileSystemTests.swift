import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// File systems that lack calls, as FAT, NTFS, CIFS, 9p and FUSE do.
@Suite(.singleThreaded) struct OddFileSystemTests {
  private static let unsupported = [EPERM, ENOTSUP, ENOSYS, EINVAL]

  /// Runs `body` on a file system that does not have these calls.
  private func without<R>(
    _ calls: Set<SystemCall>, _ code: Int32, _ body: () throws -> R
  ) rethrows -> R {
    let plan = FaultPlan(decide: { calls.contains($0.call) ? .fail(code) : .proceed })
    return try FaultPlan.$current.withValue(plan, operation: body)
  }

  /// Without hard links, exchanging names, modes, cloning, openat2(2) and statvfs(3).
  @Test(arguments: unsupported)
  func storesWorkWithoutWhatTheyCanDoWithout(_ code: Int32) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try #require(chmod(directory.path, 0o755) == 0)
    var missing: Set<SystemCall> = [.link, .exchange, .chmod, .clone]
    if code != ENOTSUP { missing.insert(.openNoSymlinks) }
    if code == ENOSYS || code == ENOTSUP { missing.insert(.space) }
    try without(missing, code) {
      for value in ["old", "new"] {
        let app = App(directory)
        for item in App.items { try app.set(value, for: item) }
        for item in App.items { #expect(try app.get(item) == value, "\(item)") }
        let shared = directory.store(Defaults.Suite("team", in: directory.url))
        try shared.set(value, forKey: "k")
        let cache = directory.ownCache("team")
        try cache.set(value, forKey: "k")
        #expect(try cache.model("k") == value)
        #expect(app.failures.all.isEmpty)
      }
    }
    #expect(try directory.temporaries() == [])
  }

  /// The first call fails with an error that names the file system, and says what to do.
  @Test(arguments: [
    (SystemCall.lock, ENOLCK), (.lock, ENOSYS), (.lock, EINVAL), (.map, ENODEV), (.times, EPERM),
    (.times, ENOSYS),
  ])
  func whatStoresCannotDoWithoutIsAnErrorAtFirstUse(_ call: SystemCall, _ code: Int32) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let app = App(directory)
    let stores: [App.Store] = call == .times ? [.cache] : [.settings, .cache]
    for store in stores + (call == .lock ? [.secrets, .engine] : []) {
      let error = try #require(throws: StorageError.self) {
        try without([call], code) { try app.set("v", for: App.Item(store: store, key: "a")) }
      }
      let line = error.description
      #expect(line.contains("the file system tmpfs does not support"), "\(line)")
      #expect(error.remedy.hasPrefix("Choose a directory on another file system"), "\(line)")
    }
  }

  /// Makes new key files readable for others, as on a file system without permissions.
  private func withoutPermissions<R>(_ body: () throws -> R) rethrows -> R {
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, _ in
        if event.call == .open, event.path.contains("vault.key") { chmod(event.path, 0o777) }
      })
    return try FaultPlan.$current.withValue(plan, operation: body)
  }

  @Test func aKeyFileThatOthersCouldReadIsNotMade() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let error = try withoutPermissions {
      try #require(throws: StorageError.self) { try directory.secrets().set("v", forKey: "k") }
    }
    #expect(error.code == .accessDenied && error.remedy.contains("XDG_STATE_HOME"))
    #expect(error.reason?.contains("does not keep permissions") == true)
    #expect(try FileSystem.list(directory.path + "/state").allSatisfy { $0 == ".vault.key.lock" })
    // A vault with a passphrase has no key file.
    try withoutPermissions {
      let store = directory.secrets()
      try store.protect(with: .passphrase("correct horse"))
      try store.set("v", forKey: "k")
    }
    try directory.secrets().unlock(passphrase: "correct horse")
  }
}
