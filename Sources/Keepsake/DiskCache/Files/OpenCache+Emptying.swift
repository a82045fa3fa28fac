/// Emptying a cache.
///
/// The cache's directory stays, because it may be a link or a mount point, and whatever else is in
/// it stays too. Its subdirectories are renamed, which takes the same time for any number of
/// entries, and deleted afterwards.
extension OpenCache {
  /// The number of an emptied subdirectory; nil for any other name.
  static func number(ofTrash name: String) -> Int? {
    let parts = name.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 4, parts[0].isEmpty, parts[1].utf8.count == 2, parts[3] == "trash",
      let number = Hexadecimal.number(parts[1]), Hexadecimal.number(parts[2]) != nil
    else { return nil }
    return Int(number)
  }

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
        try FileSystem.rename(name, to: ".\(name).\(token).trash", in: directory)
        return false
      } catch {
        return error.code != .notFound
      }
    }
  }

  /// Removes the entries in subdirectories one by one.
  ///
  /// - Throws: The first error, after the other entries were removed.
  func removeEntries(inSubdirectories numbers: [Int]) throws(StorageError) {
    var failure: StorageError?
    for number in numbers {
      do throws(StorageError) {
        let fileNames = try fileNames(inSubdirectory: number)
        if fileNames.isEmpty {
          try unlinkIfLink(EntryName.directoryName(number))
          try requireOwn(number)
        }
        for fileName in fileNames {
          guard let name = entryName(fileName, inSubdirectory: number) else { continue }
          // A sidecar goes with its payload.
          if fileNames.contains(Sidecar.payloadName(of: fileName) ?? "") { continue }
          do throws(StorageError) {
            let entry = try lock(name, timeout: timeout)
            defer { entry.unlock() }
            try entry.remove()
          } catch {
            failure = failure ?? error
          }
        }
      } catch {
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }

  /// A link in place of a subdirectory leads to files that must stay, and would be read as entries.
  private func unlinkIfLink(_ name: String) throws(StorageError) {
    let status = try FileSystem.status(name, in: directory, followsLinks: false)
    if status?.isSymbolicLink == true { try FileSystem.unlink(name, in: directory) }
  }

  /// Deletes the entries of a subdirectory that was renamed, and puts other files back.
  func deleteTrash(_ trash: String, ofSubdirectory number: Int) throws(StorageError) {
    // A writer that had found the subdirectory under its old name may create another file in it.
    for _ in 0..<10 {
      var foreignNames: [String] = []
      do throws(StorageError) {
        foreignNames = try deleteEntries(inTrash: trash, number)
      } catch  where error.code == .notDirectory || error.code == .symbolicLink {
        return try unlinkIfLink(trash)
      } catch  where error.code == .notFound {
        return  // another process has deleted it
      }
      if !foreignNames.isEmpty { try putBack(foreignNames, fromTrash: trash, number) }
      let path = ConfinedPath(base: directory.path).appending(trash)
      if try path.removeEmptyDirectory() { return }
    }
    throw StorageError(
      .misuse, operation: "rmdir", path: directory.path(of: trash),
      reason: "it contains files that the cache has not made",
      remedy: "Move them to another directory.")
  }

  /// Returns the names that are not the cache's.
  private func deleteEntries(
    inTrash trash: String, _ number: Int
  ) throws(StorageError) -> [String] {
    var foreignNames: [String] = []
    try FileSystem.scan(trash, in: directory, followsLinks: false) { entry throws(StorageError) in
      guard let name = entry.name else { return }
      let isOurs =
        entryName(name, inSubdirectory: number) != nil || Self.token(ofTemporary: name) != nil
      if isOurs, try entry.kind() != .directory {
        try entry.unlink()
      } else {
        foreignNames.append(name)
      }
    }
    return foreignNames
  }

  private func putBack(
    _ names: [String], fromTrash trash: String, _ number: Int
  ) throws(StorageError) {
    try makeSubdirectory(number)
    let subdirectory = try DirectoryHandle(EntryName.directoryName(number), in: directory)
    for name in names {
      // A file that has the name by now is kept, and so is this one.
      if try FileSystem.status(name, in: subdirectory, followsLinks: false) != nil { continue }
      _ = try FileSystem.create(
        "\(trash)/\(name)", as: "\(EntryName.directoryName(number))/\(name)", in: directory)
    }
  }

  /// The entry that a file of this name belongs to; nil for a file that is not the cache's.
  private func entryName(_ fileName: String, inSubdirectory number: Int) -> EntryName? {
    let name = EntryName(fileName: Sidecar.payloadName(of: fileName) ?? fileName)
    return name?.directory == number ? name : nil
  }
}
