/// Seeing what other processes write.
extension Journal {
  /// Looks for changes from now on, as long as somebody waits for them.
  func watch() {
    guard state.withLock({ $0.watch == nil }) else { return }
    // There must be a lock file to watch; where it cannot be made the file is looked at instead.
    do throws(StorageError) {
      try locked { _ throws(StorageError) in }
    } catch {
      report(error.during("changes"))
    }
    let watch = FileWatcher.shared.watch(location.lockPath) { [weak self] event in
      self?.notice(event)
    }
    state.withLock { $0.watch = watch }
  }

  private func notice(_ event: FileWatcher.Event) {
    guard !observers.isEmpty else {
      if event == .gone { state.withLock { $0.watch = nil } }
      return
    }
    do throws(StorageError) {
      // Somebody deleted the lock file: there must be another one to see what others write. While it
      // is open its end is no event of its own.
      let lockFile = state.withLock { $0.lockFile }
      let isReplaced = try lockFile?.isReplaced() ?? false
      if event == .gone || isReplaced {
        state.withLock { $0.watch = nil }
        watch()
      }
      try look()
    } catch {
      report(error.during("changes"))
    }
  }
}
