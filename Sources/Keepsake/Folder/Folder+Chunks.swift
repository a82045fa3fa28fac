extension Folder {
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
  /// They are written on a separate queue, so that the caller's thread does not wait for the disk.
  ///
  /// - Parameters:
  ///   - chunks: Pieces of any size, such as `Data` or `[UInt8]`. The sequence must throw if it
  ///     ends early.
  ///   - path: The path of the file. An existing file is replaced.
  ///   - total: The expected number of bytes, if it is known, to check the free space first.
  ///   - isolation: The isolation in which `progress` is called, by default the caller's.
  ///   - progress: Called after each chunk with the number of bytes so far and `total`.
  /// - Throws: The error of the sequence, `CancellationError`, or a ``StorageError``.
  public func save<Chunks: AsyncSequence>(
    chunks: Chunks, as path: String, total: Int? = nil,
    isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let file = try await BlockingWork.run {
      try perform("save") { () throws(StorageError) in
        let target = try targetFilePath(path)
        if let total { try requireFreeSpace(total) }
        return try makeFile(target)
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
