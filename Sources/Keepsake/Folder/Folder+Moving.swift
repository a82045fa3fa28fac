public import FoundationEssentials

extension Folder {
  /// Copies a file, or a folder and everything in it.
  ///
  /// ```swift
  /// try Folder.documents.copy("draft.txt", to: "final.txt")
  /// try Folder.documents.copy("draft.txt", to: "draft.txt", in: .temporary)
  /// ```
  ///
  /// A file replaces an existing file, a folder an existing empty folder; anything else is an
  /// error. If the file system supports it, the copy shares its data with the original until one of
  /// them changes.
  ///
  /// - Parameters:
  ///   - path: The path of the original.
  ///   - target: The path of the copy.
  ///   - other: The folder for the copy; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` if nothing is at `path`. An existing target is
  ///   then intact, or the copy is complete and only its last synchronization with the disk failed.
  public func copy(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try copy(path, to: target, in: other ?? self, nil)
  }

  /// Copies a file or a folder like ``copy(_:to:in:)``, and reports how much has been copied.
  ///
  /// ```swift
  /// try await Folder.documents.copy("film.mp4", to: "film.mp4", in: backups) { done, total in
  ///   print(ByteCount(done), "of", ByteCount(total))
  /// }
  /// ```
  ///
  /// The bytes are copied on threads of the library, so that the caller's thread does not wait for
  /// the disk. If the task is cancelled, the copy ends soon and nothing is left behind.
  ///
  /// - Parameters:
  ///   - path: The path of the original.
  ///   - target: The path of the copy.
  ///   - other: The folder for the copy; nil for this one.
  ///   - isolation: The isolation in which `progress` is called, by default the caller's.
  ///   - progress: Called at most twenty times a second with the number of bytes so far and the
  ///     total of all files, and at the end with the total twice.
  /// - Throws: `CancellationError`, or what ``copy(_:to:in:)`` throws.
  public func copy(
    _ path: String, to target: String, in other: Folder? = nil,
    isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int) -> Void
  ) async throws {
    try await CopyProgress.report(to: progress, isolation: isolation) { progress in
      try copy(path, to: target, in: other ?? self, progress)
    }
  }

  private func copy(
    _ path: String, to target: String, in other: Folder, _ progress: CopyProgress?
  ) throws(StorageError) {
    try perform("copy", path) { source throws(StorageError) in
      let copier = Copier(
        folder: other, keepsAttributes: false, isDurable: other.isDurable, progress: progress)
      let status = try Self.existingStatus(source)
      _ = try copier.copy(source, status, to: other.targetPath(target, for: status))
    }
  }

  /// Moves a file or a folder, even to another file system.
  ///
  /// A file replaces an existing file, a folder an existing empty folder; anything else is an
  /// error. Permissions are kept, but a file never becomes wider than the one that it replaces. A
  /// move to another file system is a complete copy followed by the removal of the original; files
  /// keep their permissions and times, folders do not.
  ///
  /// - Parameters:
  ///   - path: The path of the file or folder.
  ///   - target: Its new path.
  ///   - other: The folder that it moves to; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` if nothing is at `path`. Everything is then in
  ///   one of the two locations, or in both if the original could not be removed after a copy.
  public func move(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try perform("move", path) { source throws(StorageError) in
      let other = other ?? self
      var status = try Self.existingStatus(source)
      let target = try other.targetPath(target, for: status)
      guard !source.isBase else {
        throw StorageError(
          .misuse, operation: "move", path: source.path, reason: "the path names the folder itself",
          remedy: "Move the files and folders in it.")
      }
      guard !status.isDirectory || !target.path.utf8.starts(with: (source.path + "/").utf8) else {
        throw StorageError(
          .misuse, operation: "move", path: target.path,
          reason: "a folder cannot be moved into itself",
          remedy: "Choose a target outside the folder, or copy the folder.")
      }
      // The data must reach the disk before it replaces a file that may be on the disk already.
      // Even in a durable folder, another program may have written the file.
      if other.isDurable, status.isRegularFile || !isDurable {
        try source.synchronizeContents(status)
      }
      let directory = try DirectoryHandle(source.parent)
      let newDirectory = try other.makeDirectory(target.parent, durable: true)
      let old = try target.status()
      try Self.requireReplaceable(old, at: target.path)
      let mode = status.mode
      var narrowed: File?
      defer { try? narrowed?.setMode(mode) }
      if let old, old.isRegularFile,
        let narrower = status.mode(at: source.path, notWiderThan: old, at: target.path)
      {
        let file = try File(source)
        narrowed = file
        try file.setMode(narrower)
        status = try file.status(withTimes: true)
        // Another user's file keeps its mode.
        guard status.mode == narrower else {
          throw StorageError(
            .accessDenied, operation: "move", path: source.path,
            reason: "the file would be accessible to more users than the one that it would replace",
            remedy: "Copy it and delete the original, or ask its owner to change its mode.")
        }
      }
      // Root copies what the owner of the new directory could not use.
      let keepsOwner = newDirectory.foreignOwner.map { $0 == status.owner } ?? true
      if keepsOwner,
        try FileSystem.move(source.name, in: directory, to: target.name, in: newDirectory)
      {
        // rename(2) does nothing if both names refer to one file, so the old name is removed here.
        // Unless they are one name: in a directory that has two paths, or on a file system that
        // ignores case.
        if let old, old.isSameFile(as: status), status.linkCount > 1 {
          let isSameDirectory = try directory.status().isSameFile(as: newDirectory.status())
          if !isSameDirectory || source.name != target.name {
            try FileSystem.unlink(source.name, in: directory)
          }
        }
      } else {
        let copier = Copier(folder: other, keepsAttributes: true, isDurable: true)
        let copied = try copier.copy(source, status, to: target)
        // The originals are about to be removed, so the copy must be durable in any folder.
        if !other.isDurable { try target.parent.synchronizeAncestors() }
        for (path, status) in copied.reversed() { try path.remove(ifUnchangedSince: status) }
      }
      narrowed = nil
      if other.isDurable { try newDirectory.synchronize() }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Moves a file from elsewhere into this folder, such as a download.
  ///
  /// ```swift
  /// try Folder.caches.adopt(downloaded, as: "films/1.mp4")
  /// ```
  ///
  /// An existing file of that name is replaced, and the file gets its permissions; otherwise those
  /// of the folder's files.
  ///
  /// If the process is killed during the call, the file may be in the folder under a hidden name
  /// that ends in `.taken`.
  ///
  /// - Throws: ``StorageError``, for example if `file` is a symbolic link or not a file. The file
  ///   is then still at its old path or, if another one has taken that in the meantime, at the path
  ///   that the error names.
  public func adopt(_ file: URL, as path: String) throws(StorageError) {
    try adopt(file, as: path, nil)
  }

  /// Moves a file into this folder like ``adopt(_:as:)``, and reports how much has been copied if
  /// it comes from another file system.
  ///
  /// ```swift
  /// try await Folder.documents.adopt(downloaded, as: "films/1.mp4") { done, total in
  ///   print(ByteCount(done), "of", ByteCount(total))
  /// }
  /// ```
  ///
  /// The bytes are copied on threads of the library, so that the caller's thread does not wait for
  /// the disk. If the task is cancelled, the copy ends soon, and the file is still at its old path.
  ///
  /// - Parameters:
  ///   - file: The file to move.
  ///   - path: Its path in this folder.
  ///   - isolation: The isolation in which `progress` is called, by default the caller's.
  ///   - progress: Called at most twenty times a second with the number of bytes so far and the
  ///     size of the file, and at the end with the size twice. For a file that need not be copied,
  ///     that is the only call.
  /// - Throws: `CancellationError`, or what ``adopt(_:as:)`` throws.
  public func adopt(
    _ file: URL, as path: String, isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int) -> Void
  ) async throws {
    try await CopyProgress.report(to: progress, isolation: isolation) { progress in
      try adopt(file, as: path, progress)
    }
  }

  private func adopt(
    _ file: URL, as path: String, _ progress: CopyProgress?
  ) throws(StorageError) {
    try perform("adopt") { () throws(StorageError) in
      let source = try DirectoryFinder.path(of: file, operation: "adopt")
      let opened: File
      do throws(StorageError) {
        opened = try File(source, .readNoFollow)
      } catch  where error.code == .symbolicLink {
        throw ConfinedPath(base: source).symbolicLinkError
      }
      let status = try opened.status()
      guard status.isRegularFile else { throw Self.notAFile(source) }
      let target = try targetFilePath(path)
      let directory = try makeDirectory(target.parent, durable: true)
      if isDurable { try opened.synchronize() }
      // A file of another user is copied, because it would stay that user's. So is a file with
      // other names, through which it could still be changed.
      let owner = directory.foreignOwner ?? ProcessEnvironment.userID
      let canMove = status.linkCount == 1 && status.owner == owner
      progress?.start(total: status.size)
      var isMoved = false
      if canMove { isMoved = try moveIn(opened, status, from: source, to: target, in: directory) }
      if !isMoved {
        let before = try opened.status(withTimes: true)
        let copy = try makeFile(target)
        try copy.append(contentsOf: opened, progress)
        try copy.finish(durable: true)
        if !isDurable { try target.parent.synchronizeAncestors() }
        // The original is gone already if the copy has replaced it.
        let original = ConfinedPath(base: FileSystem.parent(of: source))
          .appending(FileSystem.name(of: source))
        if let now = try original.status(), now.isSameFile(as: status) {
          try original.remove(ifUnchangedSince: before)
        }
      }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Moves a file into this folder and gives it the permissions of the file that it replaces, or of
  /// a new one; false if it must be copied: from another file system, for example.
  private func moveIn(
    _ file: File, _ status: FileStatus, from source: String, to target: ConfinedPath,
    in directory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    // First to a name that other processes do not know: under the final one, no one may find it
    // with another mode. If they have replaced the source in the meantime, their file is moved
    // back.
    let old = try target.status()
    try Self.requireReplaceable(old, at: target.path)
    let adoptedName = AbandonedFiles.makeAdoptedName()
    guard try FileSystem.move(source, in: nil, to: adoptedName, in: directory) else { return false }
    do throws(StorageError) {
      let found = try FileSystem.status(adoptedName, in: directory, followsLinks: false)
      if found?.linkCount == 1, found?.isSameFile(as: status) == true,
        try setPermissions(of: file, replacing: old, at: target.path, in: directory)
      {
        try FileSystem.rename(adoptedName, to: target.name, in: directory)
        return true
      }
    } catch {
      // The first error matters more than permissions that could not be restored.
      _ = file.setOwner(status.owner, status.group)
      try? file.setMode(status.mode)
      try moveBack(adoptedName, in: directory, to: source)
      throw error
    }
    try moveBack(adoptedName, in: directory, to: source)
    return false
  }

  /// False if the file may not have the group of its directory, which a new file would inherit.
  private func setPermissions(
    of file: File, replacing old: FileStatus?, at path: String, in directory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    if let old, old.isRegularFile {
      try file.takePermissions(of: old, at: path)
      return true
    }
    let parent = try directory.status()
    guard parent.mode & 0o2000 == 0 || file.setOwner(.max, parent.group) else { return false }
    try file.setMode(fileMode())
    return true
  }

  private func moveBack(
    _ name: String, in directory: DirectoryHandle, to source: String
  ) throws(StorageError) {
    let path = directory.path(of: name)
    guard try !FileSystem.create(path, as: source, in: nil) else { return }
    throw StorageError(
      .alreadyExists, operation: "adopt", path: path,
      reason: "the file has this name now, because another one has its old name",
      remedy: "Move this file away, and adopt it from there.")
  }

  /// The path of a copy of a file or directory with this status.
  private func targetPath(
    _ path: String, for status: FileStatus
  ) throws(StorageError) -> ConfinedPath {
    try status.isDirectory ? targetPath(path) : targetFilePath(path)
  }
}

/// Copies files and directories into a ``Folder``. At the end, either everything is there or
/// nothing.
private struct Copier {
  let folder: Folder
  /// Whether files keep their permissions and times.
  let keepsAttributes: Bool
  let isDurable: Bool
  var progress: CopyProgress?

  typealias Copied = [(ConfinedPath, FileStatus)]

  /// Returns everything that was copied, each directory before its contents.
  func copy(
    _ source: ConfinedPath, _ status: FileStatus, to target: ConfinedPath
  ) throws(StorageError) -> Copied {
    if status.isDirectory { return [(source, status)] + (try copyDirectory(source, to: target)) }
    progress?.start(total: status.isRegularFile ? status.size : 0)
    try copyFile(source, status, to: target.name, in: folder.makeDirectory(target.parent))
    return [(source, status)]
  }

  private func copyFile(
    _ source: ConfinedPath, _ status: FileStatus, to name: String, in directory: DirectoryHandle
  ) throws(StorageError) {
    if status.isSymbolicLink {
      let old = try FileSystem.status(name, in: directory, followsLinks: false)
      try Folder.requireReplaceable(old, at: directory.path(of: name))
      try FileSystem.copyLink(source, to: name, by: TemporaryFile.makeName(), in: directory)
      if isDurable { try directory.synchronize() }
      return
    }
    // Checked before opening, which has side effects on some devices.
    guard status.isRegularFile else { throw Folder.notAFile(source.path) }
    let file = try File(source)
    guard try file.status().isRegularFile else { throw Folder.notAFile(source.path) }
    let copy = try NewFile(name, in: directory, mode: folder.fileMode())
    try copy.append(contentsOf: file, progress)
    if keepsAttributes { try copy.copyAttributes(of: status, at: source.path) }
    try copy.finish(durable: isDurable)
  }

  private func copyDirectory(
    _ source: ConfinedPath, to target: ConfinedPath
  ) throws(StorageError) -> Copied {
    // All names are collected before the first copy, which may be created below the source.
    var found: Copied = []
    func isCopied(_ name: String?) -> Bool { !AbandonedFiles.isReserved(name) }
    try source.walk(entering: isCopied) { visit throws(StorageError) in
      guard visit.entry.name != nil else { throw visit.path.invalidNameError }
      if let status = try visit.entry.status(withTimes: true) {
        found.append((visit.path, status))
      }
    }
    progress?.start(
      total: found.reduce(0) { total, item in
        // Sparse files may have any size.
        item.1.isRegularFile ? total.addingSaturated(item.1.size) : total
      })
    let parent = try folder.makeDirectory(target.parent)
    let temporary = target.parent.appending(TemporaryFile.makeName())
    let mode = try folder.directoryMode()
    do throws(StorageError) {
      let copy = try temporary.makeDirectory(mode: mode).0
      AbandonedFiles.markInUse(copy.descriptor, copy.path)
      for (path, status) in found {
        try progress?.checkCancellation()
        let target = temporary.appending(path.subpath(below: source))
        if status.isDirectory {
          _ = try target.makeDirectory(mode: mode)
        } else {
          let directory = try DirectoryHandle(target.parent)
          do throws(StorageError) {
            try copyFile(path, status, to: target.name, in: directory)
          } catch  where error.code == .notFound && error.path == path.path {
            // It was removed in the meantime, but not moved with its directory.
            guard try path.parent.status() != nil else { throw error }
          }
        }
      }
      if isDurable {
        try temporary.walk { visit throws(StorageError) in
          if visit.kind == .directory { try DirectoryHandle(visit.path).synchronize() }
        }
        try copy.synchronize()
      }
      guard try FileSystem.move(temporary.name, in: parent, to: target.name, in: parent) else {
        throw StorageError(
          .crossDevice, operation: "rename", path: target.path,
          reason: "another file system is mounted at the target",
          remedy: "Choose a target that is not a mount point.")
      }
    } catch {
      // The first error matters more than a failed cleanup; a later sweep removes the copy.
      try? temporary.removeTree()
      throw error
    }
    if isDurable { try parent.synchronize() }
    return found
  }
}

extension ConfinedPath {
  /// Makes the contents of a file, or of all files in a directory, survive a power cut.
  func synchronizeContents(_ status: FileStatus) throws(StorageError) {
    if status.isRegularFile { return try File(self).synchronize() }
    guard status.isDirectory else { return }
    try walk { visit throws(StorageError) in
      guard visit.entry.name != nil else { throw visit.path.invalidNameError }
      do throws(StorageError) {
        switch visit.kind {
        case .file: try File(visit.path).synchronize()
        case .directory: try DirectoryHandle(visit.path).synchronize()
        case .symbolicLink, .other: break
        }
      } catch  where error.code == .notFound {
        // It was removed in the meantime.
      }
    }
    try DirectoryHandle(self).synchronize()
  }

  /// Removes a file or directory that was copied, unless it has changed since.
  fileprivate func remove(ifUnchangedSince copied: FileStatus) throws(StorageError) {
    guard let status = try status(withTimes: true) else { return }
    let isUnchanged =
      status.isDirectory
      ? try removeCopiedDirectory()
      : status.isSameFile(as: copied) && status.size == copied.size
        // Removing another name of the file changes it, too, but not its contents.
        && (status.changed == copied.changed
          || copied.linkCount > 1 && status.modified == copied.modified)
    guard isUnchanged else {
      throw StorageError(
        .busy, operation: "move", path: path,
        reason: "the original changed while it was copied to another file system",
        remedy: "Compare the original and the copy, and delete one of them.")
    }
    if !status.isDirectory { try FileSystem.unlink(name, in: DirectoryHandle(parent)) }
  }

  /// Removes the directory if it contains only files of the library; false otherwise.
  private func removeCopiedDirectory() throws(StorageError) -> Bool {
    if try removeEmptyDirectory() { return true }
    try FileSystem.scan(in: DirectoryHandle(self)) { entry throws(StorageError) in
      let isDisposable = entry.name.map(AbandonedFiles.isDisposable) ?? false
      if isDisposable, try entry.kind() != .directory { try entry.unlink() }
    }
    return try removeEmptyDirectory()
  }
}
