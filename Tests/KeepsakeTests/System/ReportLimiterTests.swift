import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct ReportLimiterTests {
  private let limiter = ReportLimiter()
  private let start = ContinuousClock.now

  private func failure(_ key: String?, path: String = "/p") -> StorageError {
    StorageError(.damaged, operation: "get", key: key, path: path, remedy: "Look.")
  }

  private func admit(_ key: String?, path: String = "/p", after time: Duration) -> StorageError? {
    limiter.admit(failure(key, path: path), at: start + time)
  }

  @Test func eachKeyIsReportedOnceASecond() {
    for key in ["a", "b", nil, "\u{E9}", "e\u{301}"] {
      #expect(admit(key, after: .zero)?.suppressedCount == 0)
    }
    #expect(admit("a", after: .milliseconds(999)) == nil)
    #expect(admit(nil, after: .milliseconds(999)) == nil)
    let next = admit("a", after: .seconds(1))
    #expect(next?.suppressedCount == 2)
    #expect(next?.description.hasSuffix("Look. 2 other failures were not reported.") == true)
    #expect(admit("b", after: .seconds(1))?.suppressedCount == 0, "each is counted once")
    _ = admit("b", after: .milliseconds(1_001))
    #expect(
      admit("a", after: .seconds(3))?.description.hasSuffix("1 other failure was not reported.")
        == true)
  }

  @Test func manyKeysOfOneKindDoNotHideAnotherKind() {
    let reported = (0..<1_000).filter { admit("\($0)", after: .zero) != nil }
    #expect(reported.count == ReportLimiter.maximumKeyCount)
    #expect(admit("k", path: "/other", after: .zero)?.suppressedCount == 990)
  }

  @Test func remembersABoundedNumberOfReports() {
    let count = ReportLimiter.maximumKindCount
    let reported = (0..<(2 * count)).filter { admit("k", path: "/\($0)", after: .zero) != nil }
    #expect(reported.count == count)
    #expect(admit("k", path: "/new", after: .milliseconds(500)) == nil)
    #expect(admit("k", path: "/new", after: .seconds(1))?.suppressedCount == count + 1)
  }

  @Test(.temporaryStorage) func eachUnreadableSettingIsReported() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    for key in ["a", "b", "c"] { Defaults.set("text", forKey: key) }
    for _ in 0..<5 {
      for key in ["a", "b", "c"] { #expect(Defaults.get(key, default: 7) == 7) }
    }
    // A slow machine may take longer than a second.
    #expect(failures.all.prefix(3).map(\.key) == ["a", "b", "c"])
    let total = failures.all.count + failures.all.map(\.suppressedCount).reduce(0, +)
    #expect(total <= 15)
  }
}
