// The standard library has no unit of time longer than a second. The attribute lets an extension of
// the app's own win over these, which would otherwise be ambiguous.
extension Duration {
  /// This many minutes.
  ///
  /// ```swift
  /// SecureVault.unlock(passphrase: typed, rememberFor: .minutes(15))
  /// ```
  ///
  /// Extremely large numbers become the limit of `Int64.max` seconds. The same goes for `hours` and
  /// `days`.
  @_disfavoredOverload
  public static func minutes(_ count: some BinaryInteger) -> Duration {
    Duration(saturating: Double(count) * 60)
  }

  /// This many hours.
  @_disfavoredOverload
  public static func hours(_ count: some BinaryInteger) -> Duration {
    Duration(saturating: Double(count) * 3_600)
  }

  /// This many times 24 hours.
  @_disfavoredOverload
  public static func days(_ count: some BinaryInteger) -> Duration {
    Duration(saturating: Double(count) * 86_400)
  }
}

// Arithmetic on durations traps when it overflows, and so does `components` for most of them: these
// compare first.
extension Duration {
  /// The nearest duration of at most `Int64.max` seconds; zero for NaN.
  init(saturating seconds: Double) {
    if seconds.isNaN {
      self = .zero
    } else if let whole = Int64(exactly: seconds.rounded(.down)) {
      let rest = (seconds - Double(whole)) * 1e18
      self.init(secondsComponent: whole, attosecondsComponent: Int64(rest))
    } else {
      self = .seconds(seconds < 0 ? Int64.min : Int64.max)
    }
  }

  /// In nanoseconds; the limits of `Int64` for what is beyond them.
  var saturatedNanoseconds: Int64 {
    if self <= .nanoseconds(Int64.min) { return .min }
    if self >= .nanoseconds(Int64.max) { return .max }
    let (seconds, attoseconds) = components
    return seconds * WallClock.second + attoseconds / 1_000_000_000
  }

  /// The same; nil if the duration is shorter than a nanosecond, zero or negative.
  var positiveNanoseconds: Int64? { saturatedNanoseconds > 0 ? saturatedNanoseconds : nil }

  /// In seconds, rounded up; at least 1.
  var wholeSeconds: UInt32 {
    if self <= .seconds(1) { return 1 }
    if self >= .seconds(UInt32.max) { return .max }
    let (seconds, attoseconds) = components
    return UInt32(seconds) + (attoseconds > 0 ? 1 : 0)
  }

  /// In seconds, for people.
  var inSeconds: Double { self / .seconds(1) }
}
