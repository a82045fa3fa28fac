/// A throwing store behind a facade that reports errors instead of throwing them.
@usableFromInline
protocol FacadeStore {
  /// Passes an error to ``StorageSystem/onFailure``.
  func report(_ error: StorageError)
}

extension FacadeStore {
  /// The result of `body`; nil if it throws, after its error has been reported.
  @inlinable
  func attempt<R>(_ body: (Self) throws(StorageError) -> R) -> R? {
    do throws(StorageError) {
      return try body(self)
    } catch {
      report(error)
      return nil
    }
  }
}

extension Defaults.Store: FacadeStore {}
extension DiskCache.Store: FacadeStore {}
#if SecureVault
extension SecureVault.Store: FacadeStore {}
#endif
