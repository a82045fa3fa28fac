import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Files in version 1 of the formats. Later versions of the library read them, and write the same
/// bytes until there is a version 2 of the formats. The files of vaults have their own suite.
///
/// A program that follows only the documentation of the formats wrote these files; they never
/// change. A failure here means that users would lose data with the next release.
@Suite struct GoldenFileTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private func write(_ bytes: Data, to name: String) throws {
    let url = directory.file(name)
    try FileManager.default.createDirectory(
      at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
    try bytes.write(to: url)
  }

  // MARK: Settings

  /// The changes in the records of the journal, in order.
  private static let changes: [(key: String, value: any Codable & Equatable & Sendable)] = [
    ("text", "dark \"x\" \\ / \n\u{1} \u{E9}\u{1F44D}"), ("int", Int.min), ("double", 0.1),
    ("true", true), ("false", false), ("size", 1), ("data", Data([0, 1, 254, 255])),
    ("date", Date(timeIntervalSinceReferenceDate: 700_000_000.25)),
    ("infinity", -Double.infinity), ("uint", UInt64.max),
    ("list", Defaults.Value.array([.int(1), .double(2.5), .string("a/b")])),
    ("model", ["name": "Zo\u{EB}"]),
    ("", "empty"), ("gone", 1), ("size", 16),
  ]

  private func expect<T: Codable & Equatable>(
    _ value: T, _ key: String, in store: Defaults.Store
  ) throws {
    #expect(try store.get(key) == value, "\(key)")
  }

  private func expectSettings(in store: Defaults.Store) throws {
    var values = Dictionary(Self.changes.map { ($0.key, $0.value) }) { $1 }
    values["gone"] = nil
    #expect(try store.keys().sorted() == values.keys.sorted())
    for (key, value) in values { try expect(value, key, in: store) }
  }

  @Test func journalIsRead() throws {
    let golden = Data(Self.journal.utf8)
    try write(golden, to: TemporaryDirectory.journal)
    let failures = Failures()
    try expectSettings(in: directory.store(failures: failures))
    #expect(failures.all.isEmpty)
    #expect(
      try directory.bytes(of: TemporaryDirectory.journal) == Array(golden),
      "reading changes nothing")
    try directory.store().set("new", forKey: "gone")
    let longer = try directory.bytes(of: TemporaryDirectory.journal)
    #expect(
      longer.dropFirst(JournalFormat.headerSize).starts(
        with: golden.dropFirst(JournalFormat.headerSize)) && longer.count > golden.count,
      "a set appends to it")
  }

  @Test func journalHasTheSameBytesWhenWrittenNow() throws {
    let seed: UInt64 = 0x0123_4567_89AB_CDEF
    var bytes = JournalFormat.header(id: seed, JournalWord(id: seed, end: Self.journal.utf8.count))
    JournalFormat.append(.int(1), key: "before", seed: seed, to: &bytes)
    JournalFormat.appendCleared(seed: seed, to: &bytes)
    for (key, value) in Self.changes {
      let stored = try #require(try Codec.encode(value))
      JournalFormat.append(stored, key: key, seed: seed, to: &bytes)
    }
    JournalFormat.append(nil, key: "gone", seed: seed, to: &bytes)
    #expect(String(decoding: bytes, as: UTF8.self) == Self.journal)
  }

  @Test func exportIsReadAndWrittenWithTheSameBytes() throws {
    let copy = directory.store("copy")
    try copy.import(Data(Self.export.utf8))
    try expectSettings(in: copy)
    try write(Data(Self.journal.utf8), to: TemporaryDirectory.journal)
    let export = try directory.store().export(as: .json)
    #expect(String(decoding: export, as: UTF8.self) == Self.export)
  }

  @Test func propertyListIsRead() throws {
    let store = directory.store()
    try store.import(Data(Self.propertyList.utf8))
    #expect(try store.keys().sorted() == ["data", "date", "nested", "on", "size", "theme"])
    #expect(try store.string("theme") == "dark" && store.int("size") == 16 && store.bool("on"))
    #expect(try store.data("data") == Data([0, 1, 254, 255]))
    let date: Date? = try store.get("date")
    #expect(date == Date(timeIntervalSinceReferenceDate: 700_000_000))
    #expect(try store.get("nested") == ["a": [1.5]])
    let again = directory.store("again")
    try again.import(store.export(as: .propertyList))
    #expect(try again.export(as: .json) == store.export(as: .json))
  }

  /// One file for each key, which people and other programs may read and write.
  @Test func filesOfFileEngineAreReadAndWrittenWithTheSameBytes() async throws {
    let files: [(key: String, name: String, text: String, any Codable & Equatable & Sendable)] = [
      ("theme", "theme", "\"dark\"", "dark"), ("window/size", "window%2Fsize", "16", 16),
      ("", "%", "true", true), ("data", "data", #"{"$data": "AAH+/w=="}"#, Data([0, 1, 254, 255])),
      (
        "date", "date", #"{"$date": 700000000.25}"#,
        Date(timeIntervalSinceReferenceDate: 700_000_000.25)
      ),
      ("infinity", "infinity", #"{"$number": "-Infinity"}"#, -Double.infinity),
      ("model", "model", #"{"name":"Ada"}"#, ["name": "Ada"]),
      ("trap", "trap", #"{"$json": {"$data":"x"}}"#, ["$data": "x"]),
    ]
    for file in files { try write(Data(file.text.utf8), to: "golden/\(file.name).json") }
    let engines: [Defaults.Suite: any StorageEngines.Engine] = [
      "golden": FileEngine(Folder(directory.file("golden"))),
      "new": FileEngine(Folder(directory.file("new"))),
    ]
    try await StorageSystem.withTemporary(engines: engines) {
      let (old, copy) = (Defaults.suite("golden"), Defaults.suite("new"))
      #expect(try old.keys().sorted() == files.map(\.key).sorted())
      for (key, name, text, value) in files {
        try expect(value, key, in: old)
        try copy.set(value, forKey: key)
        #expect(try directory.text("new/\(name).json") == text)
      }
    }
  }

  // MARK: Caches

  private struct Entry {
    let key: String
    let path: String
    let kind: Payload.Kind
    let expiry: StoredExpiry
    let modified: Int64
    let value: any Codable & Equatable & Sendable
    let lifetime: DiskCache.Expiry
    let payload: String
    let sidecar: String

    func payloadBytes() throws -> Data { try #require(Data(base64Encoded: payload)) }

    func sidecarBytes() throws -> Data { try GoldenFileTests.bytes(sidecar) }
  }

  private static let cacheDirectory = "caches/standard/"
  /// Nanoseconds since 1970.
  private static let created: Int64 = 1_700_000_000_000_000_000

  @Test func cacheIsRead() throws {
    for entry in Self.entries {
      try write(entry.payloadBytes(), to: Self.cacheDirectory + entry.path)
      try write(entry.sidecarBytes(), to: Self.cacheDirectory + entry.path + Sidecar.suffix)
      let payload = try File(directory.file(Self.cacheDirectory + entry.path).path, .readWrite)
      try payload.setTimes(accessed: 0, modified: entry.modified)
    }
    let before = try directory.contents()
    let failures = Failures()
    let store = directory.cache(failures: failures)
    func expect<T: Codable & Equatable>(_ value: T, _ key: String) throws {
      #expect(try store.model(key) == value, "\(key)")
    }
    #expect(Set(try store.keys()) == Set(Self.entries.map(\.key)))
    for entry in Self.entries {
      try expect(entry.value, entry.key)
      let found = try #require(try store.entry(entry.key))
      #expect(found.created == Date(nanoseconds: Self.created))
      #expect((found.expires == nil) == (entry.expiry == .never))
    }
    #expect(try store.entry("???")?.expires == Date(timeIntervalSince1970: 4_000_000_000))
    #expect(store.statistics.damaged == 0 && failures.all.isEmpty)
    #expect(try directory.contents() == before, "reading changes nothing")
    #expect(try store.removeExpired() == 0 && store.keys().count == Self.entries.count)
  }

  @Test func cacheHasTheSameBytesWhenWrittenNow() throws {
    let store = directory.cache()
    for entry in Self.entries {
      try store.set(entry.value, forKey: entry.key, expiry: entry.lifetime)
      let payload = try directory.bytes(of: Self.cacheDirectory + entry.path)
      #expect(try payload == Array(entry.payloadBytes()), "\(entry.path)")
      // With the times of the golden entry, the sidecar has its bytes.
      var sidecar = try Sidecar(
        directory.bytes(of: Self.cacheDirectory + entry.path + Sidecar.suffix))
      #expect(sidecar.kind == entry.kind && sidecar.expiry == entry.expiry)
      (sidecar.created, sidecar.modified) = (Self.created, entry.modified)
      #expect(try sidecar.record(of: entry.key) == entry.sidecarBytes(), "\(entry.path)")
    }
    let tag = try String(
      contentsOf: directory.file(Self.cacheDirectory + "CACHEDIR.TAG"), encoding: .utf8)
    #expect(tag == Self.tag)
  }

  @Test func detailedCacheEntriesAreReadAndWrittenWithTheSameBytes() throws {
    let page = Data("hello".utf8)
    let (pagePath, nobodyPath) = (
      Self.cacheDirectory + "52/cGFnZQ", Self.cacheDirectory + "02/bm9ib2R5"
    )
    let (pageSidecar, nobody) = (try Self.bytes(Self.page), try Self.bytes(Self.nobody))
    try write(page, to: pagePath)
    try write(pageSidecar, to: pagePath + Sidecar.suffix)
    let modified = 1_700_000_000_123_456_788
    try File(directory.file(pagePath).path, .readWrite).setTimes(
      accessed: Self.created + Self.hundredYears, modified: Int64(modified))
    try write(nobody, to: nobodyPath + Sidecar.suffix)
    let before = try directory.contents()
    let store = directory.cache()
    #expect(try store.model("page") == "hello")
    let entry = try #require(try store.entry("page"))
    #expect(entry.tags == ["type": "text/plain", "etag": "\"33a64df5\"", "n\u{E9}": ""])
    #expect(entry.keptUntil == entry.expires?.addingTimeInterval(3_600))
    guard case .noValue = try store.engine.find("nobody", noValue: true, tags: false).found else {
      Issue.record("no record that there is no value")
      return
    }
    #expect(try !store.contains("nobody") && store.keys() == ["page"])
    #expect(try directory.contents() == before, "reading changes nothing")
    #expect(try store.removeExpired() == 0 && store.statistics.damaged == 0)
    for (bytes, key) in [(pageSidecar, "page"), (nobody, "nobody")] {
      let sidecar = try Sidecar(Array(bytes))
      #expect(try sidecar.record(of: key) == bytes)
    }
  }

  /// What the sidecar has while a set replaces the first golden entry: the new record and the one
  /// before it. At most one of them is detailed; its payload is a nanosecond older.
  enum Overwriting: CaseIterable {
    case plain, detailedFirst, plainFirst

    fileprivate var sidecar: String {
      switch self {
      case .plain: GoldenFileTests.overwritten
      case .detailedFirst: GoldenFileTests.detailedOverPlain
      case .plainFirst: GoldenFileTests.plainOverDetailed
      }
    }
  }

  /// The state between the two steps of the set.
  @Test(arguments: Overwriting.allCases, [true, false])
  func cacheEntryThatIsBeingOverwrittenIsRead(
    _ overwriting: Overwriting, isPublished: Bool
  ) throws {
    let entry = Self.entries[0]
    let new = Data("newer!".utf8)
    let path = Self.cacheDirectory + entry.path
    let sidecar = try Self.bytes(overwriting.sidecar)
    try write(isPublished ? new : entry.payloadBytes(), to: path)
    try write(sidecar, to: path + Sidecar.suffix)
    let isDetailed = overwriting == (isPublished ? .detailedFirst : .plainFirst)
    let modified = isPublished ? 1_700_000_060_987_654_321 : entry.modified
    try File(directory.file(path).path, .readWrite)
      .setTimes(accessed: 0, modified: modified - (isDetailed ? 1 : 0))
    let store = directory.cache()
    #expect(try store.get(entry.key) == (isPublished ? new : entry.payloadBytes()))
    let found = try #require(try store.entry(entry.key))
    let created = Self.created + (isPublished ? 60_000_000_000 : 0)
    #expect(found.created == Date(nanoseconds: created))
    let tag = isPublished ? "\"2\"" : "\"1\""
    #expect(found.tags["etag"] == (isDetailed ? tag : nil))
    #expect(store.statistics.damaged == 0)
    #expect(try directory.bytes(of: path + Sidecar.suffix) == Array(sidecar))
    // The next set keeps the record that the payload belongs to, and replaces it.
    try store.set("next", forKey: entry.key, tags: ["etag": "3"])
    #expect(try directory.cache().model(entry.key) == "next")
    #expect(try directory.cache().entry(entry.key)?.tags == ["etag": "3"])
  }

  private static func bytes(_ base64: String) throws -> Data {
    try #require(Data(base64Encoded: base64, options: .ignoreUnknownCharacters))
  }

  /// A text with tags that is kept for an hour after its expiry.
  private static let page = """
    S1NFAQEBAAAREO4H/NqEmQUAAAAAAAAAFM2FPf6clxfxeEp86GppKAAAKjb+nJcXAACs033Wwys3AAAAMwAAAHBh
    Z2UAoLgwRgMAAAQAZXRhZwoAIjMzYTY0ZGY1IgMAbsOpAAAEAHR5cGUKAHRleHQvcGxhaW4=
    """

  /// A record that there is no value.
  private static let nobody = """
    S1NFAf8BAADZxO+DRoopDgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAKjb+nJcXAACs033WwysGAAAAAAAAAG5v
    Ym9keQ==
    """

  /// A record with a tag, and the record of the first golden entry.
  private static let detailedOverPlain = """
    S1NFAQACAABoJF7zaiIAPQYAAAAAAAAAsMBPaQydlxeRxsHo2cHFtQBYcS4MnZcXAACQnc7agjccAAAAEwAAAGlt
    YWdlXzAwMQAAAAAAAAAABABldGFnAwAiMiJLU0UBAAAAABuy7SSUdTe5BAAAAAAAAAAVzYU9/pyXFxhs5FtAp+H6
    AAAqNv6clxcAAAAAAAAAAAkAAAAAAAAAaW1hZ2VfMDAx
    """

  /// A record without details, and the one with a tag before it.
  private static let plainOverDetailed = """
    S1NFAQEAAACBFJ3OmfWlPwYAAAAAAAAAscBPaQydlxeRxsHo2cHFtQBYcS4MnZcXAAAAAAAAAAAJAAAAAAAAAGlt
    YWdlXzAwMUtTRQEAAQAAxB3ExI5tmXcEAAAAAAAAABTNhT3+nJcXGGzkW0Cn4foAACo2/pyXFwAArNN91sMrHAAA
    ABMAAABpbWFnZV8wMDEAAAAAAAAAAAQAZXRhZwMAIjEi
    """

  /// Four numbers for each of the 256 subdirectories: its size, twice the earliest expiry, and how
  /// many changes were not recorded.
  private func writeLedger(_ magic: String) throws {
    let never = UInt64(Int64.max)
    var words: [UInt64] = [7, UInt64(Self.created), 0, UInt64(Self.created)]
    words += (0..<256).map { 0x0003_0000_0000_0000 | UInt64($0) << 12 }
    words += Array(repeating: never, count: 512) + Array(repeating: 0, count: 256)
    var bytes = Array(magic.utf8)
    for word in words { bytes.append(number: word) }
    try write(Data(), to: Self.cacheDirectory + "CACHEDIR.TAG")
    try write(Data(bytes), to: "caches/.standard.ledger")
  }

  @Test func cacheLedgerIsRead() throws {
    try writeLedger("KSLEDGR1")
    #expect(try directory.cache().totalSize == 255 * 256 / 2 * 4_096)
  }

  /// It is not read, and made anew by counting.
  @Test func foreignCacheLedgerIsReplaced() throws {
    for magic in ["", "KSLEDGR0", "SomeFile"] {
      try directory.cache().set("x", forKey: "k")
      try writeLedger(magic)
      #expect(try directory.cache().model("k") == "x")
      let store = directory.cache()
      try store.set("y", forKey: "k")
      #expect(try store.totalSize == 8_192 && directory.cache().totalSize == 8_192)
    }
  }

  @Test func newerCacheLedgerIsRefused() throws {
    try directory.cache().set("x", forKey: "k")
    try writeLedger("KSLEDGR2")
    let bytes = try directory.bytes(of: "caches/.standard.ledger")
    let store = directory.cache()
    expectFailure(.unsupportedVersion) { try store.set("y", forKey: "k") }
    expectFailure(.unsupportedVersion) { _ = try store.totalSize }
    #expect(try directory.bytes(of: "caches/.standard.ledger") == bytes)
  }

  // MARK: The golden files

  private static let journal = #"""
    ["keepsake.v1","zt8AAAMw","1:0123456789abcdef","1:0123456789abcdef","1:0123456789abcdef"]
    ["ea959bd4a4ddc75cj11","before",1]
    ["ed8e1f939b501cdfc0"]
    ["5fdfb99dfff6e399j41","text","dark \"x\" \\ / \n\u0001 é👍"]
    ["b3cbd85bc5a9280dj27","int",-9223372036854775808]
    ["7ad99fd8bece3d3fj13","double",0.1]
    ["f180e6919af59a30j12","true",true]
    ["8cab9a5afbaba7f8j14","false",false]
    ["c573ac362e016a09j9","size",1]
    ["303081929faf9cf3d18","data","AAH+/w=="]
    ["7e309a4702924b10t20","date",700000000.25]
    ["291e7d222d6f11fdn23","infinity","-Infinity"]
    ["a482bc84901b5917j28","uint",18446744073709551615]
    ["519cadcfae899ee9j21","list",[1,2.5,"a/b"]]
    ["16c835aa1612faddj24","model",{"name":"Zoë"}]
    ["445d324837b45ad9j11","","empty"]
    ["5f47d63ecc5d8b5ej9","gone",1]
    ["ddb6662272d6ab42j10","size",16]
    ["c5960699e3c4b679r7","gone"]

    """#

  private static let export = #"""
    {
      "": "empty",
      "data": {"$data": "AAH+/w=="},
      "date": {"$date": 700000000.25},
      "double": 0.1,
      "false": false,
      "infinity": {"$number": "-Infinity"},
      "int": -9223372036854775808,
      "list": [1,2.5,"a/b"],
      "model": {"name":"Zoë"},
      "size": 16,
      "text": "dark \"x\" \\ / \n\u0001 é👍",
      "true": true,
      "uint": 18446744073709551615
    }

    """#

  private static let propertyList = """
    <?xml version="1.0" encoding="UTF-8"?>
    <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" \
    "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
    <plist version="1.0">
    <dict>
    	<key>data</key>
    	<data>AAH+/w==</data>
    	<key>date</key>
    	<date>2023-03-08T20:26:40Z</date>
    	<key>nested</key>
    	<dict>
    		<key>a</key>
    		<array>
    			<real>1.5</real>
    		</array>
    	</dict>
    	<key>on</key>
    	<true/>
    	<key>size</key>
    	<integer>16</integer>
    	<key>theme</key>
    	<string>dark</string>
    </dict>
    </plist>

    """

  private static let tag = """
    Signature: 8a477f597d28d172789f06886806bc55
    # This file is a cache directory tag created by Keepsake.
    # Backups may leave this folder out: all of it can be made again.
    # See https://bford.info/cachedir/

    """

  private static let hundredYears: Int64 = 3_153_600_000_000_000_000

  /// The record of a text that replaces the first entry, and the record before it.
  private static let overwritten = """
    S1NFAQEAAACBFJ3OmfWlPwYAAAAAAAAAscBPaQydlxeRxsHo2cHFtQBYcS4MnZcXAAAAAAAAAAAJAAAAAAAAAGlt
    YWdlXzAwMUtTRQEAAAAAG7LtJJR1N7kEAAAAAAAAABXNhT3+nJcXGGzkW0Cn4foAACo2/pyXFwAAAAAAAAAACQAA
    AAAAAABpbWFnZV8wMDE=
    """

  /// All times of creation and modification are in 2023.
  private static let entries = [
    Entry(
      key: "image_001", path: "8f/aW1hZ2VfMDAx", kind: .data,
      expiry: .never, modified: 1_700_000_000_123_456_789,
      value: Data([0, 1, 254, 255]), lifetime: .never, payload: "AAH+/w==",
      sidecar: """
        S1NFAQAAAAAbsu0klHU3uQQAAAAAAAAAFc2FPf6clxcYbORbQKfh+gAAKjb+nJcXAAAAAAAAAAAJAAAAAAAA
        AGltYWdlXzAwMQ==
        """),
    Entry(
      key: "token \u{2713}", path: "50/dG9rZW4g4pyT", kind: .text,
      expiry: .after(hundredYears), modified: 1_700_000_000_123_456_788,
      value: "tok-\u{2713}", lifetime: .days(36_500), payload: "dG9rLeKckw==",
      sidecar: """
        S1NFAQEBAADXtKWRytqVLgcAAAAAAAAAFM2FPf6clxeVeXpm4vJ6HgAAKjb+nJcXAACs033WwysJAAAAAAAA
        AHRva2VuIOKckw==
        """),
    Entry(
      key: "???", path: "66/Pz8_", kind: .json,
      expiry: .at(4_000_000_000_000_000_000), modified: 1_700_000_000_123_456_788,
      value: ["user": "ada"], lifetime: .date(Date(timeIntervalSince1970: 4_000_000_000)),
      payload: "eyJ1c2VyIjoiYWRhIn0=",
      sidecar: """
        S1NFAQICAAD/nOQ4TRD+mA4AAAAAAAAAFM2FPf6clxdn/qx+HPKBcwAAKjb+nJcXAACQnc7agjcDAAAAAAAA
        AD8/Pw==
        """),
    Entry(
      key: "~~~", path: "5c/fn5-", kind: .date,
      expiry: .idle(hundredYears), modified: 1_700_000_000_123_456_788,
      value: Date(timeIntervalSinceReferenceDate: 700_000_000.25), lifetime: .idle(.days(36_500)),
      payload: "NzAwMDAwMDAwLjI1",
      sidecar: """
        S1NFAQMDAAChhHm4qCJIJAwAAAAAAAAAFM2FPf6clxfoblxtj5/tWgAAKjb+nJcXAACs033WwysDAAAAAAAA
        AH5+fg==
        """),
    Entry(
      key: String(repeating: "k", count: 188), path: "8c/h.8c555647b03d8e679ff65110b8603024",
      kind: .number,
      expiry: .never, modified: 1_700_000_000_123_456_789,
      value: Double.infinity, lifetime: .never, payload: "IkluZmluaXR5Ig==",
      sidecar: """
        S1NFAQQAAABM4vyjb1kqdwoAAAAAAAAAFc2FPf6clxc/QbpEzPJtpgAAKjb+nJcXAAAAAAAAAAC8AAAAAAAA
        AGtra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
        a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
        a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2tr
        """),
    Entry(
      key: "film.mp4", path: "04/ZmlsbS5tcDQ.mp4", kind: .data,
      expiry: .never, modified: 1_700_000_000_123_456_789,
      value: Data("frames".utf8), lifetime: .never, payload: "ZnJhbWVz",
      sidecar: """
        S1NFAQAAAAA1sCirthtOHAYAAAAAAAAAFc2FPf6clxcGGy8oFaCg8wAAKjb+nJcXAAAAAAAAAAAIAAAAAAAA
        AGZpbG0ubXA0
        """),
  ]
}
