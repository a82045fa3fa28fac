/// Writes an entry in pieces; discards them if it is released before it has finished.
///
/// Its calls must not overlap.
package protocol CacheWriter: AnyObject, Sendable {
  /// The number of bytes so far.
  var count: Int { get }
  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError)
  func append(contentsOf file: File) throws(StorageError)
  func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError)
}
