/// Making records survive a power cut.
extension Journal {
  /// Has records that were written become durable within about a second. The caller holds no lock.
  func synchronizeSoon() {
    let isThreadMissing = BackgroundWork.syncSoon(
      { self.synchronizeInBackground() }, atExit: { self.synchronizeAtExit() })
    guard isThreadMissing else { return }
    report(
      StorageError(
        .system(BackgroundThread.limitError), operation: "synchronize", path: path,
        reason: "no thread could be started, so each change waits for the disk",
        remedy: "Raise the limit on threads: ulimit -u, or TasksMax= of the systemd unit."))
  }

  func synchronize() throws(StorageError) {
    let (handle, isDirectoryUnsynced, isCondemned) = try loaded.withLock {
      file throws(StorageError) in
      try file.requireOpen()
      defer { file.isUnsynced = false }
      return (file.handle, file.isDirectoryUnsynced, file.isCondemned)
    }
    followUpValidation()
    guard let handle = handle?.file else { return }
    if isCondemned { return try replaceCondemnedFile(nil) }
    do throws(StorageError) {
      try handle.synchronize()
    } catch {
      // Even if a writer has opened the file again since.
      loaded.withLock { if $0.handle != nil { $0.isCondemned = true } }
      return try replaceCondemnedFile(error)
    }
    guard isDirectoryUnsynced else { return }
    do throws(StorageError) {
      try synchronizeDirectory()
    } catch {
      loaded.withLock { $0.isUnsynced = true }
      throw error
    }
  }

  /// Makes the name of the journal survive a power cut.
  func synchronizeDirectory() throws(StorageError) {
    let handle = loaded.withLock { $0.handle }
    try FileSystem.synchronizeDirectory(FileSystem.parent(of: location.target()))
    // Another file may have got the name in the meantime.
    loaded.withLock { if $0.handle === handle { $0.isDirectoryUnsynced = false } }
  }

  /// Writes the values to a new file after a sync failed. A second sync of the same file would
  /// succeed although the data is lost (LWN 752063, "PostgreSQL's fsync() surprise").
  private func replaceCondemnedFile(_ cause: StorageError?) throws(StorageError) {
    do throws(StorageError) {
      try maintain { writer, _ throws(StorageError) in
        let isCondemned = try loaded.withLock { file throws(StorageError) in
          try file.makeCurrent(writer.handle)
          return file.isCondemned
        }
        if isCondemned { try rewrite(&writer) }
      }
    } catch {
      loaded.withLock { $0.isUnsynced = true }
      throw cause ?? error
    }
  }

  func synchronizeInBackground() {
    let isUnsynced = loaded.withLock { file in
      file.isSyncScheduled = false
      return file.isUnsynced
    }
    guard isUnsynced else { return }
    do throws(StorageError) {
      try synchronize()
    } catch  where error.code == .notFound {
      // The file has been deleted with its directory, as that of a temporary scope is.
    } catch {
      report(error.inContext(of: "synchronize"))
    }
  }

  /// - Parameter timeout: How long to wait for a thread that uses the journal, and may never end.
  func synchronizeAtExit(timeout: Duration = .milliseconds(100)) {
    let file = loaded.withLock(timeout: timeout) { file -> File? in
      guard file.isUnsynced, !file.isCondemned else { return nil }
      file.isUnsynced = false
      try? file.requireOpen()
      return file.handle?.file
    }
    do throws(StorageError) {
      guard let file else {
        throw LockFile.threadTimeoutError(
          timeout, path: path, lockFile: nil, remedy: "End other threads before the process exits.")
      }
      try file?.synchronize()
    } catch {
      report(error.inContext(of: "synchronize"))
    }
  }
}
