public import FoundationEssentials

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension Folder {
  /// Copies a file, or a folder with all that is in it.
  ///
  /// ```swift
  /// try Folder.documents.copy("draft.txt", to: "final.txt")
  /// try Folder.documents.copy("draft.txt", to: "draft.txt", in: .temporary)
  /// ```
  ///
  /// A file at the target is replaced; a folder is not, unless it is empty. Where the file system can, the
  /// copy shares its data with the original until one of them changes.
  ///
  /// - Parameters:
  ///   - path: What is copied.
  ///   - target: The name of the copy.
  ///   - other: The folder that gets it; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` when nothing is at `path`; what was at the target is
  ///   intact then.
  public func copy(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try during("copy", path) { site throws(StorageError) in
      let other = other ?? self
      let copier = Copier(target: other, keepsLook: false, isDurable: other.isDurable)
      _ = try copier.copy(site, Self.statusOfSomething(site), to: other.target(target))
    }
  }

  /// Moves a file or a folder, also to another file system.
  ///
  /// A file at the target is replaced; a folder is not, unless it is empty. On another file system a
  /// whole copy is there before the original goes.
  ///
  /// - Parameters:
  ///   - path: What is moved.
  ///   - target: Its new name.
  ///   - other: The folder that gets it; nil for this one.
  /// - Throws: ``StorageError``, of code `notFound` when nothing is at `path`; what is moved is still
  ///   where it was then.
  public func move(
    _ path: String, to target: String, in other: Folder? = nil
  ) throws(StorageError) {
    try during("move", path) { site throws(StorageError) in
      let other = other ?? self
      let status = try Self.statusOfSomething(site)
      let end = try other.target(target)
      guard !site.isRoot else {
        throw StorageError(
          .misuse, operation: "move", path: site.path, reason: "it is the folder itself",
          remedy: "Move what is in it.")
      }
      guard !status.isFolder || !end.path.utf8.starts(with: (site.path + "/").utf8) else {
        throw StorageError(
          .misuse, operation: "move", path: end.path, reason: "it lies in the folder to be moved",
          remedy: "Move the folder to a place outside of it, or copy it.")
      }
      // Before it stands in for another file that may be on the disk already.
      if other.isDurable, !isDurable { try site.synchronizeData(status) }
      let folder = try OpenFolder(site.parent)
      let newFolder = try other.makeFolder(end.parent)
      let old = try end.status()
      if try FileSystem.move(site.name, in: folder, to: end.name, in: newFolder) {
        // To rename(2) two names of one file are as they should be. But one name it may be as well, in a
        // folder that is reached in two ways, or whose file system takes a for A.
        if let old, old.isSameFile(as: status), status.links > 1 {
          let isOneFolder = try folder.status().isSameFile(as: newFolder.status())
          if !isOneFolder || site.name != end.name {
            try FileSystem.unlink(site.name, in: folder)
          }
        }
      } else {
        let copier = Copier(target: other, keepsLook: true, isDurable: true)
        for (place, status) in try copier.copy(site, status, to: end).reversed() {
          try place.remove(ifStill: status)
        }
      }
      if other.isDurable { try newFolder.synchronize() }
      if isDurable { try folder.synchronize() }
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
  /// - Throws: ``StorageError``, also when `file` is a symbolic link or no file; it is still there then.
  public func adopt(_ file: URL, as path: String) throws(StorageError) {
    try during("adopt") { () throws(StorageError) in
      let source = try DirectoryFinder.path(of: file, operation: "adopt")
      let opened: File
      do throws(StorageError) {
        opened = try File(source, .readUnlinked)
      } catch  where error.code.systemError == ELOOP {
        throw RootedPath(root: source).linkFailure
      }
      let status = try opened.status()
      guard status.isRegularFile else { throw Self.notAFile(RootedPath(root: source)) }
      let site = try fileTarget(path)
      let folder = try makeFolder(site.parent)
      if isDurable { try opened.synchronize() }
      // Another user's stays that one's, and what has another name could be changed by it.
      let isOurs = status.links == 1 && status.owner == geteuid()
      var isMoved = false
      if isOurs { isMoved = try take(opened, status, from: source, to: site, in: folder) }
      if !isMoved {
        let before = try opened.status(withTimes: true)
        let copy = try newFile(site)
        try copy.append(contentsOf: opened)
        try copy.finish(durable: true)
        // Unless it had this very name, and is gone by that.
        let original = RootedPath(root: FileSystem.parent(of: source))
          .appending(FileSystem.name(of: source))
        if let now = try original.status(), now.isSameFile(as: status) {
          try original.remove(ifStill: before)
        }
      }
      if isDurable { try folder.synchronize() }
    }
  }

  /// Moves a file in, with the mode of this folder; false when it is on another file system.
  private func take(
    _ file: File, _ status: FileStatus, from source: String, to site: RootedPath,
    in folder: OpenFolder
  ) throws(StorageError) -> Bool {
    // Before it has its name: nobody is to find it there with another one.
    try file.setMode(fileMode())
    do throws(StorageError) {
      if try FileSystem.move(source, in: nil, to: site.name, in: folder) { return true }
      try file.setMode(status.mode)
      return false
    } catch {
      // The failure says more than that the mode could not be put back.
      try? file.setMode(status.mode)
      throw error
    }
  }
}

/// Copies into a ``Folder``, such that at the end all of it is there or nothing.
private struct Copier {
  let target: Folder
  /// Whether files have the modes and times of the originals.
  let keepsLook: Bool
  let isDurable: Bool

  typealias Copied = [(RootedPath, FileStatus)]

  /// Returns all that was copied, folders before what is in them.
  func copy(
    _ site: RootedPath, _ status: FileStatus, to end: RootedPath
  ) throws(StorageError) -> Copied {
    if status.isFolder { return [(site, status)] + (try copyFolder(site, to: end)) }
    try copyFile(site, status, to: end.name, in: target.makeFolder(end.parent))
    return [(site, status)]
  }

  private func copyFile(
    _ source: RootedPath, _ status: FileStatus, to name: String, in folder: OpenFolder
  ) throws(StorageError) {
    if status.isLink {
      try FileSystem.copyLink(source, to: name, by: AbandonedFiles.newName(), in: folder)
      if isDurable { try folder.synchronize() }
      return
    }
    let file = try File(source)
    guard try file.status().isRegularFile else { throw Folder.notAFile(source) }
    let copy = try NewFile(name, in: folder, mode: target.fileMode())
    try copy.append(contentsOf: file)
    if keepsLook { try copy.inherit(status) }
    try copy.finish(durable: isDurable)
  }

  private func copyFolder(
    _ source: RootedPath, to end: RootedPath
  ) throws(StorageError) -> Copied {
    // All names before the first copy, which may come to lie in the folder itself.
    var found: Copied = []
    func isCopied(_ name: String?) -> Bool { !(name.map(AbandonedFiles.isReserved) ?? false) }
    try source.walk(entering: isCopied) { visit throws(StorageError) in
      guard visit.found.name != nil else { throw visit.place.nameFailure }
      if let status = try visit.found.status(withTimes: true) {
        found.append((visit.place, status))
      }
    }
    let parent = try target.makeFolder(end.parent)
    let temporary = end.parent.appending(AbandonedFiles.newName())
    let mode = try target.folderMode()
    do throws(StorageError) {
      let copy = try temporary.makeFolder(mode: mode).0
      AbandonedFiles.mark(copy.descriptor, copy.path)
      for (place, status) in found {
        let way = place.relative.utf8.dropFirst(source.isRoot ? 0 : source.relative.utf8.count + 1)
        let end = temporary.appending(String(Substring(way)))
        if status.isFolder {
          _ = try end.makeFolder(mode: mode)
        } else {
          try copyFile(place, status, to: end.name, in: OpenFolder(end.parent))
        }
      }
      if isDurable {
        try temporary.walk { visit throws(StorageError) in
          if visit.kind == .folder { try OpenFolder(visit.place).synchronize() }
        }
        try copy.synchronize()
      }
      _ = try FileSystem.move(temporary.name, in: parent, to: end.name, in: parent)
    } catch {
      // The failure says more than that its remains could not be removed; a sweep finds them.
      try? temporary.removeTree()
      throw error
    }
    if isDurable { try parent.synchronize() }
    return found
  }
}

extension RootedPath {
  /// Makes the contents of a file, or of all files in a folder, survive a power cut.
  func synchronizeData(_ status: FileStatus) throws(StorageError) {
    if status.isRegularFile { return try File(self).synchronize() }
    guard status.isFolder else { return }
    try walk { visit throws(StorageError) in
      switch visit.kind {
      case .file: try File(visit.place).synchronize()
      case .folder: try OpenFolder(visit.place).synchronize()
      case .link, .other: break
      }
    }
    try OpenFolder(self).synchronize()
  }

  /// Removes what was copied, unless it has changed since: that is not in the copy.
  fileprivate func remove(ifStill copied: FileStatus) throws(StorageError) {
    guard let status = try status(withTimes: true) else { return }
    let isUnchanged =
      status.isFolder
      ? try removeEmptyFolder()
      : status.isSameFile(as: copied) && status.size == copied.size
        && status.changed == copied.changed
    guard isUnchanged else {
      throw StorageError(
        .system(EBUSY), operation: "move", path: path,
        reason: "it was changed while it was copied to another file system",
        remedy: "Both are there: compare them, and delete one.")
    }
    if !status.isFolder { try FileSystem.unlink(name, in: OpenFolder(parent)) }
  }
}
