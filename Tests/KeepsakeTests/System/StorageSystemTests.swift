import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct StorageSystemTests {
  @Test func temporaryStoresAreEmptySeparateAndRemoved() async throws {
    let path = try await StorageSystem.withTemporary {
      #expect(Defaults.keys().isEmpty)
      Defaults.set(1, forKey: "k")
      async let child = Defaults.int("k")
      #expect(await child == 1, "child tasks belong to it")
      let inner = try await StorageSystem.withTemporary { Defaults.int("k") }
      #expect(inner == 0)
      #expect(Defaults.int("k") == 1)
      return try #require(try Defaults.shared.fileURL).deletingLastPathComponent().path
    }
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// Failures that differ only in the store are all reported.
  @Test(.temporaryStorage) func reportsNameTheFacade() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let name = String(repeating: "x", count: 300)
    Defaults.set(1, forKey: "k", suite: Defaults.Suite(name))
    DiskCache.set(1, forKey: "k", cache: DiskCache.Name(name))
    SecureVault.set("s", forKey: String(repeating: "k", count: 70_000))
    #expect(failures.all.map(\.code) == [.misuse, .misuse, .misuse])
    #expect(failures.all.map(\.operation) == ["Defaults.set", "DiskCache.set", "SecureVault.set"])
  }

  @Test func temporaryScopeReleasesItsDescriptors() async throws {
    weak var store: Defaults.Store?
    weak var scope: StorageScope?
    try await StorageSystem.withTemporary {
      Defaults.set(1, forKey: "k")
      Defaults.synchronize()
      store = Defaults.shared
      scope = StorageScope.temporary
      #expect(store != nil && scope != nil)
    }
    #expect(store == nil && scope == nil)
  }

  @Test(.temporaryStorage) func removeAllEmptiesEachSuite() {
    for suite: Defaults.Suite in [.standard, "other", .memory] {
      Defaults.set(1, forKey: "k", suite: suite)
    }
    #expect(StorageSystem.removeAll())
    for suite: Defaults.Suite in [.standard, "other", .memory] {
      #expect(Defaults.keys(suite: suite).isEmpty)
    }
  }

  @Test(arguments: ["", ".", "..", "a/b", "nul\u{0}", String(repeating: "x", count: 300)])
  func aNameThatCannotBeADirectoryIsRefused(_ name: String) {
    let error = #expect(throws: StorageError.self) {
      try StorageSystem.bootstrap(app: name)
    }
    #expect(error?.code == .misuse)
  }

  // MARK: Bootstrap

  /// A source that opens in a moment.
  private static let quick = SecureVault.KeySource(.passphrase("swordfish", logN: 10))

  private typealias Setup = StorageSystem.Setup

  @Test func bootstrapThrowsIfRepeatedWithOtherArgumentsOrLate() throws {
    let program = StorageSystem.Configuration(isTestRun: false)
    func setup(_ app: String = "a", sources: [SecureVault.KeySource] = [.keyFile]) -> Setup {
      Setup(
        app: app, directories: .init(data: URL(filePath: "/data")),
        engines: ["m": MemoryEngine(), "f": FileEngine(.documents)],
        vaultOptions: VaultOptions(sources: sources))
    }
    try program.bootstrap(setup())
    try program.bootstrap(setup())
    var others = [
      setup("b"), setup(sources: [.credential("x")]), setup(), setup(), setup(), setup(),
    ]
    others[2].directories.cache = URL(filePath: "/cache")
    others[3].engines["m"] = nil
    others[4].engines["f"] = FileEngine(.caches)
    others[5].vaultOptions.authenticate = { _ in nil }
    for other in others { expectFailure(.misuse) { try program.bootstrap(other) } }
    _ = program.makeProcessScope()
    try program.bootstrap(setup())
    expectFailure(.misuse) { try program.bootstrap(setup("b")) }

    let late = StorageSystem.Configuration(isTestRun: false)
    _ = late.makeProcessScope()
    let error = expectFailure(.misuse) { try late.bootstrap(Setup(app: "a")) }
    #expect(error?.description.contains("a store is already in use") == true)
  }

  @Test func bootstrapConfiguresATestRunAtAnyTime() throws {
    let testRun = StorageSystem.Configuration(isTestRun: true)
    try testRun.bootstrap(Setup(app: "a"))
    try testRun.bootstrap(Setup(app: "b"))
    let scope = testRun.makeProcessScope()
    defer { scope.close() }
    try scope.defaults(.standard).set(1, forKey: "k")
    let vault = scope.vault(.standard)
    #expect(try vault.protection == nil)
    try testRun.bootstrap(Setup(app: "c", vaultOptions: VaultOptions(sources: [Self.quick])))
    try vault.set("tok", forKey: "k")
    #expect(try vault.protection == .passphrase)
    #expect(try scope.defaults(.standard).int("k") == 1)
  }

  @Test(.temporaryStorage) func bootstrapConfiguresAScopeAtAnyTime() throws {
    Defaults.set("dark", forKey: "theme")
    for app in ["com.example.notes", "com.example.notes", "other"] {
      try StorageSystem.bootstrap(
        app: app, directories: .init(configuration: URL(filePath: "/nowhere")),
        engines: ["session": TableEngine()], keySources: [Self.quick])
    }
    #expect(Defaults.string("theme") == "dark")
    #expect(Defaults.set(1, forKey: "k", suite: "session"))
    #expect(try Defaults.suite("session").fileURL?.path.contains("/scope-") == true)
    #expect(SecureVault.set("tok", forKey: "k"))
    #expect(SecureVault.protection == .passphrase)
  }

  @Test(.temporaryStorage(keySources: [quick], authenticate: { _ in "swordfish" }))
  func aScopeKeepsWhatItWasGiven() throws {
    try StorageSystem.bootstrap(
      app: "a", keySources: [.keyFile],
      authenticate: { _ in
        Issue.record("the other closure was given")
        return nil
      })
    #expect(SecureVault.set("1234", forKey: "pin", access: .userPresence))
    #expect(SecureVault.protection == .passphrase)
    #expect(SecureVault.get("pin", reason: "Unlock") == "1234")
  }

  @Test func errorDescribesOperationKeyPathAndRemedy() {
    let error = StorageError(errno: ENOSPC, operation: "write", path: "/disk/file")
      .inContext(of: "set", key: "theme")
    let text = error.description
    for part in ["set", "\"theme\"", "disk full (write: ", "/disk/file", "Free some space"] {
      #expect(text.contains(part), "\(text)")
    }
    #expect(error.errorDescription == text)
    #expect(error.recoverySuggestion == error.remedy)
    func matches(_ code: StorageError.Code) -> Bool { code ~= (error as any Error) }
    #expect(matches(.diskFull) && !matches(.notFound))
  }

  @Test func errnoValuesMapToCodes() {
    let cases: [(Int32, StorageError.Code)] = [
      (ENOENT, .notFound), (EACCES, .accessDenied), (EPERM, .accessDenied), (EROFS, .accessDenied),
      (ENOSPC, .diskFull), (EDQUOT, .diskFull), (EFBIG, .diskFull), (EIO, .system(EIO)),
      (EISDIR, .system(EISDIR)), (EMFILE, .system(EMFILE)), (EBUSY, .system(EBUSY)),
      (EXDEV, .system(EXDEV)), (ENOTCONN, .system(ENOTCONN)), (ESTALE, .system(ESTALE)),
    ]
    for (number, code) in cases {
      let error = StorageError(errno: number, operation: "open", path: "/x")
      #expect(error.code == code)
      #expect(!error.remedy.isEmpty && !error.remedy.contains("manual page"), "\(error)")
    }
  }
}

/// The trait gives each case of a parameterized test its own stores.
@Suite(.temporaryStorage) struct TemporaryStorageTraitTests {
  @Suite struct Inner {
    @Test func nestedSuiteInheritsTheTrait() throws {
      let path = try #require(try Defaults.shared.fileURL?.path)
      #expect(path.contains("/scope-"))
    }
  }

  @Test func removeAllReturnsFalseIfSuitesCannotBeListed() async throws {
    try await StorageSystem.withTemporary {
      StorageSystem.onFailure = { _ in }
      Defaults.set(1, forKey: "k", suite: "named")
      let plan = FaultPlan(decide: { $0.call == .list ? .fail(EACCES) : .proceed })
      #expect(!FaultPlan.$current.withValue(plan) { StorageSystem.removeAll() })
      #expect(Defaults.contains("k", suite: "named"))
      #expect(StorageSystem.removeAll())
    }
  }
}
