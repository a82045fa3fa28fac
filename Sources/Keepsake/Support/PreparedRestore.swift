/// A backup that is complete on the store's disk and only needs to replace the store.
package struct PreparedRestore: Sendable {
  private let body: @Sendable () throws(StorageError) -> String?

  init(_ body: @escaping @Sendable () throws(StorageError) -> String?) { self.body = body }

  /// Replaces the contents of the store, for all processes at one moment.
  ///
  /// - Returns: Where the replaced files were kept; nil if there were none.
  package func commit() throws(StorageError) -> String? { try body() }
}
