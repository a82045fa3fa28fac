/// Writes an entry of a file cache in pieces, to a temporary file.
///
/// `@unchecked Sendable` because its state is not locked: ``CacheWriter`` requires that calls do
/// not overlap.
package final class FileEntryWriter: CacheWriter, @unchecked Sendable {
  private let files: FileCache
  /// Keeps sweeps from removing the temporary file, which has the token of this open cache.
  private var cache: OpenCache
  private let name: EntryName
  private let key: String
  private var temporary: TemporaryFile
  private var checksum = StreamChecksum()
  package private(set) var count = 0

  init(
    _ files: FileCache, _ cache: OpenCache, _ key: String
  ) throws(StorageError) {
    self.files = files
    self.cache = cache
    self.key = key
    name = try EntryName(key: key, rules: cache.rules)
    // Files of killed writers are large, and a program that is killed here each time must not fill
    // the disk before the daily sweep. One that cannot be removed is left to it.
    let number = name.directory
    if cache.cleanedDirectories.withLock({ $0.insert(number).inserted }) {
      try? cache.removeAbandonedFiles(
        cache.fileNames(inSubdirectory: number), inSubdirectory: number)
    }
    temporary = try cache.makeTemporary(for: name)
    // Code of the program runs between the calls, and may close all descriptors.
    _ = try temporary.file.keep()
  }

  private func requireOpen() throws(StorageError) {
    if !temporary.file.isOpen { throw .closed("set", cache.directory.path(of: name.path)) }
  }

  package func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    // Checked with each piece, because the rest may not fit on the disk.
    try files.requireSize(count + bytes.count, key, cache)
    try requireOpen()
    try temporary.write(bytes)
    checksum.update(bytes)
    count += bytes.count
  }

  package func append(contentsOf source: File) throws(StorageError) {
    // Sum the clone, because the source may have changed in the meantime.
    let isCloned = count == 0 && temporary.file.clone(from: source)
    let file = isCloned ? temporary.file : source
    try file.readInPieces { (bytes) throws(StorageError) in
      if !isCloned { return try append(bytes) }
      try files.requireSize(count + bytes.count, key, cache)
      checksum.update(bytes)
      count += bytes.count
    }
  }

  /// All bytes so far.
  package func contents() throws(StorageError) -> [UInt8] {
    try requireOpen()
    return try temporary.file.read(from: 0, count: count)
  }

  package func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError) {
    try requireOpen()
    let summary = PayloadSummary(kind: .data, size: count, checksum: checksum.value)
    // Opened again, because the cache may have been emptied since the writer was made.
    let cache = try files.withOpenCacheForWriting { cache throws(StorageError) in
      if self.cache.directory.isOpen, cache.hasSameDirectory(as: self.cache) {
        do throws(StorageError) {
          try cache.publish(&temporary, summary, as: name, key, options, hook: hook)
          return cache
        } catch  where error.code == .notFound {}
      }
      try copyTemporary(summary, to: cache)
      try cache.publish(&temporary, summary, as: name, key, options, hook: hook)
      return cache
    }
    files.maintain(cache, added: count)
  }

  /// Writes the pieces again: the temporary file was deleted with its subdirectory, but is open.
  private func copyTemporary(
    _ summary: PayloadSummary, to cache: OpenCache
  ) throws(StorageError) {
    var old = try cache.makeTemporary(for: name)
    swap(&temporary, &old)
    self.cache = cache
    count = 0
    checksum = StreamChecksum()
    try append(contentsOf: old.file)
    guard count == summary.size, checksum.value == summary.checksum else {
      throw StorageError.prematureEnd(cache.directory.path(of: name.path))
    }
  }
}
