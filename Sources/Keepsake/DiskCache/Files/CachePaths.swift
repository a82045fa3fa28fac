/// The paths of a cache's files: the entries have a directory of their own, with the ledger beside
/// it.
struct CachePaths: Sendable {
  /// The directory that holds all caches.
  let parent: StoreDirectory
  let name: String

  /// The directory of the entries.
  var directory: String { parent.path + "/" + name }
  var ledgerPath: String { parent.lockPath(for: name, suffix: ".ledger") }
  private var tagPath: String { directory + "/" + Self.tagName }

  static let tagName = "CACHEDIR.TAG"
  /// The first 43 bytes make it a tag (Cache Directory Tagging Specification 0.6).
  private static let tagText = """
    Signature: 8a477f597d28d172789f06886806bc55
    # This file is a cache directory tag created by Keepsake.
    # Backups may leave this folder out: all of it can be made again.
    # See https://bford.info/cachedir/

    """

  func writeTagIfMissing(mode: UInt32) throws(StorageError) {
    if try FileSystem.status(tagPath)?.size ?? 0 >= Self.tagText.utf8.count { return }
    try FileSystem.replace(tagPath, with: Array(Self.tagText.utf8), mode: mode, durable: false)
  }

  /// Removes the temporary file of a program that was killed while it wrote the tag.
  func removeTemporaryTags() throws(StorageError) {
    // A process that is writing the tag now will find its file gone and retry.
    try FileSystem.removeStaleTemporaryFiles(for: tagPath, olderThan: nil)
  }
}
