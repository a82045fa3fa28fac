/// A ``DiskCache/Expiry`` as an entry stores it, with all times in nanoseconds.
package enum StoredExpiry: Equatable, Sendable {
  case never
  /// This long after the entry was stored.
  case after(Int64)
  /// At this time since 1970.
  case at(Int64)
  /// This long after the entry was last used.
  case idle(Int64)

  /// nil if the entry would expire at once.
  init?(_ expiry: DiskCache.Expiry, now: Int64) {
    switch expiry.rule {
    case .never: self = .never
    case .after(let lifetime):
      guard let length = lifetime.positiveNanoseconds else { return nil }
      let part = expiry.jitterPart
      self =
        length == .max ? .never : .after(part > 0 ? Self.shortened(length, by: part) : length)
    case .idle(let lifetime):
      guard let length = lifetime.positiveNanoseconds else { return nil }
      self = length == .max ? .never : .idle(length)
    case .at(let seconds):
      guard let time = Int64(saturating: seconds * 1e9), time > now else {
        return nil
      }
      self = time == .max ? .never : .at(time)
    }
  }

  /// The expiry that ``stored`` describes; nil if there is none.
  package init?(rule: UInt8, time: Int64) {
    switch (rule, time) {
    case (0, _): self = .never
    case (1, 1...): self = .after(time)
    case (2, _): self = .at(time)
    case (3, 1...): self = .idle(time)
    default: return nil
    }
  }

  /// The length, less a random part of it up to this one; not less than one.
  private static func shortened(_ length: Int64, by part: Double) -> Int64 {
    let most = Int64(clamping: Int(min(Double(length) * part, 9e18)))
    return max(1, length - .random(in: 0...min(most, length)))
  }

  /// The rule and its time as entries hold them.
  package var stored: (rule: UInt8, time: Int64) {
    switch self {
    case .never: (0, 0)
    case .after(let length): (1, length)
    case .at(let time): (2, time)
    case .idle(let length): (3, length)
    }
  }

  /// When the entry expires unless it is used again; `Int64.max` for never.
  package func time(created: Int64, lastUsed: Int64) -> Int64 {
    switch self {
    case .never: .max
    case .after(let length): created.addingSaturated(length)
    case .at(let time): time
    case .idle(let length): lastUsed.addingSaturated(length)
    }
  }

  func hasPassed(created: Int64, lastUsed: Int64, now: Int64) -> Bool {
    let end = time(created: created, lastUsed: lastUsed)
    if now >= end, end != .max { return true }
    // If the entry is dated in the future, the clock was set back and its age is unknown.
    switch self {
    case .never, .at: return false
    case .after(let length): return now < created.addingSaturated(-min(length, Self.tolerance))
    case .idle(let length): return now < lastUsed.addingSaturated(-min(length, Self.tolerance))
    }
  }

  /// Time synchronization may set a clock back by this much without making entries expire.
  private static let tolerance = 60 * WallClock.second
}

extension Int64 {
  /// The nearest integer; nil if `value` is not a number.
  init?(saturating value: Double) {
    if value.isNaN { return nil }
    self = Int64(exactly: value.rounded()) ?? (value < 0 ? .min : .max)
  }
}
