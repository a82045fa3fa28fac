#if SecureVault
/// A backing that keeps the app's vault where several machines share it.
///
/// It makes the storage. A program without such a backing does not contain its code.
package protocol VaultBacking: StorageBacking {
  /// Called when a secret is first used. The call does not wait.
  ///
  /// - Parameter report: Gets failures that no caller can be told about.
  func vaultStorage(
    app: String, report: @escaping @Sendable (StorageError) -> Void
  ) -> any VaultStorage
}
#endif
