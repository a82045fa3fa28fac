/// A dictionary that compares its keys byte by byte.
///
/// `Dictionary` treats canonically equivalent strings as one key, hashes with SipHash and takes
/// twice as long per lookup. The seed is random per process, so that no one can prepare colliding
/// keys.
struct ByteKeyedDictionary<Value> {
  fileprivate struct Slot {
    let hash: UInt64
    let key: String
    var value: Value
  }

  private static var seed: UInt64 { hashSeed }

  /// Open addressing: 0 is a free bucket, n refers to `slots[n - 1]`. The count is a power of two.
  private var index: [UInt32] = [0, 0, 0, 0, 0, 0, 0, 0]
  private var slots: [Slot] = []

  var count: Int { slots.count }
  var keys: [String] { slots.map(\.key) }

  @inline(__always)
  private static func hash(_ key: String) -> UInt64 {
    key.utf8.withContiguousStorageIfAvailable { Checksum.sum(.init($0), seed: seed) }
      ?? Checksum.sum(Array(key.utf8))
  }

  /// The bucket that `key` has or would get, and its slot if there is one.
  @inline(__always)
  private func find(_ key: String, _ hash: UInt64) -> (bucket: Int, slot: Int?) {
    let mask = index.count &- 1
    var bucket = Int(truncatingIfNeeded: hash) & mask
    while true {
      let entry = index[bucket]
      if entry == 0 { return (bucket, nil) }
      let slot = Int(entry) &- 1
      // Equal strings with different bytes (NFC and NFD) have different hashes.
      if slots[slot].hash == hash, slots[slot].key == key,
        slots[slot].key.utf8.count == key.utf8.count
      {
        return (bucket, slot)
      }
      bucket = (bucket &+ 1) & mask
    }
  }

  subscript(key: String) -> Value? {
    @inline(__always)
    get { find(key, Self.hash(key)).slot.map { slots[$0].value } }
  }

  /// Passes the value of a key to `body` without copying it; nil if the key has none.
  @inline(__always)
  func withValue<R>(of key: String, _ body: (borrowing Value) -> R?) -> R? {
    guard let slot = find(key, Self.hash(key)).slot else { return nil }
    return body(slots[slot].value)
  }

  /// Stores `value` and returns the one it replaces.
  @discardableResult
  mutating func set(_ key: String, _ value: Value) -> Value? {
    let hash = Self.hash(key)
    let (bucket, slot) = find(key, hash)
    if let slot {
      let old = slots[slot].value
      slots[slot].value = value
      return old
    }
    slots.append(Slot(hash: hash, key: key, value: value))
    index[bucket] = UInt32(slots.count)
    if slots.count * 2 > index.count { grow() }
    return nil
  }

  /// Removes `key` and returns its value.
  @discardableResult
  mutating func remove(_ key: String) -> Value? {
    let (bucket, slot) = find(key, Self.hash(key))
    guard let slot else { return nil }
    let removed = slots[slot].value
    vacate(bucket)
    let last = slots.count - 1
    if slot != last {
      // Move the last slot into the gap.
      let moved = find(slots[last].key, slots[last].hash).bucket
      slots[slot] = slots[last]
      index[moved] = UInt32(slot + 1)
    }
    slots.removeLast()
    return removed
  }

  /// Frees a bucket and closes the gap in its probe sequence (Knuth, TAOCP 6.4, algorithm R).
  private mutating func vacate(_ bucket: Int) {
    let mask = index.count - 1
    var gap = bucket
    var next = (bucket + 1) & mask
    while index[next] != 0 {
      let home = Int(truncatingIfNeeded: slots[Int(index[next]) - 1].hash) & mask
      if (next &- home) & mask >= (next &- gap) & mask {
        index[gap] = index[next]
        gap = next
      }
      next = (next + 1) & mask
    }
    index[gap] = 0
  }

  private mutating func grow() {
    let mask = index.count * 4 - 1
    index = [UInt32](repeating: 0, count: mask + 1)
    for (position, slot) in slots.enumerated() {
      var bucket = Int(truncatingIfNeeded: slot.hash) & mask
      while index[bucket] != 0 { bucket = (bucket + 1) & mask }
      index[bucket] = UInt32(position + 1)
    }
  }

  /// Changes a value in place; false if there is none.
  @discardableResult
  mutating func modify(_ key: String, _ change: (inout Value) -> Void) -> Bool {
    guard let slot = find(key, Self.hash(key)).slot else { return false }
    change(&slots[slot].value)
    return true
  }

  /// All keys with their values.
  var elements: some Sequence<(key: String, value: Value)> {
    slots.lazy.map { ($0.key, $0.value) }
  }
}

extension ByteKeyedDictionary: Sendable where Value: Sendable {}
extension ByteKeyedDictionary.Slot: Sendable where Value: Sendable {}

private let hashSeed = UInt64.random(in: .min ... .max)

extension Checksum {
  fileprivate static func sum(_ bytes: [UInt8]) -> UInt64 {
    bytes.withUnsafeBytes { sum($0, seed: hashSeed) }
  }
}
