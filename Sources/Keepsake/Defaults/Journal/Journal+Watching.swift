internal import Synchronization

/// Noticing what other processes write, for observers.
extension Journal {
  /// Watches the file until a change comes that no observer waits for.
  ///
  /// - Parameter mayCreate: Whether to make the directory if it is missing: it could not be watched
  ///   otherwise.
  func watch(mayCreate: Bool = true) {
    guard file.withLock({ $0.watches.isEmpty }) else { return }
    let handler: FileWatcher.Handler = { [weak self] event in self?.handle(event) }
    var watches: [FileWatcher.Watch] = []
    var journal: FileStatus?
    do throws(StorageError) {
      if mayCreate { _ = try location.prepareDirectory() }
      journal = try FileSystem.status(location.path)
      // A file that is missing cannot be watched, but its name in the directory is an event, also
      // that of a link, and of the file that it leads to. A user who deletes or replaces the
      // journal publishes nothing.
      let directories = [location.path, try location.target()].map { FileSystem.parent(of: $0) }
      for directory in Set(directories) {
        watches.append(FileWatcher.shared.watch(.names, of: directory, handler: handler))
      }
    } catch {
      report(error.inContext(of: "changes"))
    }
    // A word that is stored through a mapping causes no event, but the write before it does.
    if journal != nil {
      watches.append(FileWatcher.shared.watch(.contents, of: location.path, handler: handler))
    }
    file.withLock { file in
      file.watches = watches
      file.watchedFile = journal
    }
  }

  private func handle(_ event: FileWatcher.Event) {
    if observers.isEmpty, endWatch() { return }
    do throws(StorageError) {
      let watchedFile = file.withLock { $0.watchedFile }
      let journal = try FileSystem.status(location.path)
      let isSame = journal.map { watchedFile?.isSameFile(as: $0) ?? false } ?? (watchedFile == nil)
      if event == .gone || !isSame {
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
