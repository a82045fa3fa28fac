import Foundation
import Keepsake
import KeepsakeTesting
import Testing
import XCTest

@testable import KeepsakeTestSupport

/// The snippets of the landing page and of the articles on the first steps, set-ups, engines and
/// testing; `SnippetTests` compares them.
@Suite(.temporaryStorage, .quickPassphrases, .ownThread) struct OverviewTests {
  // MARK: The landing page

  @Test func allStoresReturnWhatWasStored() throws {
    let (data, user) = (Data("image".utf8), User(name: "Ann"))

    Defaults.set(25, forKey: "age")
    let age = Defaults.get("age", default: 18)

    SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
    let token = SecureVault.get("accessToken", service: "com.app.auth")

    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let image = DiskCache.get("image_001")

    try Folder.documents.save(user, as: "users/1.json")
    let ann: User = try Folder.documents.load("users/1.json")

    #expect(age == 25 && token == "tok" && image == data && ann == user)
  }

  // MARK: First steps

  @Test func launchesAreCounted() {
    for launch in 1...2 {
      let launches = Defaults.update("launches", default: 0) { $0 += 1 }
      print("This is launch number \(launches).")
      #expect(launches == launch)
    }

    SecureVault.set("tok", forKey: "accessToken")
    print(SecureVault.get("accessToken") ?? "There is no token.")
    #expect(SecureVault.get("accessToken") == "tok")
  }

  // MARK: Set-ups

  @Test func bootstrapChoosesDirectories() async {
    await #expect(processExitsWith: .success) {
      let data = URL(filePath: "/data")
      try StorageSystem.bootstrap(
        app: "com.example.diary",
        directories: .init(configuration: data, data: data, state: data, cache: data))
      // A test run uses its own directories.
      #expect(try Defaults.shared.fileURL?.path.hasPrefix("/data") == false)
    }
  }

  // MARK: Engines

  @Test func suitesUseTheirEngines() async {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(
        app: "com.example.notes",
        engines: [
          "session": StorageEngines.memory(),
          "themes": StorageEngines.files(in: .applicationSupport.subfolder("themes")),
        ])
      Defaults.set("dark", forKey: "name", suite: "themes")
      #expect(Defaults.string("name", suite: "themes") == "dark")
    }
  }

  @Test func allSuitesAreOnTheBacking() async throws {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(app: "com.example.shop", on: TeamServer())
      Defaults.set(0.2, forKey: "rollout")
      #expect(Defaults.get("rollout") == 0.2)
    }
    // A test run, as that process is, uses no backing.
    let server = TeamServer()
    #expect(server.engine(for: "prices", app: "shop") is TeamEngine)
    #expect(server.engine(for: "window", app: "shop") == nil)
    #expect(try server.suites(app: "shop") == ["prices"])
  }

  @Test func conforms() async throws {
    try await StorageEngineConformance.check { TableEngine() }
  }

  @Test(.temporaryStorage(engines: [.standard: FailingEngine()])) func showsTheDefault() {
    StorageSystem.onFailure = { _ in }
    #expect(!Defaults.set(18, forKey: "size"))
    #expect(Defaults.get("size", default: 16) == 16)
  }

  // MARK: Testing

  @Suite(.temporaryStorage) struct SettingsTests {
    @Test func startsWithDefaults() { #expect(Defaults.int("launches") == 0) }
  }

  @Test(.temporaryStorage(authenticate: { _ in "swordfish" })) func keepsThePIN() throws {
    try SecureVault.shared.set("1234", forKey: "pin", access: .userPresence)
    #expect(SecureVault.get("pin", reason: "Unlock notes") == "1234")
    let error = #expect(throws: StorageError.self) {
      try SecureVault.shared.unlock(passphrase: "x")
    }
    #expect(error?.code == .misuse)
  }

  func run() throws {
    try StorageSystem.bootstrap(app: "com.example.notes")
    Defaults.update("launches", default: 0) { $0 += 1 }
  }

  @Test(.temporaryStorage) func countsLaunches() throws {
    try run()
    try run()
    #expect(Defaults.int("launches") == 2)
  }

  @Test(.temporaryStorage) func theHomePageExpires() async {
    DiskCache.set("page", forKey: "home", expiry: .minutes(5))
    await StorageSystem.withClock(advancedBy: .minutes(6)) {
      #expect(!DiskCache.contains("home"))
    }
  }

  @Test(.temporaryStorage) func goesOnWithoutACache() throws {
    StorageSystem.onFailure = { _ in }
    let directory = try #require(try DiskCache.shared.folderURL)
    try FileManager.default.createDirectory(
      at: directory.deletingLastPathComponent(), withIntermediateDirectories: true)
    try Data().write(to: directory)
    #expect(!DiskCache.set("page", forKey: "home"))
  }

  @Test func failuresOfAScopeAreItsOwn() async throws {
    try await StorageSystem.withTemporary {
      await confirmation { isReported in
        StorageSystem.onFailure = { failure in
          if failure.code == .misuse { isReported() }
        }
        DiskCache.sizeLimit = 1_000
        DiskCache.set(Data(count: 2_000), forKey: "image")
      }
    }
  }
}

/// XCTest finds only classes that are not nested.
final class LaunchTests: XCTestCase {
  override func invokeTest() {
    do { try StorageSystem.withTemporarySynchronously { super.invokeTest() } } catch {
      XCTFail("\(error)")
    }
  }

  func testCountsLaunches() async throws {
    Defaults.update("launches", default: 0) { $0 += 1 }
    XCTAssertEqual(Defaults.int("launches"), 1)
  }

  override func setUp() { XCTAssertEqual(Defaults.update("set up", default: 0) { $0 += 1 }, 1) }
  override func tearDown() { XCTAssertEqual(Defaults.int("set up"), 1) }

  func testCountsLaunchesAgain() {
    Defaults.update("launches", default: 0) { $0 += 1 }
    XCTAssertEqual(Defaults.int("launches"), 1)
  }
}

private struct TeamServer: StorageBacking {
  func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? {
    suite == "window" ? nil : TeamEngine(table: "\(app)/\(suite.name)")
  }

  func suites(app: String) throws -> [Defaults.Suite] {
    try tables(of: app).map { Defaults.Suite($0) }
  }

  private func tables(of app: String) throws -> [String] { ["prices"] }
}

/// Stands for an engine that asks a server.
private typealias TeamEngine = TableEngine

extension TableEngine {
  fileprivate convenience init(table: String) { self.init() }
}

/// An engine that fails on every write.
struct FailingEngine: StorageEngines.Engine {
  let error = StorageError(.diskFull, operation: "write", remedy: "Free some space.")
  func data(forKey key: String) -> Data? { nil }
  func set(_ data: Data?, forKey key: String) throws { throw error }
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool { throw error }
  func keys() -> [String] { [] }
}

private struct User: Codable, Equatable { var name: String }
