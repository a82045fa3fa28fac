/// A file that is being written to a ``Folder``. It is removed if it is released before
/// ``finish(durable:)``.
///
/// Unchecked because its state is not guarded: its only caller waits for each call to return before
/// it makes the next.
final class NewFile: @unchecked Sendable {
  private var temporary: TemporaryFile
  private let directory: DirectoryHandle
  private let name: String
  /// Whether an existing file of that name is replaced.
  private let replaces: Bool
  /// The mode that the file still needs if it replaces none; nil if it has that mode.
  private let mode: UInt32?
  /// Whether it has the attributes of another file.
  private var hasAttributes = false
  /// The number of bytes written so far.
  private(set) var count = 0

  /// - Parameter mode: The mode of the file, unless it replaces one.
  /// - Throws: A ``StorageError`` of code `alreadyExists` if something has the name already and may
  ///   not be replaced, of code `accessDenied` if a symbolic link has it, and of code `misuse` if a
  ///   socket has it.
  init(
    _ name: String, in directory: DirectoryHandle, mode: UInt32, replaces: Bool = true
  ) throws(StorageError) {
    self.directory = directory
    self.name = name
    self.replaces = replaces
    let old = try FileSystem.status(name, in: directory, followsLinks: false)
    // Checked again at the end. This saves the work if the answer is known now.
    if !replaces, old != nil { throw Self.alreadyExists(name, in: directory) }
    try Folder.requireReplaceable(old, at: directory.path(of: name))
    self.mode = old == nil ? nil : mode
    temporary = try TemporaryFile.make(
      at: TemporaryFile.makeName(), for: name, in: directory, mode: old == nil ? mode : 0o600)
    AbandonedFiles.markInUse(temporary.file.descriptor, temporary.file.path)
  }

  /// Prepares for code of the program that runs between the calls, and may close all descriptors.
  func keep() throws(StorageError) {
    _ = try temporary.file.keep()
    _ = try directory.keep()
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    try requireOpen()
    try temporary.write(bytes)
    count += bytes.count
  }

  private func requireOpen() throws(StorageError) {
    if !temporary.file.isOpen || !directory.isOpen {
      throw .closed("save", directory.path(of: name))
    }
  }

  private static func alreadyExists(_ name: String, in directory: DirectoryHandle) -> StorageError {
    StorageError(
      .alreadyExists, operation: "save", path: directory.path(of: name),
      reason: "something has this name already",
      remedy: "Choose another name, or delete what is there.")
  }

  /// Appends the contents of another file, and shares them if the file system can.
  func append(
    contentsOf source: File, _ progress: CopyProgress? = nil
  ) throws(StorageError) {
    if count == 0, temporary.file.clone(from: source) {
      try progress?.add(source.status().size)
      return
    }
    try Folder.requireFreeSpace(source.status().size, at: directory.path)
    let size = 1 << 20
    var position = 0
    while true {
      let bytes = try source.read(from: position, count: size)
      try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try append(bytes) }
      try progress?.add(bytes.count)
      if bytes.count < size { return }
      position += size
    }
  }

  /// Copies the permissions and the times of the file that this one is a copy of.
  func copyAttributes(of original: FileStatus, at path: String) throws(StorageError) {
    // What root creates in the directory of another user belongs to that user.
    let isForeign = directory.foreignOwner.map { $0 != original.owner } ?? false
    try temporary.file.takePermissions(of: original, at: path, keepsOwner: isForeign)
    try temporary.file.setTimes(accessed: original.accessed, modified: original.modified)
    hasAttributes = true
  }

  /// Gives the file its final name.
  ///
  /// - Throws: A ``StorageError`` of code `alreadyExists` if something has the name already and may
  ///   not be replaced.
  func finish(durable: Bool) throws(StorageError) {
    try requireOpen()
    if durable { try temporary.file.synchronize() }
    if replaces {
      if !hasAttributes { try setPermissions() }
      try temporary.moveToDestination()
    } else if try !temporary.claimDestination() {
      throw Self.alreadyExists(name, in: directory)
    }
    if durable { try directory.synchronize() }
  }

  /// Late, because another program may change the permissions of the file that this one replaces.
  private func setPermissions() throws(StorageError) {
    let path = directory.path(of: name)
    let old = try FileSystem.status(name, in: directory, followsLinks: false)
    try Folder.requireReplaceable(old, at: path)
    if let old, old.isRegularFile {
      try temporary.file.takePermissions(of: old, at: path)
    } else if let mode {
      try temporary.file.setMode(mode)
    }
  }

  /// Removes the file now unless it is finished. Other threads may hold the last reference for a
  /// moment longer.
  func discard() { temporary.discard() }
}
