package import FoundationEssentials

/// What pieces are read from.
package struct ChunkSource: Sendable {
  package enum Contents: Sendable {
    case file(File)
    case data(Data)
  }

  let contents: Contents
  let size: Int
  /// Decides whether the checksum of all bytes is right; throws if it is not. nil if that is known.
  var verify: (@Sendable (UInt64) throws(StorageError) -> Void)?

  package init(contents: Contents, size: Int) {
    self.contents = contents
    self.size = size
  }
}
