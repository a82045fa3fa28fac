public import FoundationEssentials

extension DiskCache {
  /// When an entry expires.
  ///
  /// ```swift
  /// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
  /// DiskCache.set(page, forKey: "page", expiry: .idle(.minutes(30)))
  /// ```
  ///
  /// If the time is zero, negative, NaN or in the past, nothing is stored and any existing entry is
  /// removed. A time too large to represent means never.
  ///
  /// With a `jitter` of 0.1, each entry expires at a random time in the last tenth of its lifetime,
  /// so that entries that were stored together do not expire together. If the system's clock is set
  /// back, an entry with a lifetime expires early rather than much too late.
  public struct Expiry: Hashable, Sendable {
    enum Rule: Hashable, Sendable {
      case never
      case after(Lifetime)
      /// In seconds since 1970, because printing a `Date` that is not finite traps.
      case at(Double)
      case idle(Lifetime)
    }

    let rule: Rule
    /// The part of a lifetime by which it may be shorter.
    let jitter: Double

    private init(rule: Rule, jitter: Double = 0) {
      self.rule = rule
      self.jitter = min(1, max(0, jitter.isNaN ? 0 : jitter))
    }

    /// The entry is kept until it is removed, or evicted because of the size limit.
    public static var never: Self { Self(rule: .never) }
    /// The entry expires this many seconds after it was stored.
    public static func seconds(_ count: Double) -> Self { Self(rule: .after(.seconds(count))) }
    /// The entry expires this many seconds after it was stored.
    public static func seconds(_ count: some BinaryInteger) -> Self { .seconds(Double(count)) }
    /// The entry expires this many seconds after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func seconds(_ count: Double, jitter: Double) -> Self {
      Self(rule: .after(.seconds(count)), jitter: jitter)
    }
    /// The entry expires this many seconds after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func seconds(_ count: some BinaryInteger, jitter: Double) -> Self {
      .seconds(Double(count), jitter: jitter)
    }
    /// The entry expires this many minutes after it was stored.
    public static func minutes(_ count: Double) -> Self { Self(rule: .after(.minutes(count))) }
    /// The entry expires this many minutes after it was stored.
    public static func minutes(_ count: some BinaryInteger) -> Self { .minutes(Double(count)) }
    /// The entry expires this many minutes after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func minutes(_ count: Double, jitter: Double) -> Self {
      Self(rule: .after(.minutes(count)), jitter: jitter)
    }
    /// The entry expires this many minutes after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func minutes(_ count: some BinaryInteger, jitter: Double) -> Self {
      .minutes(Double(count), jitter: jitter)
    }
    /// The entry expires this many hours after it was stored.
    public static func hours(_ count: Double) -> Self { Self(rule: .after(.hours(count))) }
    /// The entry expires this many hours after it was stored.
    public static func hours(_ count: some BinaryInteger) -> Self { .hours(Double(count)) }
    /// The entry expires this many hours after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func hours(_ count: Double, jitter: Double) -> Self {
      Self(rule: .after(.hours(count)), jitter: jitter)
    }
    /// The entry expires this many hours after it was stored, or a random part of that time
    /// earlier; see ``Expiry``.
    public static func hours(_ count: some BinaryInteger, jitter: Double) -> Self {
      .hours(Double(count), jitter: jitter)
    }
    /// The entry expires this many times 24 hours after it was stored.
    public static func days(_ count: Double) -> Self { Self(rule: .after(.days(count))) }
    /// The entry expires this many times 24 hours after it was stored.
    public static func days(_ count: some BinaryInteger) -> Self { .days(Double(count)) }
    /// The entry expires this long after it was stored.
    ///
    /// ```swift
    /// DiskCache.set(page, forKey: "page", expiry: .after(.milliseconds(1_500)))
    /// ```
    public static func after(_ duration: Duration) -> Self {
      Self(rule: .after(Lifetime(duration)))
    }
    /// The entry expires this many times 24 hours after it was stored, or a random part of that
    /// time earlier; see ``Expiry``.
    public static func days(_ count: Double, jitter: Double) -> Self {
      Self(rule: .after(.days(count)), jitter: jitter)
    }
    /// The entry expires this many times 24 hours after it was stored, or a random part of that
    /// time earlier; see ``Expiry``.
    public static func days(_ count: some BinaryInteger, jitter: Double) -> Self {
      .days(Double(count), jitter: jitter)
    }
    /// The entry expires on this date of the system's clock.
    public static func date(_ date: Date) -> Self { Self(rule: .at(date.timeIntervalSince1970)) }
    /// The entry expires once it has not been read for this long (a sliding expiry).
    ///
    /// Reads are recorded on disk at most once per sixteenth of that time or per ten minutes,
    /// whichever is shorter.
    public static func idle(_ lifetime: Lifetime) -> Self { Self(rule: .idle(lifetime)) }
    /// The entry expires once it has not been read for this long, as with ``idle(_:)``.
    public static func idle(for duration: Duration) -> Self {
      Self(rule: .idle(Lifetime(duration)))
    }

    /// How long an unread entry is kept, for ``DiskCache/Expiry/idle(_:)``.
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

      fileprivate init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        length = Double(seconds) + Double(attoseconds) * 1e-18
      }

      private init(length: Double) { self.length = length }

      /// At most `Int64.max`; nil if the length is zero, negative or not a number.
      var nanoseconds: Int64? { length > 0 ? Int64(saturating: length * 1e9) : nil }
    }
  }
}

extension DiskCache.Expiry: CustomStringConvertible {
  /// The expiry as an expression, such as `.seconds(300.0)`.
  public var description: String {
    switch rule {
    case .never: ".never"
    case .after(let lifetime) where jitter > 0:
      ".seconds(\(lifetime.length), jitter: \(jitter))"
    case .after(let lifetime): ".seconds(\(lifetime.length))"
    case .at(let seconds): ".date(\(seconds) seconds after 1970)"
    case .idle(let lifetime): ".idle(.seconds(\(lifetime.length)))"
    }
  }
}
