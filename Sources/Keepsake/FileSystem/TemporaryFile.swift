/// A new file in the directory of its destination. It is removed unless it is moved there or left.
struct TemporaryFile: ~Copyable {
  let file: File
  private let path: String
  private let destination: String
  /// What both paths are relative to, unless they are absolute.
  private let directory: DirectoryHandle?
  /// Whether the file at the path, if there is one, stays when this value ends.
  private(set) var isKept = false

  private init(
    _ file: File, at path: String, for destination: String, in directory: DirectoryHandle?
  ) {
    self.file = file
    self.path = path
    self.destination = destination
    self.directory = directory
  }

  /// Creates a temporary file with a name derived from the name of `sibling`.
  ///
  /// - Parameter destination: The path to move the file to, if it is not `sibling`.
  @inline(never)
  static func make(
    beside sibling: String, for destination: String? = nil, mode: UInt32
  ) throws(StorageError) -> TemporaryFile {
    let token = String(UInt64.random(in: .min ... .max), radix: 16)
    let path = "\(FileSystem.parent(of: sibling))/.\(FileSystem.name(of: sibling)).\(token).tmp"
    return try make(at: path, for: destination ?? sibling, mode: mode)
  }

  /// A name that the library reserves. See ``AbandonedFiles``.
  static func makeName() -> String {
    ".keepsake-" + String(UInt64.random(in: .min ... .max), radix: 16) + ".tmp"
  }

  @inline(never)
  static func make(
    at path: String, for destination: String, in directory: DirectoryHandle? = nil, mode: UInt32
  ) throws(StorageError) -> TemporaryFile {
    let file: File
    do throws(StorageError) {
      file = try File(path, in: directory, .create, mode: mode)
    } catch {
      throw error.at(directory.path(of: destination))
    }
    let temporary = TemporaryFile(file, at: path, for: destination, in: directory)
    // The umask rarely restricts the user, but often restricts other users.
    if mode & 0o077 != 0 { try temporary.file.setMode(mode) }
    return temporary
  }

  /// Writes all of `bytes` at the current position. Errors name the destination, which the caller
  /// knows.
  func write(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    if let failure = file.write(bytes).failure { throw failure.at(directory.path(of: destination)) }
  }

  /// Gives the file its final name. An existing file of that name is replaced.
  mutating func moveToDestination() throws(StorageError) {
    try FileSystem.rename(path, to: destination, in: directory)
    isKept = true
  }

  /// Gives the file another name than its final one, under which it stays.
  consuming func leave(at otherPath: String) throws(StorageError) {
    try FileSystem.rename(path, to: otherPath, in: directory)
    isKept = true
  }

  /// Gives the file its final name; false if something has that name already. See
  /// ``FileSystem/create(_:as:in:)``.
  mutating func claimDestination() throws(StorageError) -> Bool {
    isKept = try FileSystem.create(path, as: destination, in: directory)
    return isKept
  }

  /// Gives the file its final name by exchanging names with the file that has it.
  ///
  /// Afterwards the old file has the temporary path, and is removed with this value. A rename over
  /// an existing file would make ext4 write the new one to disk at once.
  ///
  /// - Returns: The path of the old file; nil if there is none, or if the file system cannot
  ///   exchange names.
  @discardableResult
  mutating func exchangeWithDestination() throws(StorageError) -> String? {
    if try FileSystem.exchange(path, with: destination, in: directory) { return path }
    let isNew = try FileSystem.renameExclusively(path, to: destination, in: directory)
    isKept = isNew == true
    // A program may have deleted the old file, to restore it the next moment.
    if isNew == false, try FileSystem.exchange(path, with: destination, in: directory) {
      return path
    }
    if !isKept { try moveToDestination() }
    return nil
  }

  /// Removes the file that had the final name before an exchange.
  ///
  /// - Throws: A ``StorageError`` of code `isDirectory` if that was a directory, which has its name
  ///   again.
  mutating func removeReplaced() throws(StorageError) {
    if isKept { return }
    do throws(StorageError) {
      try FileSystem.unlink(path, in: directory)
      isKept = true
    } catch  where error.code == .isDirectory {
      _ = try FileSystem.exchange(path, with: destination, in: directory)
      throw StorageError(
        .isDirectory, operation: "rename", path: directory.path(of: destination),
        reason: "a directory is in the way", remedy: "Move the directory away.")
    } catch {
      // A file that cannot be removed is left to a later sweep.
      isKept = true
    }
  }

  /// Leaves what has the temporary path, which may be another program's file.
  mutating func keep() { isKept = true }

  /// Removes the file now, unless it was moved.
  mutating func discard() {
    // A file that cannot be removed is left to a later sweep.
    if !isKept { try? FileSystem.unlink(path, in: directory) }
    isKept = true
  }

  deinit {
    if !isKept { try? FileSystem.unlink(path, in: directory) }
  }
}
