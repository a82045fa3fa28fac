/// A backup that is complete on the disk of a store, and only has to take the store's place.
package struct PreparedRestore: Sendable {
  private let body: @Sendable () throws(StorageError) -> String?

  init(_ body: @escaping @Sendable () throws(StorageError) -> String?) { self.body = body }

  /// Replaces the contents of the store, for all processes at one moment.
  ///
  /// - Returns: Where the replaced files were kept; nil if there were none.
  package func commit() throws(StorageError) -> String? { try body() }
}
