/// A stored number, and its value in other numeric types where no digit is lost.
enum LosslessNumber {
  case integer(Int64)
  case floatingPoint(Double)
  /// The JSON of a number that fits neither.
  case text(String)

  /// nil if `stored` is not a number.
  init?(_ stored: StoredValue) {
    switch stored {
    case .int(let value): self = .integer(value)
    case .double(let value): self = .floatingPoint(value)
    case .json(let bytes):
      guard bytes.withUnsafeBytes(JSONScanner.isNumber) else { return nil }
      self = .text(String(decoding: bytes, as: UTF8.self))
    case .bool, .string, .data, .date: return nil
    }
  }

  func integer<I: FixedWidthInteger>(_ type: I.Type) -> I? {
    switch self {
    case .integer(let value): I(exactly: value)
    case .floatingPoint(let value): I(exactly: value)
    case .text(let text): I(text) ?? double.flatMap { I(exactly: $0) }
    }
  }

  var double: Double? {
    switch self {
    case .integer(let value): return Double(exactly: value)
    case .floatingPoint(let value): return value
    case .text(let text):
      // Lossless if the shortest decimal of the Double is the same number as the text.
      guard let value = Double(text), value.isFinite,
        let original = Self.normalized(text), let converted = Self.normalized(value.description),
        original == converted
      else { return nil }
      return value
    }
  }

  var float: Float? {
    guard let double else { return nil }
    guard double.isFinite else { return Float(double) }
    guard let value = Float(double.description), value.isFinite,
      Double(value) == double || Double(value.description) == double
    else { return nil }
    return value
  }

  /// Whether this is the number, or its shortest decimal as a `Float`.
  func isEqual(to number: some BinaryFloatingPoint) -> Bool {
    double == Double(number) || float == Float(number)
  }

  /// The sign of a JSON number, its digits without leading and trailing zeros, and the power of ten
  /// of the last digit.
  private static func normalized(
    _ text: String
  ) -> (isNegative: Bool, digits: [UInt8], exponent: Int)? {
    let parts = text.lowercased().split(separator: "e", maxSplits: 1)
    guard let mantissa = parts.first, let power = parts.count == 2 ? Int(parts[1]) : 0 else {
      return nil
    }
    let halves = mantissa.split(separator: ".", maxSplits: 1)
    var digits = halves.joined().utf8.drop { !(0x31...0x39).contains($0) }[...]
    var exponent = power.subtractingReportingOverflow(halves.count == 2 ? halves[1].count : 0)
      .partialValue
    while digits.last == UInt8(ascii: "0") {
      digits = digits.dropLast()
      exponent &+= 1
    }
    return (text.hasPrefix("-"), Array(digits), digits.isEmpty ? 0 : exponent)
  }
}
