import Foundation
import KeepsakeTesting
import Observation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct StorageSystemTests {
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
      #expect(Defaults.synchronize() && DiskCache.removeExpired())
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
    expectFailure(.misuse) { try StorageSystem.bootstrap(app: name) }
  }

  // MARK: Bootstrap

  /// A source that opens in a moment.
  private static let quick = SecureVault.KeySource(.passphrase("swordfish", logN: 10))

  private typealias Setup = StorageSystem.Setup

  @Test func bootstrapThrowsIfRepeatedWithOtherArgumentsOrLate() throws {
    let program = StorageSystem.Configuration(isTestRun: false)
    let team = Team()
    func setup(_ app: String = "a", sources: [SecureVault.KeySource] = [.keyFile]) -> Setup {
      Setup(
        app: app, backing: team, directories: .init(data: URL(filePath: "/data")),
        engines: ["m": MemoryEngine(), "f": FileEngine(.documents)],
        vaultOptions: VaultOptions(sources: sources))
    }
    try program.bootstrap(setup())
    try program.bootstrap(setup())
    var others = [setup("b"), setup(sources: [.credential("x")])]
    others += Array(repeating: setup(), count: 5)
    others[2].directories.cache = URL(filePath: "/cache")
    others[3].engines["m"] = nil
    others[4].engines["f"] = FileEngine(.caches)
    others[5].vaultOptions.authenticate = { _ in nil }
    others[6].backing = .thisMachine
    for other in others { expectFailure(.misuse) { try program.bootstrap(other) } }
    _ = program.makeProcessScope()
    try program.bootstrap(setup())
    expectFailure(.misuse) { try program.bootstrap(setup("b")) }
  }

  /// Uses the configuration when it is compared, as the backing of an app may use a store.
  private struct CuriousBacking: StorageBacking, Equatable {
    let program: StorageSystem.Configuration
    func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? { nil }
    func suites(app: String) -> [Defaults.Suite] { [] }
    static func == (a: Self, b: Self) -> Bool {
      let isDone = DispatchSemaphore(value: 0)
      Thread.detachNewThread {
        a.program.makeProcessScope().close()
        isDone.signal()
      }
      return isDone.wait(timeout: .now() + 600) == .success
    }
  }

  @Test func bootstrapComparesBackingsOutsideItsLock() throws {
    let program = StorageSystem.Configuration(isTestRun: false)
    let setup = Setup(app: "a", backing: CuriousBacking(program: program))
    try program.bootstrap(setup)
    try program.bootstrap(setup)
  }

  /// What makes the configuration final, and how the error of a late bootstrap calls it.
  private static let uses: [(name: String, use: @Sendable (StorageScope) throws -> Void)] = [
    (#"the suite "standard""#, { _ = try $0.defaultsBeforeUse(.standard).keys() }),
    (#"the suite "team""#, { _ = try $0.defaultsBeforeUse("team").int("k") }),
    (#"the suite "memory""#, { try $0.defaultsBeforeUse(.memory).set(1, forKey: "k") }),
    (#"the suite "memory""#, { _ = $0.defaultsBeforeUse(.memory).changes("k", default: 0) }),
    (#"the suite "memory""#, { _ = try $0.defaultsBeforeUse(.memory).fileURL }),
    (
      #"the suite "memory""#,
      { try $0.defaultsBeforeUse(.memory).update("k", default: 0) { $0 += 1 } }
    ),
    (#"the suite "memory""#, { _ = $0.defaults(.memory) }),
    (#"the cache "memory""#, { _ = try $0.cache(.memory).get("k") }),
    (#"the cache "memory""#, { try $0.cache(.memory).set("v", forKey: "k") }),
    (
      #"the service "s in file:///nonexistent/vault""#,
      { _ = try $0.vault(.init("s", in: URL(filePath: "/nonexistent/vault"))).contains("k") }
    ),
    ("a Folder", { _ = try $0.path(of: .temporary) }),
  ]

  @Test(arguments: uses.indices) func lateBootstrapNamesTheFirstUse(_ index: Int) throws {
    let (name, use) = Self.uses[index]
    let program = StorageSystem.Configuration(isTestRun: false)
    let scope = program.makeProcessScope()
    defer { scope.close() }
    try use(scope)
    _ = try scope.defaults(.memory).string("later")
    let error = expectFailure(.misuse) { try program.bootstrap(Setup(app: "a")) }
    #expect(error?.reason == "\(name) is already in use")
  }

  /// A server sets its log handler first.
  @Test func whatUsesNoStoreMayComeBeforeBootstrap() throws {
    let directory = try TemporaryDirectory()
    func url(_ name: String) -> URL { directory.url.appending(path: name) }
    let program = StorageSystem.Configuration(isTestRun: false)
    let scope = program.makeProcessScope()
    defer { scope.close() }
    let failures = Failures()
    scope.onFailure = failures.append
    _ = scope.onFailure
    scope.defaultService = "com.app.auth"
    let (settings, cache) = (scope.defaultsBeforeUse(.standard), scope.cache(.standard))
    #expect(scope.defaultsBeforeUse(.standard) === settings)
    let vault = scope.vault(scope.defaultService)
    vault.maxWorkFactor = 12
    cache.sizeLimit = 1_000
    #expect(cache.sizeLimit == 1_000 && cache.statistics.hits == 0 && !scope.isConfigured)
    try program.bootstrap(
      Setup(
        app: "a",
        directories: .init(
          configuration: url("config"), data: url("data"), state: url("state"),
          cache: url("cache")),
        engines: ["m": MemoryEngine()],
        vaultOptions: VaultOptions(sources: [Self.quick])))
    try settings.set(1, forKey: "k")
    try vault.set("tok", forKey: "k")
    #expect(try vault.protection == .passphrase && vault.service == "com.app.auth")
    #expect(cache.sizeLimit == 1_000 && vault.maxWorkFactor == 12)
    expectFailure(.misuse) { try cache.set(Data(count: 2_000), forKey: "large") }
    cache.sizeLimit = nil
    try cache.set("v", forKey: "k")
    #expect(try scope.defaults("m").fileURL == nil, "it has the engine")
    #expect(try Set(directory.names()) == ["config", "data", "cache"])
    #expect(failures.all.isEmpty)
  }

  /// The store that was taken early and the one of later calls are one suite.
  @Test func anEarlyStoreIsTheSuiteOfLaterCalls() throws {
    let directory = try TemporaryDirectory()
    let program = StorageSystem.Configuration(isTestRun: false)
    let scope = program.makeProcessScope()
    defer { scope.close() }
    let early = scope.defaultsBeforeUse("team")
    try program.bootstrap(Setup(app: "a", directories: .init(configuration: directory.url)))
    let later = scope.defaults("team")
    try early.set(1, forKey: "k")
    #expect(try later.int("k") == 1 && early.fileURL == later.fileURL)
    let changes = Locked(0)
    withObservationTracking {
      later.registerAccess(to: "k")
    } onChange: {
      changes.withLock { $0 += 1 }
    }
    try early.set(2, forKey: "k")
    #expect(changes.withLock { $0 } == 1, "notified before the call returned")
    // Neither call can see the other's lock.
    expectFailure(.misuse) {
      try later.update("k", default: 0) { value throws(StorageError) in
        value += 1
        try early.set(3, forKey: "k")
      }
    }
    for key in ["a", "b"] { try early.set([key], forKey: key) }
    #expect(try early.model("a", type: [String].self) == ["a"] && later.keys().count == 3)
    try early.removeAll()
    #expect(try early.keys() == [] && later.keys() == [])
  }

  private final class Team: StorageBacking {
    /// The scope in which an engine was asked for.
    let scopes = Locked<[StorageScope?]>([])

    func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
      scopes.withLock { $0.append(StorageScope.temporary) }
      return TableEngine()
    }
    func suites(app: String) -> [Defaults.Suite] { [] }
  }

  /// An engine may use stores of its own when it is made.
  @Test func anEarlyStoreThatIsFirstUsedInAScopeIsTheProcesss() async throws {
    let team = Team()
    let program = StorageSystem.Configuration(isTestRun: false)
    let scope = program.makeProcessScope()
    defer { scope.close() }
    let early = scope.defaultsBeforeUse("team")
    try program.bootstrap(Setup(app: "a", backing: team))
    try await StorageSystem.withTemporary {
      try early.set(1, forKey: "k")
      // A store of the scope has its engine when it is taken.
      let own = try #require(StorageScope.temporary)
      #expect(own.isConfigured && StorageScope.unconfigured == nil)
    }
    #expect(team.scopes.withLock { $0.map { $0 == nil } } == [true])
    #expect(try scope.defaults("team").int("k") == 1)
  }

  /// The entries of the last run exceed the limit, and the program does not use the cache.
  @Test(arguments: [true, false])
  func aSizeLimitIsAppliedAtOnceOrWithBootstrap(isBootstrapped: Bool) async throws {
    let directory = try TemporaryDirectory()
    let setup = Setup(app: "a", directories: .init(cache: directory.url))
    func makeScope() throws -> (StorageScope, StorageSystem.Configuration) {
      let program = StorageSystem.Configuration(isTestRun: false)
      return (program.makeProcessScope(), program)
    }
    let (old, first) = try makeScope()
    try first.bootstrap(setup)
    for number in 0..<20 { try old.cache(.standard).set(Data(count: 4_096), forKey: "\(number)") }
    old.close()
    let (scope, program) = try makeScope()
    defer { scope.close() }
    if isBootstrapped { try program.bootstrap(setup) }
    scope.cache(.standard).sizeLimit = 40_960
    if !isBootstrapped { try program.bootstrap(setup) }
    let next = DiskCache.Store(name: .standard, scope: StorageScope(finder: scope.finder))
    try await eventually("entries are evicted") { try next.totalSize <= 40_960 }
  }

  @Test func threadsThatNeedAValueFirstAgree() async throws {
    let made = Locked(0)
    for _ in 0..<200 {
      let number = FirstUse<Int>(make: {
        made.withLock { made in
          made += 1
          return made
        }
      })
      let values = await withTaskGroup(of: Int.self) { group in
        for _ in 0..<4 { group.addTask { number.value } }
        return await group.reduce(into: Set<Int>()) { $0.insert($1) }
      }
      #expect(values == [number.value] && number.isMade)
    }
  }

  @Test(.temporaryStorage) func bootstrapSetsTheHandler() throws {
    let failures = Failures()
    try StorageSystem.bootstrap(app: "com.example.notes", onFailure: failures.append)
    Defaults.set("text", forKey: "k")
    #expect(Defaults.int("k") == 0 && failures.all.map(\.code) == [.wrongType])
    #expect(throws: StorageError.self) {
      try StorageSystem.bootstrap(app: "a/b", onFailure: { _ in })
    }
    _ = Defaults.double("k")
    #expect(failures.all.count == 2, "a bootstrap that throws sets nothing")
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
