import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct WeatherError: Error, CustomStringConvertible {
  var description: String { "no\n network" }
}

/// Reports of what did not fail.
@Suite struct SeverityTests {
  @Test func anExpiredValueIsAWarningThatQuotesTheProducer() async throws {
    let (directory, failures) = (try TemporaryDirectory(), Failures())
    let store = directory.cache(failures: failures)
    try store.set("old", forKey: "k", expiry: .seconds(1), keptFor: .hours(10), tags: [:])
    func fetch(_ error: any Error) async throws -> String {
      try await WallClock.$fixed.withValue(WallClock.now + 60 * WallClock.second) {
        try await store.fetch("k", expiry: .minutes(5), staleIfFailing: .hours(2)) {
          () async throws -> String in throw error
        }
      }
    }
    #expect(try await fetch(WeatherError()) == "old")
    let report = try #require(failures.all.first)
    #expect(report.severity == .warning && report.code == .fetchFailed)
    #expect(
      report.description.hasPrefix(
        "DiskCache.fetch warns for key \"k\": the producer threw WeatherError: no network, so the "
          + "value is an expired one from the cache at /"), "\(report)")
    store.backoff.noteSuccess("k")
    let coding = DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "s3cret"))
    _ = try await ReportLimiter.$period.withValue(.zero) { try await fetch(coding) }
    let other = try #require(failures.all.last)
    #expect(other.description.contains("threw DecodingError, so") && failures.all.count == 2)
  }

  @Test func aRepairedFileIsAWarning() throws {
    let (directory, failures) = (try TemporaryDirectory(), Failures())
    try directory.store().set(String(repeating: "long ", count: 20), forKey: "a")
    try directory.store().set(2, forKey: "b")
    let journal = directory.file(TemporaryDirectory.journal).path
    let position = try #require(try Bytes.read(journal).firstRange(of: Array("long".utf8)))
    try Bytes.write(UInt8(ascii: "X"), at: position.lowerBound, of: journal)
    let value = try anHourLater { try directory.store(failures: failures).int("b") }
    #expect(value == 2)
    #expect(failures.all.map(\.code) == [.damaged])
    #expect(failures.all.map(\.severity) == [.warning])
    #expect(failures.all.first?.description.contains(" warns: ") == true)
  }

  @Test func aFileThatCannotBeRepairedIsAFailure() throws {
    let (directory, failures) = (try TemporaryDirectory(), Failures())
    try directory.store().set(1, forKey: "a")
    let journal = directory.file(TemporaryDirectory.journal).path
    try Bytes.write(UInt8(ascii: "X"), at: JournalFormat.headerSize + 4, of: journal)
    let plan = FaultPlan(decide: { $0.path.hasSuffix(".tmp") ? .fail(EROFS) : .proceed })
    let value = try anHourLater {
      try FaultPlan.$current.withValue(plan) { try directory.store(failures: failures).int("a") }
    }
    #expect(value == 0)
    #expect(failures.all.map(\.code) == [.damaged])
    #expect(failures.all.map(\.severity) == [.failure])
  }

  @Test func whatACallThrowsIsAFailure() throws {
    let store = try TemporaryDirectory().store()
    try store.set("text", forKey: "k")
    let error = #expect(throws: StorageError.self) { try store.int("k") }
    #expect(error?.severity == .failure && error?.description.contains("failed for key") == true)
    #expect(error?.asWarning.inContext(of: "x").reported(suppressedCount: 1).severity == .warning)
  }

  // MARK: Enums

  private enum Units: String, Codable, CaseIterable { case metric, imperial }
  private enum Level: Int, Codable { case low = 1 }
  private struct Settings: Codable { var units: Units }

  @Test func anUnknownCaseNamesTheTypeAndItsCasesAndNoValue() throws {
    let store = try TemporaryDirectory().store()
    try store.set("kelvin", forKey: "units")
    try store.set(7, forKey: "level")
    try store.set(["units": "kelvin"], forKey: "settings")
    func reason<T: Codable>(_ key: String, _ type: T.Type) -> String? {
      let error = #expect(throws: StorageError.self) { _ = try store.model(key, type: T.self) }
      #expect(error?.code == .decodingFailed && error?.description.contains("kelvin") == false)
      #expect(error?.remedy.hasPrefix("Store one of its cases") == true)
      return error?.reason
    }
    #expect(
      reason("units", Units.self)
        == "the stored value is no case of Units, which has metric, imperial")
    #expect(reason("units", Units?.self)?.contains("no case of Units, which has metric") == true)
    #expect(reason("level", Level.self) == "the stored value is no case of Level")
    #expect(
      reason("settings", Settings.self)
        == "Settings: the value at units is no case of Units")
  }

  // MARK: Inodes

  /// A disk that has space, but no room for another file.
  @Test(.enabled(if: OneAtATime.HazardTests.canMount)) func aDiskWithoutInodesSaysSo() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try #require(mount("none", directory.path, "tmpfs", 0, "nr_inodes=3,size=1m") == 0)
    defer { umount2(directory.path, 2) }
    let scope = StorageScope(
      finder: DirectoryFinder(
        app: "test", chosen: .init(configuration: directory.url.appending(path: "a/b/c"))))
    defer { scope.close() }
    let store = scope.defaults(.standard)
    let error = expectFailure(.diskFull, reason: "no inodes for more files") {
      try store.set(1, forKey: "k")
    }
    #expect(error?.remedy == "Delete files that are not needed, then try again.")
  }
}
