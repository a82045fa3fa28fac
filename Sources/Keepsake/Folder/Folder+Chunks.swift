extension Folder {
  /// The bytes of a file in pieces, for files that should not be in memory whole.
  ///
  /// ```swift
  /// for try await piece in try Folder.documents.chunks(of: "film.mp4") { try await send(piece) }
  /// ```
  ///
  /// - Parameters:
  ///   - path: The path of the file.
  ///   - size: The size of a piece in bytes.
  ///   - range: The bytes to read; nil for all.
  /// - Throws: ``StorageError``, of code `notFound` if there is no file.
  public func chunks(
    of path: String, size: Int = 1 << 20, range: Range<Int>? = nil
  ) throws(StorageError) -> FileChunks {
    try perform("chunks", path) { path throws(StorageError) in
      let file = try File(path)
      let status = try file.keep()
      guard status.isRegularFile else { throw Self.notAFile(path.path) }
      return FileChunks(
        ChunkSource(contents: .file(file), size: status.size), range, size: size)
    }
  }

  /// Saves the chunks of an asynchronous sequence, such as a download, as a file.
  ///
  /// ```swift
  /// try await Folder.documents.save(chunks: body, as: "film.mp4", total: length) { done, total in
  ///   print(ByteCount(done), "of", ByteCount(total ?? 0))
  /// }
  /// ```
  ///
  /// The file appears when the sequence ends; until then the old file stays. If the sequence throws
  /// or the task is cancelled, nothing is left behind. The bytes are never held in memory whole.
  /// They are written on threads of the library, so that the caller's thread does not wait for the
  /// disk.
  ///
  /// If several threads and processes save a file of one name at the same time without
  /// `replacing`, exactly one succeeds.
  ///
  /// - Parameters:
  ///   - chunks: Pieces of any size, such as `Data` or `[UInt8]`. The sequence must throw if it
  ///     ends early.
  ///   - path: The path of the file.
  ///   - replacing: Whether an existing file is replaced.
  ///   - total: The expected number of bytes, if it is known, to check the free space first.
  ///   - isolation: The isolation in which `progress` is called, by default the caller's.
  ///   - progress: Called after each chunk with the number of bytes so far and `total`.
  /// - Throws: The error of the sequence, `CancellationError`, or a ``StorageError``. Without
  ///   `replacing`, one of code `alreadyExists` if something has that name: before the sequence is
  ///   read or, if it appears in the meantime, at the end.
  public func save<Chunks: AsyncSequence>(
    chunks: Chunks, as path: String, replacing: Bool = true, total: Int? = nil,
    isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let file = try await BlockingWork.run {
      try perform("save") { () throws(StorageError) in
        let target = try targetFilePath(path)
        if let total { try requireFreeSpace(total) }
        let file = try makeFile(target, replacing: replacing)
        try file.keep()
        return file
      }
    }
    do {
      var iterator = chunks.makeAsyncIterator()
      while let chunk = try await iterator.next(isolation: isolation) {
        let bytes = Array(chunk)
        try await BlockingWork.run {
          try perform("save") { () throws(StorageError) in
            try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
              try file.append(bytes)
            }
          }
        }
        progress(file.count, total)
      }
      try await BlockingWork.run {
        try perform("save") { () throws(StorageError) in try file.finish(durable: isDurable) }
      }
    } catch {
      file.discard()
      throw error
    }
  }
}
