/// What a fetch stores, and how it uses an entry that has expired.
struct FetchPolicy: Sendable {
  let expiry: DiskCache.Expiry
  /// How long after its expiry an entry is returned while a new one is produced, in nanoseconds.
  let staleFor: Int64
  /// How long after its expiry an entry is returned if that fails, in nanoseconds.
  let staleIfFailing: Int64
  /// How long after its expiry a stored entry is kept, in nanoseconds.
  let kept: Int64
  /// How long to remember that there is no value; nil if that is not stored.
  let nilExpiry: DiskCache.Expiry?
  /// Whether the fetch can return that there is no value, of whatever type.
  let returnsNil: Bool
  /// How long other calls wait for the producer.
  let timeout: Duration

  init(
    expiry: DiskCache.Expiry, staleFor: Duration? = nil, staleIfFailing: Duration? = nil,
    keptFor: Duration? = nil, nilExpiry: DiskCache.Expiry? = nil, returnsNil: Bool = false,
    timeout: Duration
  ) {
    self.expiry = expiry
    self.staleFor = staleFor?.positiveNanoseconds ?? 0
    self.staleIfFailing = staleIfFailing?.positiveNanoseconds ?? 0
    kept = max(self.staleFor, self.staleIfFailing, keptFor?.positiveNanoseconds ?? 0)
    self.nilExpiry = nilExpiry
    self.returnsNil = returnsNil
    self.timeout = timeout
  }

  /// How long after its expiry a fetch returns an entry at once, in nanoseconds.
  func usableLength(isFailing: Bool) -> Int64 {
    isFailing ? max(staleFor, staleIfFailing) : staleFor
  }
}
