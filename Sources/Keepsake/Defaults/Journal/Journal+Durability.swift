/// When what was written survives a power cut.
extension Journal {
  func synchronize() throws(StorageError) {
    let (file, isDirectoryUnsynced, isCondemned) = try state.withLock {
      state throws(StorageError) in
      if !state.isCurrent { try state.refresh() }
      defer { state.isUnsynced = false }
      return (state.file, state.isDirectoryUnsynced, state.isCondemned)
    }
    guard let file else { return }
    if isCondemned { return try replaceCondemned(nil) }
    do throws(StorageError) {
      try file.synchronize()
    } catch {
      state.withLock { if $0.file === file { $0.isCondemned = true } }
      return try replaceCondemned(error)
    }
    guard isDirectoryUnsynced else { return }
    do throws(StorageError) {
      try synchronizeDirectory()
    } catch {
      state.withLock { $0.isUnsynced = true }
      throw error
    }
  }

  /// Writes the store to a new file, after a sync failed: asked again, the kernel would report
  /// success although the data is lost (LWN 752063, "PostgreSQL's fsync() surprise").
  private func replaceCondemned(_ cause: StorageError?) throws(StorageError) {
    do throws(StorageError) {
      try maintained { journal throws(StorageError) in
        if journal.state.withLock({ $0.isCondemned }) { try journal.rewrite() }
      }
    } catch {
      state.withLock { $0.isUnsynced = true }
      throw cause ?? error
    }
  }

  func synchronizeInBackground() {
    let isUnsynced = state.withLock { state in
      state.isSyncDue = false
      return state.isUnsynced
    }
    guard isUnsynced else { return }
    do throws(StorageError) {
      try synchronize()
    } catch {
      report(error.inContext(of: "synchronize"))
    }
  }

  func synchronizeAtExit() {
    let file = state.withLockIfAvailable { state -> File? in
      guard state.isUnsynced, !state.isCondemned else { return nil }
      state.isUnsynced = false
      return state.file
    }
    guard case .some(.some(let file)) = file else { return }
    do throws(StorageError) {
      try file.synchronize()
    } catch {
      report(error.inContext(of: "synchronize"))
    }
  }
}
