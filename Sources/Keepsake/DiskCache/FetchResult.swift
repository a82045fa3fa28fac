extension DiskCache {
  /// What a revalidating producer returns to
  /// ``DiskCache/fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:cache:isolation:_:)``.
  ///
  /// ```swift
  /// switch response.status {
  /// case 304: return .unchanged
  /// case 404: return .gone
  /// default: return .value(response.body, tags: ["etag": response.etag])
  /// }
  /// ```
  public struct FetchResult<Value> {
    enum Answer {
      case value(Value, tags: [String: String])
      /// With nil, the tags stay.
      case unchanged(tags: [String: String]?)
      case gone
    }

    let answer: Answer
    /// Replaces the expiry that was passed to `fetch`.
    let expiry: Expiry?

    /// A new value. All tags together may take at most 1,024 bytes.
    ///
    /// - Parameters:
    ///   - value: What is stored and returned; nil if there is none, as with ``gone``.
    ///   - tags: Strings for the next fetch, which gets them with the old value.
    ///   - expiry: nil for the expiry that was passed to `fetch`.
    public static func value(
      _ value: Value?, tags: [String: String] = [:], expiry: Expiry? = nil
    ) -> Self {
      Self(answer: value.map { .value($0, tags: tags) } ?? .gone, expiry: expiry)
    }

    /// The old value is still right: the entry starts a new life without being written again.
    public static var unchanged: Self { .unchanged() }

    /// The old value is still right: the entry starts a new life without being written again.
    ///
    /// - Parameters:
    ///   - tags: nil to keep the old tags.
    ///   - expiry: nil for the expiry that was passed to `fetch`.
    public static func unchanged(tags: [String: String]? = nil, expiry: Expiry? = nil) -> Self {
      Self(answer: .unchanged(tags: tags), expiry: expiry)
    }

    /// There is no value any more: the entry is removed, and `fetch` returns nil.
    public static var gone: Self { Self(answer: .gone, expiry: nil) }
  }

  /// A value of the cache with its age and tags: the result of a revalidating fetch, and the
  /// expired entry that its producer gets.
  public struct CachedValue<Value> {
    /// The value.
    public let value: Value
    /// How long ago it was stored, or found unchanged.
    public let age: Duration
    /// Whether it has expired: it is returned because a new one is being produced, or because that
    /// failed.
    public let isStale: Bool
    /// The texts that were stored with it, such as a validator; empty if there are none.
    public let tags: [String: String]

    /// - Parameter created: In nanoseconds since 1970.
    init(_ value: Value, created: Int64, tags: [String: String], isStale: Bool) {
      self.value = value
      age = .nanoseconds(max(0, WallClock.now.subtractingSaturated(created)))
      self.isStale = isStale
      self.tags = tags
    }
  }
}

extension DiskCache.FetchResult: Sendable where Value: Sendable {}
extension DiskCache.FetchResult.Answer: Sendable where Value: Sendable {}
extension DiskCache.CachedValue: Sendable where Value: Sendable {}
