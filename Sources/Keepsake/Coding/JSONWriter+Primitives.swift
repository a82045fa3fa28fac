internal import FoundationEssentials

extension JSONWriter {
  /// A type whose values encode themselves as null.
  struct Null: Encodable {
    func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encodeNil()
    }
  }

  /// Appends a value that is a JSON primitive, in the same form as Foundation's encoder; returns
  /// false if the value must encode itself.
  ///
  /// Never inlined, so that its locals take no stack from the callers, which are recursive.
  @inline(never)
  static func appendPrimitive<T>(_ value: T, to output: inout [UInt8]) -> Bool {
    if let text = exactCast(value, to: String.self) {
      JSONString.append(text, to: &output)
    } else if let bool = exactCast(value, to: Bool.self) {
      output += (bool ? "true" : "false").utf8
    } else if let number = exactCast(value, to: Double.self) {
      append(number, description: number.description, to: &output)
    } else if T.self == Null.self {
      output += "null".utf8
    } else if let data = exactCast(value, to: Data.self) {
      StoredValue.data(data).append(to: &output)
    } else if let date = exactCast(value, to: Date.self) {
      let number = date.timeIntervalSinceReferenceDate
      append(number, description: number.description, to: &output)
    } else if let url = exactCast(value, to: URL.self) {
      JSONString.append(url.absoluteString, to: &output)
    } else if let number = exactCast(value, to: Decimal.self) {
      if number.isNaN { return false }
      output += number.description.utf8
    } else if let number = exactCast(value, to: Float.self) {
      append(Double(number), description: number.description, to: &output)
    } else {
      return appendInteger(value, to: &output)
    }
    return true
  }

  /// Appends a floating-point number, without a fraction of zero, so that it reads as an integer.
  private static func append(
    _ number: Double, description: String, to output: inout [UInt8]
  ) {
    guard number.isFinite else { return JSONNumber.append(number, to: &output) }
    output += description.utf8
    if description.hasSuffix(".0") { output.removeLast(2) }
  }

  @inline(__always)
  private static func appendInteger<T>(_ value: T, to output: inout [UInt8]) -> Bool {
    if let number = exactCast(value, to: Int.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: Int64.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: Int32.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: Int16.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: Int8.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt64.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt32.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt16.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt8.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: Int128.self) { return append(number, to: &output) }
    if let number = exactCast(value, to: UInt128.self) { return append(number, to: &output) }
    return false
  }

  private static func append(_ number: some FixedWidthInteger, to output: inout [UInt8]) -> Bool {
    if let number = Int64(exactly: number) {
      JSONNumber.withDigits(of: number) { output += $0 }
    } else {
      output += number.description.utf8
    }
    return true
  }
}
