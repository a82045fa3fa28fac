/// Seeing what other processes write.
extension Journal {
  /// Starts to look for changes, once in this journal's life.
  func watch() {
    let isFirst = state.withLock { state in
      defer { state.isWatched = true }
      return !state.isWatched
    }
    guard isFirst else { return }
    // There must be a lock file to watch; where it cannot be made the file is looked at instead.
    do throws(StorageError) {
      try locked { _ throws(StorageError) in }
    } catch {
      report(error.during("changes"))
    }
    FileWatcher.shared.watch(location.lockPath) { [weak self] in
      guard let self, !observers.isEmpty else { return }
      poll()
    }
  }
}
