/// A number of bytes with a human-readable description such as `1.23 MB`.
///
/// ```swift
/// print(ByteCount(DiskCache.totalSize))   // 1.23 MB
/// ```
///
/// Uses decimal units like disks and file managers (IEC 80000-13: 1 kB is 1,000 bytes), rounded to
/// three digits.
public struct ByteCount: Hashable, Sendable, CustomStringConvertible {
  private let bytes: Int

  /// Wraps a number of bytes.
  public init(_ bytes: Int) { self.bytes = bytes }

  /// The number in the largest unit that is not greater than it: `0 bytes`, `1 byte`, `999 bytes`,
  /// `1.5 kB`.
  public var description: String {
    let sign = bytes < 0 ? "-" : ""
    let count = bytes.magnitude
    if count < 1_000 { return "\(sign)\(count) byte\(count == 1 ? "" : "s")" }

    var size: UInt = 1_000
    var unit = 0
    while count / size >= 1_000 {
      size *= 1_000
      unit += 1
    }
    var decimals = count / size < 10 ? 2 : count / size < 100 ? 1 : 0
    let step = size / [1, 10, 100][decimals]
    var number = (count + step / 2) / step
    if number == 1_000 {
      // Rounding up gave a fourth digit, or the next unit.
      number = 100
      if decimals == 0 { unit += 1 }
      decimals = decimals == 0 ? 2 : decimals - 1
    }
    var digits = String(number)
    if decimals > 0 {
      digits.insert(".", at: digits.index(digits.endIndex, offsetBy: -decimals))
      while digits.hasSuffix("0") { digits.removeLast() }
      if digits.hasSuffix(".") { digits.removeLast() }
    }
    return "\(sign)\(digits) \(["kB", "MB", "GB", "TB", "PB", "EB"][unit])"
  }
}
