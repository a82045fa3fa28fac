internal import Synchronization

/// Noticing what other processes write, and where the path leads.
///
/// Observers wait for each change. Without any, readers ask the word of the file that they have
/// open, and only the way to it is watched: what replaces a directory, or points a link elsewhere,
/// publishes nothing.
extension Journal {
  /// Watches the file for observers. The first change that none of them waits for ends that.
  func watch() {
    if loaded.withLock({ $0.isFollowed }) { return }
    do throws(StorageError) {
      // A directory that is missing could not be watched.
      _ = try location.prepareDirectory()
      try watchFile()
    } catch {
      return lookAgain(after: error)
    }
    // What happened before the watch began is no event.
    handle(.changed)
  }

  private func watchFile() throws(StorageError) {
    let journal = try FileSystem.status(location.path)
    var watches = try watchNames(polls: true)
    // A word that is stored through a mapping causes no event, but the write before it does.
    if journal != nil {
      watches.append(FileWatcher.shared.watch(.contents, of: location.path, handler: handler))
    }
    loaded.withLock { $0.watch(watches, of: journal, isFollowed: true) }
  }

  /// Watches the way to the file within a second. Most programs that only read a setting have
  /// ended by then.
  func watchPathSoon() {
    if isWatchDue.exchange(true, ordering: .relaxed) { return }
    BackgroundWork.run(after: .milliseconds(500)) { [weak self] in
      self?.isWatchDue.store(false, ordering: .relaxed)
      self?.watchPath()
    }
  }

  /// Watches the way to the file, unless the system has no more events: then the next set looks.
  func watchPath() {
    guard loaded.withLock({ $0.watches.isEmpty }) else { return }
    do throws(StorageError) {
      let journal = try FileSystem.status(location.path)
      let watches = try watchNames(polls: false)
      loaded.withLock { if !$0.isFollowed { $0.watch(watches, of: journal, isFollowed: false) } }
      // What happened before the watch began is no event.
      try validate()
    } catch {
      // The next call reports what is wrong with the path.
    }
  }

  private var handler: FileWatcher.Handler { { [weak self] event in self?.handle(event) } }

  /// A file that is missing cannot be watched, but its name in the directory is an event, also that
  /// of each link on the way to it. The directories above may be moved.
  private func watchNames(polls: Bool) throws(StorageError) -> [FileWatcher.Watch] {
    var directories: [String: FileWatcher.Subject] = [:]
    var ends = [location.path]
    var number = 0
    while number < ends.count {
      let end = ends[number]
      number += 1
      var path = end
      while path != "/", path != "." {
        let parent = FileSystem.parent(of: path)
        let status = try FileSystem.status(path, followsLinks: false)
        if path == end || status?.isDirectory != true {
          directories[parent] = .names
        } else if directories[parent] == nil {
          directories[parent] = .place
        }
        if status?.isSymbolicLink == true {
          let target = try FileSystem.linkTarget(path)
          if !ends.contains(target) { ends.append(target) }
        }
        path = parent
      }
    }
    return directories.map { directory, subject in
      FileWatcher.shared.watch(
        subject, of: directory, polls: polls && subject == .names, handler: handler)
    }
  }

  private func handle(_ event: FileWatcher.Event) {
    do throws(StorageError) {
      try continueWatching(after: event)
    } catch {
      return lookAgain(after: error)
    }
    do throws(StorageError) {
      if let pause = try validate() { look(after: pause) }
      loaded.withLock { $0.watchingFailure = nil }
    } catch {
      // It may have failed for a moment only. If it fails again, another event tells when to look.
      if reportOnce(error) || error.isDescriptorLimit { look(after: .seconds(1)) }
    }
  }

  /// Begins the watches anew if the path may name another file.
  private func continueWatching(after event: FileWatcher.Event) throws(StorageError) {
    let (watchedFile, isFollowed) = loaded.withLock { ($0.watchedFile, $0.isFollowed) }
    let journal = try FileSystem.status(location.path)
    let isSame = journal.map { watchedFile?.isSameFile(as: $0) ?? false } ?? (watchedFile == nil)
    // While there is no file, its directory may be a new one.
    if event != .gone, isSame, journal != nil, isFollowed != observers.isEmpty { return }
    loaded.withLock { $0.endWatch() }
    if observers.isEmpty { watchPath() } else { try watchFile() }
  }

  /// Looks again within a second: no event would tell that the path can be looked at. Without
  /// observers, the next set looks.
  private func lookAgain(after error: StorageError) {
    if observers.isEmpty { return loaded.withLock { $0.endWatch() } }
    reportOnce(error)
    look(after: .seconds(1))
  }

  /// Returns whether the file could be looked at before, or failed in another way.
  @discardableResult
  private func reportOnce(_ error: StorageError) -> Bool {
    let isNew = loaded.withLock { file in
      defer { file.watchingFailure = error.code }
      return file.watchingFailure != error.code
    }
    if isNew { report(error.inContext(of: "changes")) }
    return isNew
  }

  private func look(after pause: Duration) {
    if isLookDue.exchange(true, ordering: .relaxed) { return }
    BackgroundWork.run(after: pause) { [weak self] in
      self?.isLookDue.store(false, ordering: .relaxed)
      self?.handle(.changed)
    }
  }
}
