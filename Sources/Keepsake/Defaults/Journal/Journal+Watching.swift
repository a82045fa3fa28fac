/// Seeing what other processes write.
extension Journal {
  /// Looks for changes from now on, as long as somebody waits for them.
  ///
  /// - Parameter mayCreate: Whether to make a lock file where there is none.
  func watch(mayCreate: Bool = true) {
    guard state.withLock({ $0.watches.isEmpty }) else { return }
    // There must be a lock file to watch; where it cannot be made the file is looked at instead.
    do throws(StorageError) {
      if mayCreate, try FileSystem.status(location.lockPath) == nil {
        try locked { _ throws(StorageError) in }
      }
    } catch {
      report(error.inContext(of: "changes"))
    }
    let notice: FileWatcher.Handler = { [weak self] event in self?.notice(event) }
    let watches = [
      FileWatcher.shared.watch(.contents, of: location.lockPath, handler: notice),
      // Who deletes or exchanges the journal by hand publishes nothing.
      FileWatcher.shared.watch(.names, of: location.directory, handler: notice),
    ]
    state.withLock { $0.watches = watches }
  }

  private func notice(_ event: FileWatcher.Event) {
    if observers.isEmpty {
      // The last one has gone, and the watch goes with it, unless a new one has come just now.
      let isLeft = state.withLock { state in
        if observers.isEmpty { state.watches = [] }
        return state.watches.isEmpty
      }
      if isLeft { return }
    }
    do throws(StorageError) {
      // Somebody deleted the lock file. Its next one shows in the directory; to make it here would
      // bring back a directory that is being removed. While it is open its end is no event of its
      // own.
      let lockFile = state.withLock { $0.lockFile }
      let isReplaced = try lockFile?.isReplaced() ?? true
      if event == .gone || isReplaced {
        state.withLock { $0.watches = [] }
        watch(mayCreate: false)
      }
      try lookAtFile()
      state.withLock { $0.watchingFailure = nil }
    } catch {
      let isNew = state.withLock { state in
        defer { state.watchingFailure = error.code }
        return state.watchingFailure != error.code
      }
      if isNew { report(error.inContext(of: "changes")) }
    }
  }
}
