/// The positions of keys in a list, found byte by byte.
///
/// Of no generic type, so that its code is not compiled for each type of value.
///
/// A look-up counts no references, so that threads which look up the same key do not write to the
/// same memory.
struct KeyIndex: Sendable {
  private struct Entry {
    let hash: UInt64
    /// Where the key is in `bytes`.
    var start: Int
    let count: Int

    var range: Range<Int> { start..<start + count }
  }

  /// Open addressing: 0 is free, n refers to `entries[n - 1]`. The count is a power of two.
  private var buckets: [UInt32] = [0, 0, 0, 0, 0, 0, 0, 0]
  private var entries: [Entry] = []
  /// The keys of all entries in UTF-8, and of removed ones.
  private(set) var bytes: [UInt8] = []
  private var removedByteCount = 0
  /// A copy, because each access to a lazy global costs a call.
  private let seed = hashSeed

  /// Where the key at a position is in ``bytes``.
  func range(at position: Int) -> Range<Int> { entries[position].range }

  func key(at position: Int) -> String {
    String(decoding: bytes[entries[position].range], as: UTF8.self)
  }

  /// Runs `body` with the bytes of a key.
  @inline(__always)
  static func withBytes<R>(of key: String, _ body: (UnsafeRawBufferPointer) -> R) -> R {
    key.utf8.withContiguousStorageIfAvailable { body(UnsafeRawBufferPointer($0)) }
      ?? Array(key.utf8).withUnsafeBytes(body)
  }

  @inline(__always)
  private func hash(_ key: UnsafeRawBufferPointer) -> UInt64 {
    Checksum.sum(key, seed: seed)
  }

  /// The bucket that `key` has or would get, and its position if it has one.
  @inline(__always)
  private func find(
    _ key: UnsafeRawBufferPointer, _ hash: UInt64
  ) -> (bucket: Int, position: Int?) {
    let mask = buckets.count &- 1
    var bucket = Int(truncatingIfNeeded: hash) & mask
    while true {
      let number = buckets[bucket]
      if number == 0 { return (bucket, nil) }
      let position = Int(number) &- 1
      if entries[position].hash == hash, entries[position].count == key.count,
        isKey(key, at: entries[position].start)
      {
        return (bucket, position)
      }
      bucket = (bucket &+ 1) & mask
    }
  }

  @inline(__always)
  private func isKey(_ key: UnsafeRawBufferPointer, at start: Int) -> Bool {
    bytes.withUnsafeBytes { bytes in
      let known = UnsafeRawBufferPointer(rebasing: bytes[start..<start + key.count])
      return key.isPrefix(of: known)
    }
  }

  /// The position of a key; nil if it has none.
  @inline(never)
  func position(of key: String) -> Int? { Self.withBytes(of: key) { position(of: $0) } }

  /// The same, inlined for the reads that must be fast.
  @inline(__always)
  func position(of key: UnsafeRawBufferPointer) -> Int? { find(key, hash(key)).position }

  /// The position of a key, which is added at the end if it has none.
  @inline(never)
  mutating func insert(_ key: String) -> Int {
    let position = Self.withBytes(of: key) { key -> Int in
      let hash = hash(key)
      let (bucket, position) = find(key, hash)
      if let position { return position }
      entries.append(Entry(hash: hash, start: bytes.count, count: key.count))
      bytes.append(contentsOf: key)
      buckets[bucket] = UInt32(entries.count)
      return entries.count - 1
    }
    if entries.count * 2 > buckets.count { grow() }
    return position
  }

  /// Removes a key; the last one takes its position.
  ///
  /// - Returns: The position that it had.
  @inline(never)
  mutating func remove(_ key: String) -> Int? {
    let (bucket, position) = Self.withBytes(of: key) { find($0, hash($0)) }
    guard let position else { return nil }
    let count = entries[position].count
    vacate(bucket)
    let last = entries.count - 1
    if position != last {
      buckets[bucketOf(last)] = UInt32(position + 1)
      entries[position] = entries[last]
    }
    entries.removeLast()
    removedByteCount += count
    if removedByteCount > bytes.count / 2 { dropRemovedKeys() }
    return position
  }

  private func bucketOf(_ position: Int) -> Int {
    let mask = buckets.count - 1
    var bucket = Int(truncatingIfNeeded: entries[position].hash) & mask
    while Int(buckets[bucket]) != position + 1 { bucket = (bucket + 1) & mask }
    return bucket
  }

  private mutating func dropRemovedKeys() {
    var kept: [UInt8] = []
    kept.reserveCapacity(bytes.count - removedByteCount)
    for position in entries.indices {
      let range = entries[position].range
      entries[position].start = kept.count
      kept.append(contentsOf: bytes[range])
    }
    bytes = kept
    removedByteCount = 0
  }

  /// Frees a bucket and closes the gap in its probe sequence (Knuth, TAOCP 6.4, algorithm R).
  private mutating func vacate(_ bucket: Int) {
    let mask = buckets.count - 1
    var gap = bucket
    var next = (bucket + 1) & mask
    while buckets[next] != 0 {
      let home = Int(truncatingIfNeeded: entries[Int(buckets[next]) - 1].hash) & mask
      if (next &- home) & mask >= (next &- gap) & mask {
        buckets[gap] = buckets[next]
        gap = next
      }
      next = (next + 1) & mask
    }
    buckets[gap] = 0
  }

  private mutating func grow() {
    let mask = buckets.count * 4 - 1
    buckets = [UInt32](repeating: 0, count: mask + 1)
    for (position, entry) in entries.enumerated() {
      var bucket = Int(truncatingIfNeeded: entry.hash) & mask
      while buckets[bucket] != 0 { bucket = (bucket + 1) & mask }
      buckets[bucket] = UInt32(position + 1)
    }
  }
}

private let hashSeed = UInt64.random(in: .min ... .max)
