public import FoundationEssentials

extension DiskCache {
  /// When an entry is gone by itself.
  ///
  /// ```swift
  /// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
  /// DiskCache.set(page, forKey: "page", expiry: .idle(.minutes(30)))
  /// ```
  ///
  /// A time that is over already, negative or not a number stores nothing, and removes what was
  /// there; one too long to count never ends. When the system's clock is set back, an entry with a
  /// lifetime is gone early rather than kept much longer.
  public struct Expiry: Hashable, Sendable {
    enum Rule: Hashable, Sendable {
      case never
      case after(Lifetime)
      /// In seconds since 1970; a `Date` that is not finite traps when it is printed.
      case at(Double)
      case idle(Lifetime)
    }

    let rule: Rule

    /// Kept until it is removed, or evicted for the size limit.
    public static var never: Self { Self(rule: .never) }
    /// Gone this many seconds after it was stored.
    public static func seconds(_ count: Double) -> Self { Self(rule: .after(.seconds(count))) }
    /// Gone this many seconds after it was stored.
    public static func seconds(_ count: some BinaryInteger) -> Self { .seconds(Double(count)) }
    /// Gone this many minutes after it was stored.
    public static func minutes(_ count: Double) -> Self { Self(rule: .after(.minutes(count))) }
    /// Gone this many minutes after it was stored.
    public static func minutes(_ count: some BinaryInteger) -> Self { .minutes(Double(count)) }
    /// Gone this many hours after it was stored.
    public static func hours(_ count: Double) -> Self { Self(rule: .after(.hours(count))) }
    /// Gone this many hours after it was stored.
    public static func hours(_ count: some BinaryInteger) -> Self { .hours(Double(count)) }
    /// Gone this many times 24 hours after it was stored.
    public static func days(_ count: Double) -> Self { Self(rule: .after(.days(count))) }
    /// Gone this many times 24 hours after it was stored.
    public static func days(_ count: some BinaryInteger) -> Self { .days(Double(count)) }
    /// Gone when the system's clock shows this date.
    public static func date(_ date: Date) -> Self { Self(rule: .at(date.timeIntervalSince1970)) }
    /// Gone when nobody has read it for so long (a sliding expiry).
    ///
    /// Use is noted on the disk at most every sixteenth of that time.
    public static func idle(_ lifetime: Lifetime) -> Self { Self(rule: .idle(lifetime)) }

    /// How long an entry lasts that nobody reads, for ``DiskCache/Expiry/idle(_:)``.
    public struct Lifetime: Hashable, Sendable {
      /// In seconds.
      let length: Double

      /// This many seconds.
      public static func seconds(_ count: Double) -> Self { Self(length: count) }
      /// This many seconds.
      public static func seconds(_ count: some BinaryInteger) -> Self { .seconds(Double(count)) }
      /// This many minutes.
      public static func minutes(_ count: Double) -> Self { Self(length: count * 60) }
      /// This many minutes.
      public static func minutes(_ count: some BinaryInteger) -> Self { .minutes(Double(count)) }
      /// This many hours.
      public static func hours(_ count: Double) -> Self { Self(length: count * 3_600) }
      /// This many hours.
      public static func hours(_ count: some BinaryInteger) -> Self { .hours(Double(count)) }
      /// This many times 24 hours.
      public static func days(_ count: Double) -> Self { Self(length: count * 86_400) }
      /// This many times 24 hours.
      public static func days(_ count: some BinaryInteger) -> Self { .days(Double(count)) }

      /// Nanoseconds, `Int64.max` where these are too many; nil when there are none.
      var nanoseconds: Int64? { length > 0 ? Int64(saturating: length * 1e9) : nil }
    }
  }
}

extension DiskCache.Expiry: CustomStringConvertible {
  /// As in `.seconds(300.0)`.
  public var description: String {
    switch rule {
    case .never: ".never"
    case .after(let lifetime): ".seconds(\(lifetime.length))"
    case .at(let seconds): ".date(\(seconds) seconds after 1970)"
    case .idle(let lifetime): ".idle(.seconds(\(lifetime.length)))"
    }
  }
}
