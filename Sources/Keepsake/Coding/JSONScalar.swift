internal import FoundationEssentials

/// The JSON of values that have no parts, as the toolchain's encoder would write it.
enum JSONScalar {
  /// What `encodeNil` writes.
  struct Null: Encodable {
    func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encodeNil()
    }
  }

  /// Appends a value; false when it has to encode itself.
  ///
  /// Never inlined, so that it takes no stack from callers that are called again for what is
  /// within.
  @inline(never)
  static func append<T>(_ value: T, to output: inout [UInt8]) -> Bool {
    if let text = same(value, as: String.self) {
      JSONText.append(text, to: &output)
    } else if let bool = same(value, as: Bool.self) {
      output += (bool ? "true" : "false").utf8
    } else if let number = same(value, as: Double.self) {
      append(number, number.description, to: &output)
    } else if T.self == Null.self {
      output += "null".utf8
    } else if let data = same(value, as: Data.self) {
      StoredValue.data(data).append(to: &output)
    } else if let date = same(value, as: Date.self) {
      let number = date.timeIntervalSinceReferenceDate
      append(number, number.description, to: &output)
    } else if let url = same(value, as: URL.self) {
      JSONText.append(url.absoluteString, to: &output)
    } else if let number = same(value, as: Decimal.self) {
      if number.isNaN { return false }
      output += number.description.utf8
    } else if let number = same(value, as: Float.self) {
      append(Double(number), number.description, to: &output)
    } else {
      return appendInteger(value, to: &output)
    }
    return true
  }

  /// Whole numbers without a fraction, so that they are kept and read as integers.
  private static func append(_ number: Double, _ text: String, to output: inout [UInt8]) {
    guard number.isFinite else { return JSONText.append(number, to: &output) }
    output += text.utf8
    if text.hasSuffix(".0") { output.removeLast(2) }
  }

  @inline(__always)
  private static func appendInteger<T>(_ value: T, to output: inout [UInt8]) -> Bool {
    if let number = same(value, as: Int.self) { return append(number, to: &output) }
    if let number = same(value, as: Int64.self) { return append(number, to: &output) }
    if let number = same(value, as: Int32.self) { return append(number, to: &output) }
    if let number = same(value, as: Int16.self) { return append(number, to: &output) }
    if let number = same(value, as: Int8.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt64.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt32.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt16.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt8.self) { return append(number, to: &output) }
    if let number = same(value, as: Int128.self) { return append(number, to: &output) }
    if let number = same(value, as: UInt128.self) { return append(number, to: &output) }
    return false
  }

  private static func append(_ number: some FixedWidthInteger, to output: inout [UInt8]) -> Bool {
    if let number = Int64(exactly: number) {
      JSONText.withDigits(of: number) { output += $0 }
    } else {
      output += number.description.utf8
    }
    return true
  }
}
