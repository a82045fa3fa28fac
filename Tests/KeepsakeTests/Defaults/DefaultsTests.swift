import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.temporaryStorage) struct DefaultsTests {
  @Test func storeDistinguishesMissingUnreadableAndWrongType() throws {
    let store = Defaults.shared
    #expect(try store.get("k") as Int? == nil)
    try store.set("text", forKey: "k")
    expectFailure(.wrongType) { _ = try store.int("k") }
    let path = try #require(try store.fileURL?.path)
    try FileManager.default.removeItem(atPath: path)
    try Data("no journal".utf8).write(to: URL(filePath: path))
    let unreadable = Defaults.Suite("standard", in: URL(filePath: path).deletingLastPathComponent())
    let error = expectFailure(.damaged) { _ = try Defaults.suite(unreadable).int("k") }
    #expect(error?.operation == "int" && error?.key == "k")
  }

  @Test func facadeReportsWhatTheStoreThrows() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    Defaults.set("hunter2", forKey: "k")
    ReportLimiter.$period.withValue(.seconds(3_600)) {
      #expect(Defaults.get("k", default: 0) == 0)
      #expect(Defaults.get("k", default: 7) == 7)
    }
    #expect(failures.all.count == 1, "the same error at most once in a period")
    #expect(failures.all.first?.key == "k")
    let line = failures.all.first?.description ?? ""
    #expect(line.contains("the stored value is text, not Int") && !line.contains("hunter2"))
    #expect(line.contains("/standard.jsonl"))
    #expect(Defaults.set(Double.nan, forKey: "k"))
    #expect(!Defaults.set(Decimal.nan, forKey: "k"))
    #expect(failures.all.last?.code == .encodingFailed)
    #expect(Defaults.double("k").isNaN)
  }

  /// The name of the suite is too long for a file.
  @Test func reportsNameTheCall() {
    struct Profile: Codable, Sendable { var name: String }
    final class Account: Codable { var name = "" }
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let suite = Defaults.Suite(String(repeating: "x", count: 300))
    let calls: [(name: String, call: () -> Void)] = [
      ("get", { _ = Defaults.get("k", suite: suite) as Int? }),
      ("get", { _ = Defaults[Defaults.Key("k", default: 0, suite: suite)] }),
      ("get", { _ = Defaults[Defaults.Key("k", default: Profile(name: ""), suite: suite)] }),
      ("model", { _ = Defaults.model("k", type: Profile.self, suite: suite) }),
      ("model", { _ = Defaults.model("k", type: Account.self, suite: suite) }),
      ("string", { _ = Defaults.string("k", suite: suite) }),
      ("int", { _ = Defaults.int("k", suite: suite) }),
      ("double", { _ = Defaults.double("k", suite: suite) }),
      ("bool", { _ = Defaults.bool("k", suite: suite) }),
      ("data", { _ = Defaults.data("k", suite: suite) }),
      ("contains", { _ = Defaults.contains("k", suite: suite) }),
      ("set", { Defaults.set(1, forKey: "k", suite: suite) }),
    ]
    for (name, call) in calls {
      StorageSystem.onFailure = { error in
        #expect(error.operation == "Defaults." + name && error.key == "k")
        #expect(error.code == .misuse)
        failures.append(error)
      }
      call()
    }
    // The second and third `get` are the same failure as the first.
    #expect(failures.all.count >= calls.count - 3)
    Defaults.set(1, forKey: "number")
    StorageSystem.onFailure = failures.append
    #expect(Defaults.model("number", type: Profile.self) == nil)
    #expect(failures.all.last?.operation == "Defaults.model")
  }

  @Test func memorySuiteHasNoFile() throws {
    Defaults.set(1, forKey: "a", suite: .memory)
    #expect(Defaults.int("a", suite: .memory) == 1)
    #expect(try Defaults.shared.suites().isEmpty)
    #expect(try Defaults.suite(.memory).fileURL == nil)
    Defaults.update("a", default: 0, suite: .memory) { $0 += 1 }
    #expect(Defaults.keys(suite: .memory) == ["a"])
    #expect(Defaults.removeAll(suite: .memory))
    #expect(!Defaults.contains("a", suite: .memory))
  }

  @Test func removeAllRemovesValuesFromTheFile() throws {
    Defaults.set("a value to forget", forKey: "k")
    let path = try #require(try Defaults.shared.fileURL?.path)
    #expect(try String(contentsOfFile: path, encoding: .utf8).contains("forget"))
    Defaults.removeAll()
    #expect(try !String(contentsOfFile: path, encoding: .utf8).contains("forget"))
  }

  @Test(arguments: [
    "../../../escape", "..", ".", "", "a/b", "/etc/passwd", ".hidden", "nul\u{0}", "ümlaut %2F",
    "standard.jsonl", "A", "a",
  ])
  func suiteNameCannotEscapeItsDirectory(_ name: String) throws {
    let suite = Defaults.Suite(name)
    Defaults.set(1, forKey: "k", suite: suite)
    let path = try #require(try Defaults.suite(suite).fileURL?.path)
    let directory = try #require(try Defaults.shared.fileURL).deletingLastPathComponent().path
    #expect(FileSystem.parent(of: path) == directory)
    #expect(FileManager.default.fileExists(atPath: path))
    #expect(try Defaults.shared.suites() == [suite])
    #expect(Defaults.int("k", suite: suite) == 1)
    let other = Defaults.Suite(name, in: URL(filePath: directory))
    #expect(try Defaults.suite(other).int("k") == 1)
  }

  @Test func suitesDoNotWaitForEachOther() throws {
    let a = Defaults.suite("a")
    try a.set(1, forKey: "k")
    // A thread is about to take the lock of suite a, as if another process held it.
    let (isWaiting, mayContinue) = (ThreadGate(), ThreadGate())
    defer { mayContinue.open() }
    let plan = FaultPlan(decide: { event in
      if event.call == .lock {
        isWaiting.open()
        mayContinue.wait()
      }
      return .proceed
    })
    let hasEnded = startThread {
      FaultPlan.$current.withValue(plan) { _ = try? a.set(2, forKey: "k") }
    }
    isWaiting.wait()
    for number in 0..<100 { try Defaults.suite("b").set(number, forKey: "k") }
    #expect(try a.int("k") == 1, "reading suite a does not wait either")
    #expect(!hasEnded.isOpen)
    mayContinue.open()
    hasEnded.wait()
    #expect(try a.int("k") == 2)
  }
}

extension Defaults.Key<Int> {
  fileprivate static let fontSize = Defaults.Key("fontSize", default: 16)
  fileprivate static let shared = Defaults.Key("fontSize", default: 1, suite: "shared")
}
extension Defaults.Key<String?> {
  fileprivate static let nickname = Defaults.Key<String?>("nickname")
}

@Suite(.temporaryStorage) struct TypedKeyTests {
  @Test func typedKeysReadWriteAndRemove() throws {
    #expect(Defaults[.fontSize] == 16)
    Defaults[.fontSize] = 18
    #expect(Defaults[.fontSize] == 18)
    Defaults[.fontSize] += 1
    #expect(Defaults.int("fontSize") == 19)
    #expect(Defaults.update(.fontSize) { $0 += 1 } == 20)
    #expect(Defaults[.shared] == 1)
    Defaults[.shared] = 2
    #expect(Defaults[.fontSize] == 20)
    #expect(Defaults.contains(.fontSize))
    #expect(Defaults.remove(.fontSize))
    #expect(Defaults[.fontSize] == 16)
    Defaults[.nickname] = "Zo"
    #expect(Defaults[.nickname] == "Zo")
    Defaults[.nickname] = nil
    #expect(!Defaults.contains("nickname"))
    let store = Defaults.suite("other")
    try store.set(3, for: .fontSize)
    #expect(try store.get(.fontSize) == 3)
    #expect(try store.update(.fontSize) { $0 *= 2 } == 6)
    try store.remove(.fontSize)
    #expect(try store.get(.fontSize) == 16)
  }

  @MainActor struct Settings {
    @Default("fontSize", defaultValue: 16) var fontSize: Int
    @Default("title", defaultValue: "untitled", suite: "window") var title: String
    @Default(.fontSize) var typed
    @Default("volume") var volume = 0.5
    @Default("tags", suite: "window") var tags: [String] = []
    @DefaultOptional("lastLogin") var lastLogin: Date?
    @DefaultOptional("note", suite: "window") var note: String?
  }

  @Test @MainActor func wrappersReadWriteAndReset() {
    let settings = Settings()
    #expect(settings.fontSize == 16)
    settings.fontSize = 20
    #expect(settings.fontSize == 20)
    #expect(settings.typed == 20)
    #expect(Defaults.int("fontSize") == 20)
    #expect(settings.$fontSize.update { $0 += 1 } == 21)
    #expect(settings.$fontSize.key.name == "fontSize")
    #expect(settings.$fontSize.reset())
    #expect(settings.fontSize == 16)
    settings.title = "x"
    #expect(Defaults.string("title", suite: "window") == "x")
    #expect(settings.lastLogin == nil)
    let now = Date()
    settings.lastLogin = now
    #expect(settings.lastLogin == now)
    #expect(settings.$lastLogin.update { $0 = nil } == nil)
    #expect(!Defaults.contains("lastLogin"))
    settings.note = "n"
    #expect(settings.$note.reset())
    #expect(settings.note == nil)
  }

  @Test @MainActor func initialValuesAreDefaults() {
    let settings = Settings()
    #expect(settings.volume == 0.5 && settings.tags == [])
    #expect(!Defaults.contains("volume"), "the initial value is not stored")
    settings.volume = 0.75
    settings.tags.append("new")
    #expect(Defaults.double("volume") == 0.75 && Settings().volume == 0.75)
    #expect(Defaults.get("tags", default: [String](), suite: "window") == ["new"])
    #expect(settings.$volume.reset() && settings.volume == 0.5)
  }

  @Test func typedGettersTakeADefault() throws {
    #expect(Defaults.bool("b", default: true) && Defaults.int("i", default: 3) == 3)
    #expect(Defaults.double("d", default: 0.5) == 0.5)
    Defaults.set(false, forKey: "b")
    Defaults.set(4, forKey: "i")
    Defaults.set(4, forKey: "d", suite: "other")
    #expect(!Defaults.bool("b", default: true) && Defaults.int("i", default: 3) == 4)
    #expect(Defaults.double("d", default: 0.5, suite: "other") == 4)
    let store = Defaults.shared
    #expect(try store.int("i", default: 3) == 4 && !store.bool("b", default: true))
    #expect(try store.double("none", default: 0.5) == 0.5)
    let error = expectFailure(.wrongType) { _ = try store.int("b", default: 3) }
    #expect(error?.operation == "int")
  }

  @Test func severalKeysAreRemovedInOneStep() throws {
    for key in ["a", "b", "c"] { Defaults.set(1, forKey: key) }
    let store = Defaults.shared
    let size = try Data(contentsOf: #require(try store.fileURL)).count
    try store.remove(["a", "b", "none"])
    #expect(Defaults.keys() == ["c"])
    let document = try Data(contentsOf: #require(try store.fileURL)).dropFirst(size)
    #expect(document.count { $0 == UInt8(ascii: "\n") } <= 3)
    for keys in [["a", "b"], []] { try store.remove(keys) }
    try store.remove(Set(["c"]))
    #expect(Defaults.keys() == [])
    Defaults.set(1, forKey: "a", suite: "other")
    try Defaults.suite("other").remove(["a"])
    #expect(!Defaults.contains("a", suite: "other"))
  }

  /// As programs on Foundation's `UserDefaults` store them.
  @Test func modelsAreReadFromJSONData() throws {
    struct User: Codable, Equatable { var name: String }
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let ann = User(name: "Ann")
    Defaults.set(try JSONEncoder().encode(ann), forKey: "user")
    Defaults.set(try JSONEncoder().encode([ann]), forKey: "users")
    #expect(Defaults.model("user") == ann && Defaults.model("users") == [ann])
    let user: User? = Defaults.get("user")
    let key = Defaults.Key<User?>("user")
    #expect(user == ann && Defaults[key] == ann)
    #expect(Defaults.data("user") == (try JSONEncoder().encode(ann)))
    #expect(Defaults.update("user", default: User(name: "")) { $0.name += "e" }.name == "Anne")
    #expect(failures.all.isEmpty)

    // Only objects and arrays, and only models.
    Defaults.set(Data("5".utf8), forKey: "number")
    Defaults.set(Data("{x".utf8), forKey: "damaged")
    Defaults.set(Data("[1]".utf8), forKey: "list")
    let store = Defaults.shared
    expectFailure(.wrongType) { _ = try store.get("number") as Int? }
    expectFailure(.wrongType) { _ = try store.model("number") as UInt8? }
    expectFailure(.wrongType) { _ = try store.get("list") as String? }
    expectFailure(.wrongType) { _ = try store.get("list") as Int? }
    expectFailure(.decodingFailed) { _ = try store.model("damaged") as User? }
    expectFailure(.wrongType) { _ = try store.model("list") as User? }
  }
}
