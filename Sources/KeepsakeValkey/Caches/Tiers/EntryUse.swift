internal import Keepsake

/// How the server learns of the uses of an entry.
struct EntryUse: Equatable, Sendable {
  /// How long a use lets the server keep the entry.
  let lifetime: Int64
  /// How often it is told.
  let interval: Int64
  /// When it was told.
  var lastTold: Int64

  func isDue(at now: Int64) -> Bool {
    // A time in the future means that the clock was set back.
    lastTold > now || now.subtractingSaturated(lastTold) >= interval
  }
}

extension SharedEntry {
  /// What the server, which keeps the entry for this long, is told of its uses: each that comes a
  /// quarter of its lifetime after the last one. nil if uses do not matter.
  func use(remaining: Int64) -> EntryUse? {
    switch expiry {
    case .after, .at: nil
    case .never, .idle:
      EntryUse(
        lifetime: lifetime, interval: (lifetime - min(lifetime, kept)) / 4,
        lastTold: WallClock.now.subtractingSaturated(max(0, lifetime - min(lifetime, remaining))))
    }
  }
}
