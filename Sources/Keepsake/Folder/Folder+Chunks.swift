extension Folder {
  /// Saves what a sequence of chunks yields, such as a download, once it has ended.
  ///
  /// ```swift
  /// try await Folder.documents.save(chunks: body, as: "film.mp4", total: length) { done, total in
  ///   print(ByteCount(done), "of", ByteCount(total ?? 0))
  /// }
  /// ```
  ///
  /// The bytes never are in memory as a whole. Until the end the old file stays; when the sequence
  /// throws or the task is cancelled nothing is left behind. Files are written on a queue of their
  /// own, so that the caller's thread does not wait for the disk.
  ///
  /// - Parameters:
  ///   - chunks: Pieces of any size, such as `Data` or `[UInt8]`. It must throw if it ends early.
  ///   - path: The name of the file; one of that name is replaced.
  ///   - total: The bytes to expect, if they are known: whether there is room is found out first.
  ///   - isolation: The caller's, where `progress` is called.
  ///   - progress: Called after each chunk with the bytes so far and `total`.
  /// - Throws: What the sequence throws, `CancellationError`, or a ``StorageError``.
  public func save<Chunks: AsyncSequence>(
    chunks: Chunks, as path: String, total: Int? = nil,
    isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let file = try await BlockingWork.run {
      try during("save") { () throws(StorageError) in
        let site = try fileTarget(path)
        if let total { try requireFreeSpace(total) }
        return try newFile(site)
      }
    }
    do {
      var iterator = chunks.makeAsyncIterator()
      while let chunk = try await iterator.next(isolation: isolation) {
        let bytes = Array(chunk)
        try await BlockingWork.run {
          try during("save") { () throws(StorageError) in
            try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
              try file.append(bytes)
            }
          }
        }
        progress(file.count, total)
      }
      try await BlockingWork.run {
        try during("save") { () throws(StorageError) in try file.finish(durable: isDurable) }
      }
    } catch {
      file.giveUp()
      throw error
    }
  }
}
