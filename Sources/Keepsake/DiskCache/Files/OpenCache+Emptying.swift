/// Emptying a cache.
///
/// The cache's directory stays, because it may be a link or a mount point, and whatever else is in
/// it stays too. Its subdirectories are renamed, which takes the same time for any number of
/// entries, and deleted afterwards.
extension OpenCache {
  private static let trashSuffix = ".trash"

  static func isTrash(_ name: String) -> Bool { name.hasSuffix(trashSuffix) }

  /// Renames all subdirectories, so that their entries are gone.
  ///
  /// - Returns: The subdirectories that have to be emptied entry by entry: all of a directory that
  ///   is a link or a mount point, because the cache need not have made them, and those that cannot
  ///   be renamed, such as those in the lower layer of an overlay.
  func moveSubdirectoriesToTrash() throws(StorageError) -> [Int] {
    let numbers = try subdirectoryNumbers()
    let status = try FileSystem.status(paths.directory, followsLinks: false)
    guard let status, status.isDirectory, !status.isMountPoint else { return numbers }
    return numbers.filter { number in
      let name = EntryName.directoryName(number)
      let token = String(UInt64.random(in: .min ... .max), radix: 16)
      do throws(StorageError) {
        try FileSystem.rename(name, to: ".\(name).\(token)\(Self.trashSuffix)", in: directory)
        return false
      } catch {
        return error.code != .notFound
      }
    }
  }

  /// Removes the entries in a subdirectory one by one.
  func removeEntries(inSubdirectory number: Int) throws(StorageError) {
    let fileNames = try fileNames(inSubdirectory: number)
    if fileNames.isEmpty { return try unlinkIfLink(EntryName.directoryName(number)) }
    for fileName in fileNames {
      guard let name = entryName(fileName, inSubdirectory: number) else { continue }
      _ = try withKeyLock(name, timeout: timeout) { entry throws(StorageError) in
        try entry.remove()
      }
    }
  }

  /// A link in place of a subdirectory leads to files that must stay, and would be read as entries.
  private func unlinkIfLink(_ name: String) throws(StorageError) {
    let status = try FileSystem.status(name, in: directory, followsLinks: false)
    if status?.isSymbolicLink == true { try FileSystem.unlink(name, in: directory) }
  }

  /// Deletes the entries of a subdirectory that was renamed, and puts other files back.
  func deleteTrash(_ trash: String) throws(StorageError) {
    let path = ConfinedPath(base: directory.path).appending(trash)
    // A writer that had found the subdirectory under its old name may create another file in it.
    for _ in 0..<10 {
      do throws(StorageError) {
        try emptyTrash(trash)
      } catch  where error.code == .notDirectory {
        return try unlinkIfLink(trash)
      } catch  where error.code == .notFound {
        return  // another process has deleted it
      }
      if try path.removeEmptyDirectory() { return }
    }
    throw StorageError(
      .misuse, operation: "rmdir", path: path.path,
      reason: "it contains files that the cache has not made",
      remedy: "Move them to another directory.")
  }

  private func emptyTrash(_ trash: String) throws(StorageError) {
    let subdirectory = String(trash.dropFirst().prefix(2))
    guard let number = Int(subdirectory, radix: 16) else { return }
    var others: [String] = []
    try FileSystem.scan(trash, in: directory, followsLinks: false) { entry throws(StorageError) in
      guard let name = entry.name else { return }
      let isOurs =
        entryName(name, inSubdirectory: number) != nil || Self.token(ofTemporary: name) != nil
      if isOurs, try entry.kind() != .directory {
        try entry.unlink()
      } else {
        others.append(name)
      }
    }
    if !others.isEmpty { try makeSubdirectory(number) }
    for name in others {
      _ = try FileSystem.renameIfAbsent(
        "\(trash)/\(name)", to: "\(subdirectory)/\(name)", in: directory)
    }
  }

  /// The entry that a file of this name belongs to; nil for a file that is not the cache's.
  private func entryName(_ fileName: String, inSubdirectory number: Int) -> EntryName? {
    let name = EntryName(fileName: Sidecar.payloadName(of: fileName) ?? fileName)
    return name?.directory == number ? name : nil
  }
}
