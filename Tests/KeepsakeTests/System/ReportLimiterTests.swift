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

  @Test func manyFailuresOfOneKindDoNotHideAnotherKind() {
    let reported = (0..<1_000).filter { number in
      admit("\(number % 7)", path: "/\(number)", after: .zero) != nil
    }
    #expect(reported.count == ReportLimiter.maximumCount)
    let other = StorageError(.diskFull, operation: "get", key: "0", path: "/0", remedy: "Look.")
    #expect(limiter.admit(other, at: start)?.suppressedCount == 990)
    #expect(admit("0", path: "/0", after: .seconds(1))?.suppressedCount == 0)
  }

  @Test func theSameKeyOfAnotherPathIsReported() {
    for path in ["/p", "/q"] { #expect(admit("a", path: path, after: .zero) != nil) }
    for path in ["/p", "/q"] { #expect(admit("a", path: path, after: .zero) == nil) }
  }

  /// Each write of an entry has a temporary file with another name.
  @Test(.temporaryStorage) func aFullDiskIsReportedForTenKeys() throws {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    DiskCache.set(0, forKey: "0")
    let path = try DiskCache.shared.payload("0")
    ReportLimiter.$period.withValue(.seconds(3_600)) {
      withDiskFull(afterBytes: 0) {
        for _ in 0..<3 { DiskCache.set(0, forKey: "0") }
        #expect(failures.all.count == 1)
        for key in 1..<100 { DiskCache.set(0, forKey: "\(key)") }
      }
    }
    #expect(failures.all.count == ReportLimiter.maximumCount)
    #expect(failures.all.first?.path == path)
    #expect(failures.all.allSatisfy { $0.code == .diskFull && $0.path?.hasSuffix(".tmp") == false })
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
