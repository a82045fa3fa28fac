import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A backing that gives each suite of an app an engine.
@Suite struct StorageBackingTests {
  private struct Refused: Error {}

  private final class Team: StorageBacking {
    let tables = Locked<[String: TableEngine]>([:])
    let failure = Locked<(any Error)?>(nil)
    let onRequest = Locked<@Sendable () throws -> Void>({})

    func engine(for suite: Defaults.Suite, app: String) throws -> (any StorageEngines.Engine)? {
      if let error = failure.withLock({ $0 }) { throw error }
      try onRequest.withLock { $0 }()
      return suite == "window" ? nil : table(suite, app)
    }

    func suites(app: String) throws -> [Defaults.Suite] {
      if let error = failure.withLock({ $0 }) { throw error }
      return tables.withLock { tables in
        tables.compactMap { name, table in
          table.keys().isEmpty ? nil : Defaults.Suite(String(name.dropFirst(app.count + 1)))
        }
      }
    }

    func table(_ suite: Defaults.Suite, _ app: String) -> TableEngine {
      tables.withLock { tables in
        let table = tables["\(app)/\(suite.name)"] ?? TableEngine()
        tables["\(app)/\(suite.name)"] = table
        return table
      }
    }
  }

  private let team = Team()
  private let directory: TemporaryDirectory
  private let scope: StorageScope

  init() throws {
    directory = try TemporaryDirectory()
    let program = StorageSystem.Configuration(isTestRun: false)
    let setup = StorageSystem.Setup(
      app: "shop", backing: team,
      directories: .init(configuration: directory.url, data: directory.url),
      engines: ["session": MemoryEngine()])
    try program.bootstrap(setup)
    scope = program.makeProcessScope()
  }

  @Test func suitesAreOnTheEnginesOfTheBacking() throws {
    defer { scope.close() }
    for suite: Defaults.Suite in [.standard, "prices", "window", "session", .memory] {
      try scope.defaults(suite).set(suite.name, forKey: "k")
      #expect(try scope.defaults(suite).string("k") == suite.name)
    }
    #expect(team.table(.standard, "shop").data(forKey: "k") == Data("\"standard\"".utf8))
    #expect(team.table("prices", "shop").data(forKey: "k") == Data("\"prices\"".utf8))
    #expect(team.tables.withLock { $0.count } == 2)
    #expect(try scope.defaults("window").fileURL != nil)
    #expect(try scope.defaults(.standard).fileURL == nil)
    let own = Defaults.Suite("own", in: directory.url)
    #expect(try scope.defaults(own).fileURL != nil)
    let suites = try scope.defaults(.standard).suites()
    #expect(suites == ["prices", "session", .standard, "window"])
  }

  @Test func anErrorOfTheBackingNamesItAndTheCall() throws {
    defer { scope.close() }
    team.failure.withLock { $0 = Refused() }
    let error = try #require(
      expectFailure(.engineFailed) { try scope.defaults("prices").set(1, forKey: "k") })
    #expect(error.underlyingError is Refused && error.operation == "set")
    #expect(error.description.contains("Team threw Refused"))
    try scope.defaults("session").set(1, forKey: "k")
  }

  /// What is on this machine is listed while the server is away.
  @Test func suitesAreListedIfTheBackingCannotListItsOwn() throws {
    defer { scope.close() }
    let failures = Failures()
    scope.onFailure = failures.append
    try scope.defaults("window").set(1, forKey: "k")
    try scope.defaults("prices").set(1, forKey: "k")
    team.failure.withLock { $0 = Refused() }
    #expect(try scope.defaults(.memory).suites() == ["session", "window"])
    #expect(failures.all.map(\.code) == [.engineFailed])
    #expect(failures.all[0].operation == "Defaults.suites")
  }

  /// The backing may read settings of this machine to find its server.
  @Test func theBackingMayUseOtherSuites() throws {
    defer { scope.close() }
    try scope.defaults("window").set("server:1", forKey: "address")
    let address = Locked<String?>(nil)
    team.onRequest.withLock {
      $0 = { [scope] in
        let found = try scope.defaults("window").string("address")
        address.withLock { $0 = found }
      }
    }
    try scope.defaults("prices").set(1, forKey: "k")
    #expect(address.withLock { $0 } == "server:1")
  }

  /// A test never reaches a server that it does not name.
  @Test func aTestRunUsesNoBacking() throws {
    let testRun = StorageSystem.Configuration(isTestRun: true)
    try testRun.bootstrap(StorageSystem.Setup(app: "shop", backing: team))
    let scope = testRun.makeProcessScope()
    defer { scope.close() }
    try scope.defaults(.standard).set(1, forKey: "k")
    #expect(team.tables.withLock { $0.isEmpty })
  }

  @Test(.temporaryStorage) func aScopeUsesNoBacking() throws {
    try StorageSystem.bootstrap(app: "shop", on: team)
    try StorageSystem.bootstrap(app: "shop", on: .thisMachine)
    #expect(Defaults.set(1, forKey: "k"))
    #expect(team.tables.withLock { $0.isEmpty })
  }
}
