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
  /// removed. A time too large to represent means never. If the system's clock is set back, an
  /// entry with a lifetime expires early rather than much too late.
  public struct Expiry: Hashable, Sendable {
    enum Rule: Hashable, Sendable {
      case never
      case after(Duration)
      /// In seconds since 1970, because printing a `Date` that is not finite traps.
      case at(Double)
      case idle(Duration)
    }

    let rule: Rule
    /// The part of a lifetime by which it may be shorter.
    private(set) var jitterPart = 0.0

    private init(rule: Rule) { self.rule = rule }

    /// The entry is kept until it is removed, or evicted because of the size limit.
    public static var never: Self { Self(rule: .never) }
    /// The entry expires this many seconds after it was stored.
    public static func seconds(_ count: Double) -> Self { .after(Duration(saturating: count)) }
    /// The entry expires this many seconds after it was stored.
    public static func seconds(_ count: some BinaryInteger) -> Self { .seconds(Double(count)) }
    /// The entry expires this many minutes after it was stored.
    public static func minutes(_ count: Double) -> Self { .seconds(count * 60) }
    /// The entry expires this many minutes after it was stored.
    public static func minutes(_ count: some BinaryInteger) -> Self { .minutes(Double(count)) }
    /// The entry expires this many hours after it was stored.
    public static func hours(_ count: Double) -> Self { .seconds(count * 3_600) }
    /// The entry expires this many hours after it was stored.
    public static func hours(_ count: some BinaryInteger) -> Self { .hours(Double(count)) }
    /// The entry expires this many times 24 hours after it was stored.
    public static func days(_ count: Double) -> Self { .seconds(count * 86_400) }
    /// The entry expires this many times 24 hours after it was stored.
    public static func days(_ count: some BinaryInteger) -> Self { .days(Double(count)) }
    /// The entry expires this long after it was stored.
    ///
    /// ```swift
    /// DiskCache.set(page, forKey: "page", expiry: .after(.milliseconds(1_500)))
    /// ```
    public static func after(_ duration: Duration) -> Self { Self(rule: .after(duration)) }
    /// The entry expires on this date of the system's clock.
    public static func date(_ date: Date) -> Self { Self(rule: .at(date.timeIntervalSince1970)) }
    /// The entry expires once it has not been read for this long (a sliding expiry).
    ///
    /// Reads are recorded on disk at most once per sixteenth of that time or per ten minutes,
    /// whichever is shorter.
    public static func idle(_ duration: Duration) -> Self { Self(rule: .idle(duration)) }

    /// The same expiry, with a random part of the lifetime taken off, so that entries that were
    /// stored together do not expire together.
    ///
    /// ```swift
    /// DiskCache.set(page, forKey: "page", expiry: .minutes(5).jitter(0.1))
    /// ```
    ///
    /// Each entry expires at a random time in the last tenth of the five minutes. Dates and idle
    /// times stay as they are.
    ///
    /// - Parameter part: The greatest part that is taken off, from 0 to 1.
    public func jitter(_ part: Double) -> Self {
      var expiry = self
      expiry.jitterPart = min(1, max(0, part.isNaN ? 0 : part))
      return expiry
    }
  }
}

extension DiskCache.Expiry: CustomStringConvertible {
  /// The expiry as an expression, such as `.seconds(300.0)`.
  public var description: String {
    let jitter = jitterPart > 0 ? ".jitter(\(jitterPart))" : ""
    return switch rule {
    case .never: ".never"
    case .after(let lifetime): ".seconds(\(lifetime.inSeconds))" + jitter
    case .at(let seconds): ".date(\(seconds) seconds after 1970)"
    case .idle(let lifetime): ".idle(.seconds(\(lifetime.inSeconds)))"
    }
  }
}
