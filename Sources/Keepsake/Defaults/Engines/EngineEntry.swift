public import FoundationEssentials

extension StorageEngines {
  /// A key of a ``StorageEngines/Engine`` and its bytes.
  public struct Entry: Sendable, Equatable {
    /// The key.
    public let key: String
    /// The bytes of the key; nil if it has none, or to remove them.
    public let data: Data?

    /// Creates an entry; nil stands for no bytes.
    public init(key: String, data: Data?) {
      self.key = key
      self.data = data
    }

    /// Whether both have the same bytes as keys and the same bytes as values. Keys that differ only
    /// in Unicode normalization are different.
    public static func == (a: Self, b: Self) -> Bool {
      ExactString(a.key) == ExactString(b.key) && a.data == b.data
    }
  }
}
