public import FoundationEssentials
internal import KeepsakeLibc

extension Folder {
  /// Copies a file, or a folder with all that is in it.
  ///
  /// ```swift
  /// try Folder.documents.copy("draft.txt", to: "final.txt")
  /// try Folder.documents.copy("draft.txt", to: "draft.txt", in: .temporary)
  /// ```
  ///
  /// A file replaces a file, a folder an empty folder; nothing else is replaced. Where the file
  /// system can, the copy shares its data with the original until one of them changes.
  ///
  /// - Parameters:
  ///   - path: What is copied.
  ///   - target: The name of the copy.
  ///   - other: The folder that gets it; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` when nothing is at `path`; what was at the
  ///   target is intact then, or the whole copy is there and only its last sync failed.
  public func copy(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try during("copy", path) { site throws(StorageError) in
      let other = other ?? self
      let copier = Copier(target: other, keepsLook: false, isDurable: other.isDurable)
      let status = try Self.statusOfSomething(site)
      _ = try copier.copy(
        site, status, to: status.isDirectory ? other.target(target) : other.fileTarget(target))
    }
  }

  /// Moves a file or a folder, also to another file system.
  ///
  /// A file replaces a file, a folder an empty folder; nothing else is replaced. Modes stay as they
  /// are. On another file system a whole copy is there before the original goes; files keep their
  /// modes and times, folders do not.
  ///
  /// - Parameters:
  ///   - path: What is moved.
  ///   - target: Its new name.
  ///   - other: The folder that gets it; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` when nothing is at `path`; all of it is then in
  ///   one of the two places, or, when what was copied to another file system could not be removed,
  ///   in both.
  public func move(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try during("move", path) { site throws(StorageError) in
      let other = other ?? self
      let status = try Self.statusOfSomething(site)
      let end = try status.isDirectory ? other.target(target) : other.fileTarget(target)
      guard !site.isBase else {
        throw StorageError(
          .misuse, operation: "move", path: site.path, reason: "it is the directory itself",
          remedy: "Move what is in it.")
      }
      guard !status.isDirectory || !end.path.utf8.starts(with: (site.path + "/").utf8) else {
        throw StorageError(
          .misuse, operation: "move", path: end.path,
          reason: "it lies in the directory to be moved",
          remedy: "Move the directory to a place outside of it, or copy it.")
      }
      // Before it stands in for another file that may be on the disk already.
      if other.isDurable, !isDurable { try site.synchronizeData(status) }
      let directory = try DirectoryHandle(site.parent)
      let newDirectory = try other.makeDirectory(end.parent)
      let old = try end.status()
      if try FileSystem.move(site.name, in: directory, to: end.name, in: newDirectory) {
        // To rename(2) two names of one file are as they should be. But one name it may be as well,
        // in a directory that is reached in two ways, or whose file system takes a for A.
        if let old, old.isSameFile(as: status), status.linkCount > 1 {
          let isOneDirectory = try directory.status().isSameFile(as: newDirectory.status())
          if !isOneDirectory || site.name != end.name {
            try FileSystem.unlink(site.name, in: directory)
          }
        }
      } else {
        let copier = Copier(target: other, keepsLook: true, isDurable: true)
        let copied = try copier.copy(site, status, to: end)
        // The originals are going to be gone for good.
        if !other.isDurable { try end.parent.synchronizeAncestors() }
        for (place, status) in copied.reversed() {
          try place.remove(ifStill: status)
        }
      }
      if other.isDurable { try newDirectory.synchronize() }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Takes a file in from elsewhere, such as one that was downloaded; it is moved.
  ///
  /// ```swift
  /// try Folder.caches.adopt(downloaded, as: "films/1.mp4")
  /// ```
  ///
  /// A file of that name is replaced. Its mode becomes that of the folder's files.
  ///
  /// Who is killed in that moment finds it in the folder, under a hidden name that ends in
  /// `.taken`.
  ///
  /// - Throws: ``StorageError``, also when `file` is a symbolic link or no file; it is still there
  ///   then.
  public func adopt(_ file: URL, as path: String) throws(StorageError) {
    try during("adopt") { () throws(StorageError) in
      let source = try DirectoryFinder.path(of: file, operation: "adopt")
      let opened: File
      do throws(StorageError) {
        opened = try File(source, .readNoFollow)
      } catch  where error.code.systemError == ELOOP {
        throw ConfinedPath(base: source).symbolicLinkError
      }
      let status = try opened.status()
      guard status.isRegularFile else { throw Self.notAFile(ConfinedPath(base: source)) }
      let site = try fileTarget(path)
      let directory = try makeDirectory(site.parent)
      if isDurable { try opened.synchronize() }
      // Another user's stays that one's, and what has another name could be changed by it.
      let isOurs = status.linkCount == 1 && status.owner == geteuid()
      var isMoved = false
      if isOurs { isMoved = try take(opened, status, from: source, to: site, in: directory) }
      if !isMoved {
        let before = try opened.status(withTimes: true)
        let copy = try newFile(site)
        try copy.append(contentsOf: opened)
        try copy.finish(durable: true)
        if !isDurable { try site.parent.synchronizeAncestors() }
        // Unless it had this very name, and is gone by that.
        let original = ConfinedPath(base: FileSystem.parent(of: source))
          .appending(FileSystem.name(of: source))
        if let now = try original.status(), now.isSameFile(as: status) {
          try original.remove(ifStill: before)
        }
      }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Moves a file in, with the mode of this folder; false when it is on another file system.
  private func take(
    _ file: File, _ status: FileStatus, from source: String, to site: ConfinedPath,
    in directory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    // Before it has its name: nobody is to find it there with another one.
    try file.setMode(fileMode())
    do throws(StorageError) {
      // By a name that others do not know: what they may have put in its stead meanwhile goes back.
      let taken = AbandonedFiles.nameOfTaken()
      if try FileSystem.move(source, in: nil, to: taken, in: directory) {
        let isTaken: Bool
        do throws(StorageError) {
          let found = try FileSystem.status(taken, in: directory, followsLinks: false)
          isTaken = found?.linkCount == 1 && found?.isSameFile(as: status) == true
          if isTaken { try FileSystem.rename(taken, to: site.name, in: directory) }
        } catch {
          try putBack(taken, in: directory, to: source)
          throw error
        }
        if isTaken { return true }
        try putBack(taken, in: directory, to: source)
      }
      try file.setMode(status.mode)
      return false
    } catch {
      // The failure says more than that the mode could not be put back.
      try? file.setMode(status.mode)
      throw error
    }
  }
}

extension Folder {
  private func putBack(
    _ name: String, in directory: DirectoryHandle, to source: String
  ) throws(StorageError) {
    let origin = try DirectoryHandle(FileSystem.parent(of: source))
    _ = try FileSystem.move(name, in: directory, to: FileSystem.name(of: source), in: origin)
  }
}

/// Copies into a ``Folder``, such that at the end all of it is there or nothing.
private struct Copier {
  let target: Folder
  /// Whether files have the modes and times of the originals.
  let keepsLook: Bool
  let isDurable: Bool

  typealias Copied = [(ConfinedPath, FileStatus)]

  /// Returns all that was copied, folders before what is in them.
  func copy(
    _ site: ConfinedPath, _ status: FileStatus, to end: ConfinedPath
  ) throws(StorageError) -> Copied {
    if status.isDirectory { return [(site, status)] + (try copyDirectory(site, to: end)) }
    try copyFile(site, status, to: end.name, in: target.makeDirectory(end.parent))
    return [(site, status)]
  }

  private func copyFile(
    _ source: ConfinedPath, _ status: FileStatus, to name: String, in directory: DirectoryHandle
  ) throws(StorageError) {
    if status.isSymbolicLink {
      try FileSystem.copyLink(source, to: name, by: AbandonedFiles.newName(), in: directory)
      if isDurable { try directory.synchronize() }
      return
    }
    // Before it is opened, which some devices take for more.
    guard status.isRegularFile else { throw Folder.notAFile(source) }
    let file = try File(source)
    guard try file.status().isRegularFile else { throw Folder.notAFile(source) }
    let copy = try NewFile(name, in: directory, mode: target.fileMode())
    try copy.append(contentsOf: file)
    if keepsLook { try copy.inherit(status) }
    try copy.finish(durable: isDurable)
  }

  private func copyDirectory(
    _ source: ConfinedPath, to end: ConfinedPath
  ) throws(StorageError) -> Copied {
    // All names before the first copy, which may come to lie in the directory itself.
    var found: Copied = []
    func isCopied(_ name: String?) -> Bool { !(name.map(AbandonedFiles.isReserved) ?? false) }
    try source.walk(entering: isCopied) { visit throws(StorageError) in
      guard visit.entry.name != nil else { throw visit.place.invalidNameError }
      if let status = try visit.entry.status(withTimes: true) {
        found.append((visit.place, status))
      }
    }
    let parent = try target.makeDirectory(end.parent)
    let temporary = end.parent.appending(AbandonedFiles.newName())
    let mode = try target.directoryMode()
    do throws(StorageError) {
      let copy = try temporary.makeDirectory(mode: mode).0
      AbandonedFiles.mark(copy.descriptor, copy.path)
      for (place, status) in found {
        let way = place.subpath.utf8.dropFirst(source.isBase ? 0 : source.subpath.utf8.count + 1)
        let end = temporary.appending(String(Substring(way)))
        if status.isDirectory {
          _ = try end.makeDirectory(mode: mode)
        } else {
          try copyFile(place, status, to: end.name, in: DirectoryHandle(end.parent))
        }
      }
      if isDurable {
        try temporary.walk { visit throws(StorageError) in
          if visit.kind == .directory { try DirectoryHandle(visit.place).synchronize() }
        }
        try copy.synchronize()
      }
      guard try FileSystem.move(temporary.name, in: parent, to: end.name, in: parent) else {
        throw StorageError(errno: EXDEV, operation: "rename", path: end.path)
      }
    } catch {
      // The failure says more than that its remains could not be removed; a sweep finds them.
      try? temporary.removeTree()
      throw error
    }
    if isDurable { try parent.synchronize() }
    return found
  }
}

extension ConfinedPath {
  /// What goes meanwhile needs no sync.
  private func synchronizeIfThere(
    _ synchronize: (ConfinedPath) throws(StorageError) -> Void
  ) throws(StorageError) {
    do throws(StorageError) {
      try synchronize(self)
    } catch  where error.code == .notFound {}
  }

  /// Makes the contents of a file, or of all files in a folder, survive a power cut.
  func synchronizeData(_ status: FileStatus) throws(StorageError) {
    if status.isRegularFile { return try File(self).synchronize() }
    guard status.isDirectory else { return }
    try walk { visit throws(StorageError) in
      switch visit.kind {
      case .file:
        try visit.place.synchronizeIfThere { place throws(StorageError) in
          try File(place).synchronize()
        }
      case .directory:
        try visit.place.synchronizeIfThere { place throws(StorageError) in
          try DirectoryHandle(place).synchronize()
        }
      case .link, .other: break
      }
    }
    try DirectoryHandle(self).synchronize()
  }

  /// Removes the folder if nothing is in it but the library's own; false otherwise.
  private func removeDirectory() throws(StorageError) -> Bool {
    if try removeEmptyDirectory() { return true }
    try FileSystem.scan(in: DirectoryHandle(self)) { found throws(StorageError) in
      let isOurs = found.name.map(AbandonedFiles.isDisposable) ?? false
      if isOurs, try found.kind() != .directory { try found.unlink() }
    }
    return try removeEmptyDirectory()
  }

  /// Removes what was copied, unless it has changed since: that is not in the copy.
  fileprivate func remove(ifStill copied: FileStatus) throws(StorageError) {
    guard let status = try status(withTimes: true) else { return }
    let isUnchanged =
      status.isDirectory
      ? try removeDirectory()
      : status.isSameFile(as: copied) && status.size == copied.size
        && status.changed == copied.changed
    guard isUnchanged else {
      throw StorageError(
        .system(EBUSY), operation: "move", path: path,
        reason: "it was changed while it was copied to another file system",
        remedy: "Both are there: compare them, and delete one.")
    }
    if !status.isDirectory { try FileSystem.unlink(name, in: DirectoryHandle(parent)) }
  }
}
