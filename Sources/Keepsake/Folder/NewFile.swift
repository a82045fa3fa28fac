/// A file on its way into a ``Folder``; given up when it is let go before it is finished.
///
/// Unchecked because its state is not guarded: its one caller waits for each call before the next.
final class NewFile: @unchecked Sendable {
  private var temporary: TemporaryFile
  private let directory: DirectoryHandle
  private(set) var count = 0

  init(_ name: String, in directory: DirectoryHandle, mode: UInt32) throws(StorageError) {
    self.directory = directory
    temporary = try TemporaryFile.make(
      at: AbandonedFiles.newName(), for: name, in: directory, mode: mode)
    AbandonedFiles.mark(temporary.file.descriptor, temporary.file.path)
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    if let failure = temporary.file.write(bytes).failure { throw failure }
    count += bytes.count
  }

  /// Takes all that is in another file; where the file system can, the two share it.
  func append(contentsOf source: File) throws(StorageError) {
    if count == 0, temporary.file.clone(from: source) { return }
    try Folder.requireFreeSpace(source.status().size, at: directory.path)
    let size = 1 << 20
    var position = 0
    while true {
      let bytes = try source.read(from: position, count: size)
      try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try append(bytes) }
      if bytes.count < size { return }
      position += size
    }
  }

  /// Makes it look like the one that it stands in for.
  func inherit(_ status: FileStatus) throws(StorageError) {
    // Without the bits that hand on the rights of its owner, who may be another one now.
    try temporary.file.setMode(status.mode & 0o777)
    try temporary.file.setTimes(accessed: status.accessed, modified: status.modified)
  }

  /// Gives it its name, in place of a file that has it.
  func finish(durable: Bool) throws(StorageError) {
    if durable { try temporary.file.synchronize() }
    try temporary.moveToDestination()
    if durable { try directory.synchronize() }
  }

  /// Removes it now, unless it is finished: other threads may be about to let it go.
  func giveUp() { temporary.discard() }
}
