/// A throwing store behind a facade that reports errors instead of throwing them.
@usableFromInline
protocol FacadeStore {
  /// Passes an error to ``StorageSystem/onFailure``.
  func report(_ error: StorageError)
}

extension FacadeStore {
  /// The result of `body`; an error that it throws names the operation and the key.
  @inlinable @inline(__always)
  func withContext<R: ~Copyable>(
    _ operation: String, _ key: String? = nil, path: @autoclosure () -> String? = nil,
    _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    do throws(StorageError) {
      return try body()
    } catch {
      throw error.inContext(of: operation, key: key, path: path())
    }
  }

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
