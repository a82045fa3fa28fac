// What the other targets of the package need to know about the stores in use.

extension StorageSystem {
  /// The name of the app, as the backing is given it.
  package static var appName: String { StorageScope.current.finder.app }

  /// Reports a failure of ``Defaults`` to the ``onFailure`` of the calling task's stores, on
  /// whichever thread it is called later.
  package static func makeDefaultsReporter() -> @Sendable (StorageError) -> Void {
    let scope = StorageScope.current
    return { [weak scope] error in scope?.report(error.reported(by: "Defaults")) }
  }
}
