import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

@Suite(.proofThread) struct ISO8601TimeTests {
  @Test(arguments: [
    ("0", "2001-01-01T00:00:00Z"), ("-1", "2000-12-31T23:59:59Z"),
    ("0.50", "2001-01-01T00:00:00.5Z"),
    ("-0.25", "2000-12-31T23:59:59.75Z"), ("-63113904000", "0001-01-01T00:00:00Z"),
    ("252423993599.5", "9999-12-31T23:59:59.5Z"), ("-27993600", "2000-02-12T00:00:00Z"),
    ("-26524800.0", "2000-02-29T00:00:00Z"), ("99792000", "2004-03-01T00:00:00Z"),
  ])
  func secondsAreWrittenAndRead(seconds: String, text: String) {
    #expect(ISO8601Time.text(ofSeconds: seconds) == text)
    #expect(ISO8601Time.seconds(of: text) == Double(seconds))
  }

  @Test(arguments: [
    "-0", "-0.0", "1e300", "1e-07", "252423993600", "-63113904001", "", ".", "1.", "x",
  ])
  func otherSecondsStayNumbers(seconds: String) {
    #expect(ISO8601Time.text(ofSeconds: seconds) == nil)
  }

  @Test(arguments: [
    "", "2001-01-01", "2001-01-01T00:00:00", "2001-13-01T00:00:00Z", "2001-00-01T00:00:00Z",
    "2001-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2001-04-31T00:00:00Z", "2001-01-01T24:00:00Z",
    "2001-01-01T00:60:00Z", "2001-01-01T00:00:60Z", "2001-01-01T00:00:00.Z",
    "2001-01-01T00:00:00Zx",
    "0000-01-01T00:00:00Z", "2001-01-01T00:00:00+1:00", " 2001-01-01T00:00:00Z",
    "2001-01-00T00:00:00Z",
  ])
  func otherTextIsNoTime(text: String) { #expect(ISO8601Time.seconds(of: text) == nil) }

  @Test func everyDoubleIsReadBackExactly() throws {
    var random = SplitMix64(seed: 18)
    for _ in 0..<Coverage.count(sample: 2_000, complete: 200_000) {
      let seconds =
        Double.random(in: -63_114_076_800...252_423_993_599, using: &random)
        / [1, 1, 10, 1e6].randomElement(using: &random)!
      guard let text = ISO8601Time.text(ofSeconds: seconds.description) else { continue }
      #expect(ISO8601Time.seconds(of: text) == seconds, "\(seconds) \(text)")
      // Foundation's calendar before 1582 is another one.
      guard seconds > -13_000_000_000 else { continue }
      let date = try Date("\(text.prefix(19))Z", strategy: .iso8601)
      #expect(date.timeIntervalSinceReferenceDate == seconds.rounded(.down), "\(text)")
    }
  }
}
