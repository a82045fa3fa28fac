public import FoundationEssentials

extension DiskCache {
  /// What a producer that revalidates its value tells
  /// ``DiskCache/fetch(_:expiry:keptFor:nilExpiry:staleIfFailing:cache:isolation:_:)``.
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

    /// A new value, with tags of together at most 1,024 bytes.
    ///
    /// - Parameters:
    ///   - value: What is stored and returned.
    ///   - tags: Strings for the next fetch, which gets them with the old value.
    ///   - expiry: nil for the expiry that was passed to `fetch`.
    public static func value(
      _ value: Value, tags: [String: String] = [:], expiry: Expiry? = nil
    ) -> Self {
      Self(answer: .value(value, tags: tags), expiry: expiry)
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

  /// An entry that has expired, as the producer of a new value gets it.
  public struct CachedValue<Value> {
    /// The value.
    public let value: Value
    /// The texts that were stored with it, such as a validator; empty if there are none.
    public let tags: [String: String]
    /// When it was stored, or found unchanged.
    public let created: Date
    /// How long ago that was.
    public let age: Duration

    init(_ value: Value, _ entry: StaleEntry) {
      self.value = value
      tags = entry.tags
      created = Date(nanoseconds: entry.created)
      age = .nanoseconds(max(0, WallClock.now.subtractingSaturated(entry.created)))
    }
  }

  /// Where a fetch produces the new value of an entry that has expired.
  public enum Refresh: Sendable {
    /// In a task of its own. The fetch returns the old value at once.
    case inBackground
  }
}

extension DiskCache.FetchResult: Sendable where Value: Sendable {}
extension DiskCache.FetchResult.Answer: Sendable where Value: Sendable {}
extension DiskCache.CachedValue: Sendable where Value: Sendable {}
