enum CacheSizeLimit {
  /// Throws for an entry that would have to be evicted at once.
  static func check(_ size: Int, within limit: Int?, path: String?) throws(StorageError) {
    guard let limit, size > limit else { return }
    throw StorageError(
      .misuse, operation: "set", path: path,
      reason: "the value takes \(size) bytes, more than the cache size limit of \(limit)",
      remedy: "Raise sizeLimit, or store a smaller value.")
  }

  /// The size in bytes down to which a cache evicts. It leaves room, so that not every set evicts.
  static func evictionTarget(of limit: Int) -> Int { limit / 10 * 9 }
}
