internal import FoundationEssentials

/// What pieces are read from.
struct ChunkSource: Sendable {
  enum Contents: Sendable {
    case file(File)
    case data(Data)
  }

  let contents: Contents
  let size: Int
  /// Decides whether the checksum of all bytes is right; throws if it is not. nil if that is known.
  var verify: (@Sendable (UInt64) throws(StorageError) -> Void)?
}
