/// JSON numbers, and strings for the numbers that JSON cannot express.
enum JSONNumber {
  static let notANumber = "NaN"
  static let infinity = "Infinity"
  static let negativeInfinity = "-Infinity"

  /// Appends a JSON number, or a JSON string if `number` is not finite.
  static func append(_ number: Double, to output: inout [UInt8]) {
    if number.isFinite {
      output.append(contentsOf: number.description.utf8)
    } else {
      let name = number.isNaN ? notANumber : number < 0 ? negativeInfinity : infinity
      JSONString.append(name, to: &output)
    }
  }

  /// The number that is not finite and has this name.
  static func nonFinite(named name: String) -> Double? {
    switch name {
    case notANumber: .nan
    case infinity: .infinity
    case negativeInfinity: -.infinity
    default: nil
    }
  }

  /// Calls `body` with the decimal digits of an integer, without the cost of a `String`.
  static func withDigits(of number: Int64, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
    // The longest: 19 digits and a sign.
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      var start = digits.count
      var rest = number.magnitude
      repeat {
        start -= 1
        let (quotient, digit) = rest.quotientAndRemainder(dividingBy: 10)
        digits[start] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: digit)
        rest = quotient
      } while rest > 0
      if number < 0 {
        start -= 1
        digits[start] = UInt8(ascii: "-")
      }
      body(UnsafeBufferPointer(rebasing: digits[start...]))
    }
  }
}
