public import FoundationEssentials

extension StorageEngines {
  /// A key of a ``StorageEngines/Engine`` and its bytes.
  public struct Entry: Sendable {
    /// The key.
    public let key: String
    /// The bytes of the key; nil if it has none, or to remove them.
    public let data: Data?

    /// Creates an entry; nil stands for no bytes.
    public init(key: String, data: Data?) {
      self.key = key
      self.data = data
    }
  }
}
