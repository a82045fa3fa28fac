// What the other targets of the package need to know about the stores in use.

extension StorageSystem {
  /// The name of the app, as the backing is given it.
  package static var appName: String { StorageScope.current.finder.app }

  /// Reports a failure of a facade to the ``onFailure`` of the calling task's stores, on whichever
  /// thread it is called later.
  package static func makeReporter(for facade: String) -> @Sendable (StorageError) -> Void {
    let scope = StorageScope.current
    return { [weak scope] error in scope?.report(error.reported(by: facade)) }
  }
}
