import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Every call that needs a file in a newer version of its format throws, and leaves the file alone.
@Suite struct NewerVersionTests {
  private typealias Calls = [(name: String, call: () throws -> Void)]

  private let directory: TemporaryDirectory
  private let failures = Failures()

  init() throws { directory = try TemporaryDirectory() }

  /// Expects each call to throw an error with the path and a remedy, and not to change the file.
  private func expectRefusals(of what: String, _ path: String, _ calls: Calls) throws {
    let bytes = try Bytes.read(path)
    let status = try #require(try FileSystem.status(path))
    for (name, call) in calls {
      let error = #expect(throws: StorageError.self, "\(name)") { try call() }
      #expect(error?.code == .unsupportedVersion && error?.path == path, "\(name): \(error)")
      #expect(error?.remedy.isEmpty == false, "\(name)")
      #expect(try Bytes.read(path) == bytes, "\(name)")
      let now = try FileSystem.status(path)
      #expect(now?.isSameFile(as: status) == true, "\(name) does not replace the file")
    }
    print("proof: a newer version of \(what): \(calls.count) calls")
  }

  /// Raises the version number of a vault header, key file, or entry.
  private func makeNewer(_ path: String, isSummed: Bool) throws {
    let bytes = Bytes.put(UInt8(3), at: 4, in: try Bytes.read(path))
    try Bytes.write(isSummed ? Bytes.summed(bytes) : bytes, to: path)
  }

  @Test func everyCallRefusesANewerJournal() throws {
    let path = directory.file(TemporaryDirectory.journal).path
    try directory.store().set(1, forKey: "k")
    let text = String(decoding: try Bytes.read(path), as: UTF8.self)
    try Bytes.write(Array(text.replacing("\"1:", with: "\"2:").utf8), to: path)
    let kept = directory.store(failures: failures)
    for store in [kept, directory.store(failures: failures)] {
      try expectRefusals(
        of: "a journal", path,
        [
          ("get", { _ = try store.string("k") }), ("contains", { _ = try store.contains("k") }),
          ("keys", { _ = try store.keys() }), ("set", { try store.set(2, forKey: "k") }),
          ("set nil", { try store.set(nil, forKey: "k") }), ("remove", { try store.remove("k") }),
          ("remove another", { try store.remove("l") }), ("removeAll", { try store.removeAll() }),
          ("update", { try store.update("k", default: 0) { $0 += 1 } }),
          ("export", { _ = try store.export(as: .json) }),
          ("import", { try store.import(Data(#"{"k": 2}"#.utf8)) }),
        ])
    }
    #expect(try directory.names().filter { $0.contains("damaged") } == [])
  }

  @Test func everyCallRefusesANewerVault() throws {
    try directory.secrets().set("tok", forKey: "k")
    try makeNewer(directory.headerPath, isSummed: true)
    let store = directory.secrets(failures: failures)
    try expectRefusals(
      of: "a vault", directory.headerPath,
      [
        ("get", { _ = try store.get("k") }), ("getData", { _ = try store.getData("k") }),
        ("entry", { _ = try store.entry("k") }), ("contains", { _ = try store.contains("k") }),
        ("keys", { _ = try store.keys() }), ("services", { _ = try store.services() }),
        ("set", { try store.set("new", forKey: "k") }), ("remove", { try store.remove("k") }),
        ("removeAll", { try store.removeAll() }), ("rotateKeys", { try store.rotateKeys() }),
        ("protect", { try store.protect(with: .keyFile) }),
        ("protection", { _ = try store.protection }), ("unlock", { try store.unlock() }),
      ])
  }

  /// Only removing it by its key works on a secret of a newer version.
  @Test func everyCallThatOpensItRefusesANewerSecret() throws {
    try directory.secrets().set("tok", forKey: "k")
    try directory.secrets().set("other", forKey: "l")
    let path = try directory.secretPath("k")
    try makeNewer(path, isSummed: false)
    let store = directory.secrets(failures: failures)
    try expectRefusals(
      of: "a secret", path,
      [
        ("get", { _ = try store.get("k") }), ("getData", { _ = try store.getData("k") }),
        ("entry", { _ = try store.entry("k") }), ("set", { try store.set("new", forKey: "k") }),
        ("withSecret", { try store.withSecret("k") { (_: RawSpan) in } }),
        ("rotateKeys", { try store.rotateKeys() }),
      ])
    let before = try Bytes.read(path)
    #expect(try directory.secrets(failures: failures).keys() == ["l"], "the other secret is listed")
    #expect(failures.all.last?.code == .unsupportedVersion && failures.all.last?.path == path)
    #expect(try Bytes.read(path) == before)
    #expect(try directory.secrets().get("l") == "other")
    try directory.secrets().remove("k")
    #expect(try FileSystem.status(path) == nil)
  }

  @Test func everyCallThatNeedsKeysRefusesANewerKeyFile() throws {
    try directory.secrets().set("tok", forKey: "k")
    try makeNewer(directory.keyFilePath, isSummed: true)
    let store = directory.secrets(failures: failures)
    try expectRefusals(
      of: "a key file", directory.keyFilePath,
      [
        ("get", { _ = try store.get("k") }), ("entry", { _ = try store.entry("k") }),
        ("keys", { _ = try store.keys() }), ("contains", { _ = try store.contains("k") }),
        ("set", { try store.set("new", forKey: "k") }), ("remove", { try store.remove("k") }),
        ("removeAll", { try store.removeAll() }), ("rotateKeys", { try store.rotateKeys() }),
        ("protect", { try store.protect(with: .keyFile) }), ("unlock", { try store.unlock() }),
      ])
  }

  /// Only setting or removing it by its key works on an entry of a newer version.
  @Test func everyCallThatReadsItRefusesANewerCacheEntry() throws {
    for key in ["k", String(repeating: "k", count: 188)] {
      try directory.cache().set(0, forKey: key)
      let (payload, path) = (try directory.cache().payload(key), try directory.cache().sidecar(key))
      try aSecondAgo {
        try directory.cache().set(Data([1, 2, 3]), forKey: key, expiry: .seconds(0.01))
      }
      let file = try File(path, .readWrite)
      var bytes = try Bytes.read(path)
      bytes[3] = 2
      bytes = Sidecar.summed(bytes)
      try file.overwrite(bytes.span.bytes, at: 0)
      let store = directory.cache(failures: failures)
      try expectRefusals(
        of: "a cache entry", path,
        [
          ("get", { _ = try store.get(key) }), ("model", { _ = try store.model(key) as [Int]? }),
          ("contains", { _ = try store.contains(key) }), ("entry", { _ = try store.entry(key) }),
          ("fileURL", { _ = try store.fileURL(key) }),
        ])
      #expect(try store.removeExpired() == 0 && store.totalSize > 0)
      #expect(try Bytes.read(path) == bytes && Bytes.read(payload) == [1, 2, 3])
      try store.remove(key)
      #expect(try FileSystem.status(path) == nil && FileSystem.status(payload) == nil)
    }
  }
}
