/// An open journal, whose inode is also its lock.
///
/// Its header is mapped, so reading the word costs no system call. If another program truncates the
/// file, the mapping turns into zeros instead of ending the process, and ``isLost`` tells so.
final class JournalHandle: Sendable {
  let file: File
  /// The status of the file when it was opened, which identifies it.
  let status: FileStatus
  private let header: SharedMapping
  /// Whether words are stored through the mapping.
  private let storesWord: Bool

  init(_ file: File) throws(StorageError) {
    let status = try file.keep()
    if status.isDirectory { throw StorageError.directoryInTheWay(file.path) }
    // A pipe would look like an empty file.
    guard status.isRegularFile else {
      throw StorageError(
        .damaged, operation: "open", path: file.path,
        reason: "the settings file is not a regular file",
        remedy: "Move the file away; it was left as it is.")
    }
    storesWord = file.isWritable && SharedMapping.keepsBlocks(file)
    header = try SharedMapping(file, size: JournalFormat.headerSize, isWritable: storesWord)
    self.file = file
    self.status = status
  }

  /// Opens the journal for reading and, if that is permitted, for writing; nil if it is missing.
  static func open(_ path: String, forWriting: Bool) throws(StorageError) -> JournalHandle? {
    try FileSystem.requireTrustedLinks(path)
    let file: File
    do throws(StorageError) {
      file = try File(path, forWriting ? .readWrite : .read)
    } catch  where error.code == .notFound {
      return nil
    } catch  where error.code == .accessDenied && forWriting {
      return try open(path, forWriting: false)
    }
    return try JournalHandle(file)
  }

  // MARK: The word

  /// The bits of the word. It can be read while the handle is referenced.
  var mappedWord: SharedMapping.Word { header.word(at: JournalWord.offset) }

  @inline(__always)
  var word: JournalWord { JournalWord(bits: mappedWord.value) }

  /// Whether another program has truncated the file, so that it has to be opened again.
  var isLost: Bool { header.word(at: 0).value == 0 }

  /// Whether the file with that status can be used through this handle.
  func leads(to status: FileStatus) -> Bool {
    status.isSameFile(as: self.status) && !isLost && file.isOpen
  }

  /// Tells all processes that the file is valid up to another byte, or replaced. The caller holds
  /// the lock.
  func publish(_ word: JournalWord) throws(StorageError) {
    try withUnsafeBytes(of: word.bits) { bytes throws(StorageError) in
      guard storesWord else {
        guard file.isWritable else { throw .notPermitted(file.path) }
        return try file.overwrite(bytes.bytes, at: JournalWord.offset, as: .publish)
      }
      // For a page that was written before, a store needs no new block.
      try systemCall(
        .publish, file.path, on: file.descriptor, bytes: bytes, offset: JournalWord.offset
      ) {
        mappedWord.store(word.bits)
        return bytes.count
      }.get(.publish, file.path)
      if !isLost { return }
      // On a full disk, a store may fail if the file shares its blocks with a copy. If another
      // program has truncated the file, there is nothing to publish.
      guard try file.status().size >= JournalFormat.headerSize else { return }
      try file.overwrite(bytes.bytes, at: JournalWord.offset, as: .publish)
    }
  }

  // MARK: Space

  /// How many bytes stay allocated beyond the end, so that removals work on a full disk.
  static let reservedSize = 8 << 10
  /// How many bytes are allocated at once, or each set would cost a call.
  private static let reservedAtOnce = 16 << 10

  /// Allocates space beyond `end`; returns up to where, which is the largest end of a journal if
  /// the file system cannot.
  func reserve(beyond end: Int, from start: Int) throws(StorageError) -> Int {
    do throws(StorageError) {
      let reserved = end + Self.reservedAtOnce
      return try file.reserve(from: start, to: reserved) ? reserved : JournalWord.largestEnd
    } catch {
      let reserved = end + Self.reservedSize
      return try file.reserve(from: start, to: reserved) ? reserved : JournalWord.largestEnd
    }
  }
}
