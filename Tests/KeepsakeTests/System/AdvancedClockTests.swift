import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The clock for tests of apps.
@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct AdvancedClockTests {
  @Test(arguments: [DiskCache.Name.standard, .memory])
  func entriesExpireWithoutWaiting(_ cache: DiskCache.Name) async throws {
    DiskCache.set("v", forKey: "k", expiry: .minutes(5), cache: cache)
    DiskCache.set("v", forKey: "idle", expiry: .idle(.minutes(5)), cache: cache)
    for minutes in [0, 4, 6] {
      await StorageSystem.withClock(advancedBy: .minutes(minutes)) {
        #expect(DiskCache.contains("k", cache: cache) == (minutes < 5), "\(minutes)")
      }
    }
    await StorageSystem.withClock(advancedBy: .minutes(4)) {
      // Used now, so it lives longer.
      #expect(DiskCache.get("idle", cache: cache) != nil)
      await StorageSystem.withClock(advancedBy: .minutes(4)) {
        #expect(DiskCache.contains("idle", cache: cache), "the calls add up to eight minutes")
      }
      await StorageSystem.withClock(advancedBy: .minutes(6)) {
        #expect(!DiskCache.contains("idle", cache: cache))
      }
    }
  }

  @Test func fetchesAndTheirTasksSeeTheClock() async throws {
    func fetch(_ value: String) async throws -> String {
      try await DiskCache.fetch("k", expiry: .minutes(5), staleFor: .hours(1)) { value }
    }
    #expect(try await fetch("old") == "old")
    #expect(try await fetch("unused") == "old")
    try await StorageSystem.withClock(advancedBy: .minutes(6)) {
      #expect(try await fetch("new") == "old")
      try await eventually("the new value is stored") {
        try DiskCache.shared.model("k") == "new"
          && InFlightFetches.shared.isEmpty(for: DiskCache.shared)
      }
    }
    try await StorageSystem.withClock(advancedBy: .days(1)) {
      #expect(try await fetch("newest") == "newest")
      let size: Int = try await DiskCache.shared.perform { try $0.count }
      #expect(size == 1)
    }
  }

  @Test func lengthsOfAnySizeAreTaken() async {
    DiskCache.set("v", forKey: "k", expiry: .days(7))
    for length: Duration in [.seconds(Int64.max) * 9, .days(Int.max), .hours(200_000_000)] {
      await StorageSystem.withClock(advancedBy: length) {
        await StorageSystem.withClock(advancedBy: length) { #expect(!DiskCache.contains("k")) }
      }
    }
    await StorageSystem.withClock(advancedBy: .seconds(Int64.min) * 9) {
      _ = DiskCache.contains("k")
    }
    #expect(DiskCache.set("v", forKey: "k", expiry: .days(7)) && DiskCache.contains("k"))
  }
}
