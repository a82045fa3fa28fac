internal import Synchronization

/// Noticing what other processes write, for observers.
extension Journal {
  /// Watches the files until a change comes that no observer waits for.
  ///
  /// - Parameter mayCreate: Whether to make the lock file if it is missing.
  func watch(mayCreate: Bool = true) {
    guard file.withLock({ $0.watches.isEmpty }) else { return }
    // Also makes the directory, which could not be watched otherwise.
    do throws(StorageError) {
      if mayCreate, try FileSystem.status(location.lockPath) == nil {
        try locked(timeout: .zero) { () throws(StorageError) in }
      }
    } catch  where error.code == .timedOut {
      // Another process has just made it.
    } catch {
      report(error.inContext(of: "changes"))
    }
    let handler: FileWatcher.Handler = { [weak self] event in self?.handle(event) }
    // A file that is missing cannot be watched, but its name in the directory is an event. A user
    // who deletes or replaces the journal publishes nothing.
    var watches = [FileWatcher.shared.watch(.names, of: location.directory, handler: handler)]
    // A word that is stored through a mapping causes no event, but the write before it does.
    let journal = try? FileSystem.status(location.path)
    let lockFile = try? FileSystem.status(location.lockPath)
    for (path, status) in [(location.path, journal), (location.lockPath, lockFile)]
    where status != nil {
      watches.append(FileWatcher.shared.watch(.contents, of: path, handler: handler))
    }
    file.withLock { file in
      file.watches = watches
      file.watchedFile = journal
    }
  }

  private func handle(_ event: FileWatcher.Event) {
    if observers.isEmpty, endWatch() { return }
    do throws(StorageError) {
      // A recreated lock file appears as a new name in the directory. Do not create it here: that
      // could bring back a directory that is being removed. While the old file is open, its
      // deletion causes no event.
      let (lockFile, watchedFile) = file.withLock { ($0.lockFile, $0.watchedFile) }
      let journal = try FileSystem.status(location.path)
      let isSameJournal = journal.map { watchedFile?.isSameFile(as: $0) ?? false }
      let isReplaced =
        try lockFile?.isReplaced() ?? true || (isSameJournal ?? (watchedFile == nil)) == false
      if event == .gone || isReplaced {
        file.withLock { $0.watches = [] }
        watch(mayCreate: false)
      }
      if let pause = try validate(), !isLookDue.exchange(true, ordering: .relaxed) {
        BackgroundWork.run(after: pause) { [weak self] in
          self?.isLookDue.store(false, ordering: .relaxed)
          self?.handle(.changed)
        }
      }
      file.withLock { $0.watchingFailure = nil }
    } catch {
      let isNew = file.withLock { file in
        defer { file.watchingFailure = error.code }
        return file.watchingFailure != error.code
      }
      if isNew { report(error.inContext(of: "changes")) }
    }
  }

  /// Ends the watch, unless an observer has come in the meantime; returns whether it has ended.
  private func endWatch() -> Bool {
    file.withLock { file in
      if observers.isEmpty { file.watches = [] }
      return file.watches.isEmpty
    }
  }
}
