public import FoundationEssentials

extension DiskCache.Store {
  /// Runs `body` with this store on a thread of the library, so that the caller's thread does not
  /// wait for the disk.
  ///
  /// ```swift
  /// let names = try await DiskCache.shared.perform { store in try store.keys() }
  /// ```
  ///
  /// See ``StorageSystem/perform(_:)``.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (DiskCache.Store) throws -> sending R
  ) async throws -> sending R {
    // The closure is transferred rather than shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }

  // MARK: Large values

  /// Stores the contents of a file; where the file system supports it, the two share their blocks
  /// until one of them changes.
  ///
  /// The contents are never held in memory whole.
  ///
  /// - Throws: ``StorageError`` if the file cannot be read or the value was not stored. The key
  ///   then has its old value or no entry; if only updating ``totalSize`` failed, it has the new
  ///   value.
  public func set(
    contentsOf file: URL, forKey key: String, expiry: DiskCache.Expiry = .never,
    durable: Bool = false
  ) throws(StorageError) {
    try withContext("set", key) { () throws(StorageError) in
      let source = try File(DirectoryFinder.path(of: file, operation: "set"), .read)
      if try source.status().isDirectory {
        throw StorageError(
          .isDirectory, operation: "set", path: source.path, reason: "the source is a directory",
          remedy: "Store each of its files.")
      }
      // Nothing need be copied for an entry that has expired already.
      if WriteOptions(expiry, isDurable: durable) == nil { return try remove(key) }
      let writer = try engine.startWriting(key)
      try writer.append(contentsOf: source)
      try finish(writer, key, expiry, durable: durable)
    }
  }

  /// Stores what was written in pieces.
  private func finish(
    _ writer: any CacheWriter, _ key: String, _ expiry: DiskCache.Expiry, durable: Bool
  ) throws(StorageError) {
    let options = WriteOptions(expiry, isDurable: durable)
    guard let options else { return try remove(key) }
    try writer.finish(options) { commit throws(StorageError) in
      try invalidateFetch(of: key, after: commit)
    }
  }

  /// Stores the chunks of a sequence, such as a download, once the sequence has ended.
  ///
  /// ```swift
  /// try await DiskCache.shared.set(chunks: body, forKey: "film", total: length) { done, total in
  ///   print(done, "of", total ?? 0)
  /// }
  /// ```
  ///
  /// The value is never held in memory whole. The key keeps its old value until the sequence has
  /// ended; if the sequence throws or the task is cancelled, nothing is left behind.
  ///
  /// Chunks are pieces of any size, such as `Data` or `[UInt8]`. `progress` is called after each
  /// chunk, in the caller's isolation, with the number of bytes so far and with `total`.
  ///
  /// - Throws: What the sequence throws, `CancellationError`, or what
  ///   ``set(contentsOf:forKey:expiry:durable:)`` throws.
  public func set<Chunks: AsyncSequence>(
    chunks: Chunks, forKey key: String, expiry: DiskCache.Expiry = .never, durable: Bool = false,
    total: Int? = nil, isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let writer = try await perform { store in
      try store.withContext("set", key) { () throws(StorageError) in
        if let total {
          try CacheSizeLimit.check(total, within: store.sizeLimit, path: store.directoryPath)
        }
        return try store.engine.startWriting(key)
      }
    }
    var iterator = chunks.makeAsyncIterator()
    while let chunk = try await iterator.next(isolation: isolation) {
      let bytes = Array(chunk)
      try await perform { store in
        try store.withContext("set", key) { () throws(StorageError) in
          try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
            try writer.append(bytes)
          }
        }
      }
      progress(writer.count, total)
    }
    try await perform { store in
      try store.withContext("set", key) { () throws(StorageError) in
        try store.finish(writer, key, expiry, durable: durable)
      }
    }
  }
}
