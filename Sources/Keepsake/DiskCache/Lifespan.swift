/// A ``DiskCache/Expiry`` as an entry carries it, all times in nanoseconds.
enum Lifespan: Equatable, Sendable {
  case endless
  /// So long from when it was stored.
  case lasting(Int64)
  /// Until a time since 1970.
  case until(Int64)
  /// So long from when it was last used.
  case idle(Int64)

  /// nil when it would be over at once.
  init?(_ expiry: DiskCache.Expiry, now: Int64) {
    switch expiry.rule {
    case .never: self = .endless
    case .after(let lifetime):
      guard let length = lifetime.nanoseconds else { return nil }
      self = length == .max ? .endless : .lasting(length)
    case .idle(let lifetime):
      guard let length = lifetime.nanoseconds else { return nil }
      self = length == .max ? .endless : .idle(length)
    case .at(let seconds):
      guard let end = Int64(saturating: seconds * 1e9), end > now else {
        return nil
      }
      self = end == .max ? .endless : .until(end)
    }
  }

  /// When it is over, if nothing changes until then; `Int64.max` for never.
  func end(created: Int64, used: Int64) -> Int64 {
    switch self {
    case .endless: .max
    case .lasting(let length): created.addingSaturated(length)
    case .until(let end): end
    case .idle(let length): used.addingSaturated(length)
    }
  }

  func isOver(created: Int64, used: Int64, now: Int64) -> Bool {
    if now >= end(created: created, used: used) { return true }
    // An entry from the future: the clock was set back since, and nobody knows how old it is.
    switch self {
    case .endless, .until: return false
    case .lasting(let length): return now < created.addingSaturated(-min(length, Self.tolerance))
    case .idle(let length): return now < used.addingSaturated(-min(length, Self.tolerance))
    }
  }

  /// By how much clocks are corrected without anybody meaning to change the time.
  private static let tolerance = 60 * WallClock.second
}

extension Int64 {
  /// The nearest integer; nil for what is not a number.
  init?(saturating value: Double) {
    if value.isNaN { return nil }
    self = Int64(exactly: value.rounded()) ?? (value < 0 ? .min : .max)
  }
}
