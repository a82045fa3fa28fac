/// A dictionary that compares its keys byte by byte.
///
/// `Dictionary` treats canonically equivalent strings as one key, hashes with SipHash and takes
/// twice as long per lookup. The seed is random per process, so that no one can prepare colliding
/// keys.
///
/// A look-up counts no references, so that threads which look up the same key do not write to the
/// same memory.
struct ByteKeyedDictionary<Value> {
  fileprivate struct Slot {
    let hash: UInt64
    /// Where the key is in `keyBytes`.
    var start: Int
    let count: Int
    var value: Value
  }

  /// Open addressing: 0 is a free bucket, n refers to `slots[n - 1]`. The count is a power of two.
  private var index: [UInt32] = [0, 0, 0, 0, 0, 0, 0, 0]
  private var slots: [Slot] = []
  /// The keys of all slots in UTF-8, and of removed ones.
  private var keyBytes: [UInt8] = []
  private var removedKeyBytes = 0
  /// A copy, because each access to a lazy global costs a call.
  private let seed = hashSeed

  /// Some of the keys at one moment, each with an element that belongs to it.
  ///
  /// Copying them takes little time, so that it can be done under a lock. Making strings of the
  /// keys takes longer.
  struct Copies<Element> {
    fileprivate var bytes: [UInt8] = []
    fileprivate var parts: [(range: Range<Int>, element: Element)] = []

    var keys: [String] { parts.map { String(decoding: bytes[$0.range], as: UTF8.self) } }

    var elements: [(key: String, element: Element)] {
      parts.map { (String(decoding: bytes[$0.range], as: UTF8.self), $0.element) }
    }
  }

  var count: Int { slots.count }
  var keys: [String] { copiedKeys.keys }
  var copiedKeys: Copies<Void> { copies { _ in () } }

  /// What `transform` makes of the values, with their keys; leaves out those for which it returns
  /// nil. Counts no references of the values.
  func copies<Element>(_ transform: (borrowing Value) -> Element?) -> Copies<Element> {
    var copies = Copies<Element>()
    for slot in slots.indices {
      guard let element = transform(slots[slot].value) else { continue }
      let start = slots[slot].start
      copies.parts.append((start..<start + slots[slot].count, element))
    }
    if !copies.parts.isEmpty { copies.bytes = keyBytes }
    return copies
  }

  private func key(of slot: Slot) -> String {
    String(decoding: keyBytes[slot.start..<slot.start + slot.count], as: UTF8.self)
  }

  /// Runs `body` with the bytes of a key.
  @inline(__always)
  private static func withBytes<R>(of key: String, _ body: (UnsafeRawBufferPointer) -> R) -> R {
    key.utf8.withContiguousStorageIfAvailable { body(UnsafeRawBufferPointer($0)) }
      ?? Array(key.utf8).withUnsafeBytes(body)
  }

  @inline(__always)
  private func hash(_ key: UnsafeRawBufferPointer) -> UInt64 {
    Checksum.sum(key, seed: seed)
  }

  /// The bucket that `key` has or would get, and its slot if there is one.
  @inline(__always)
  private func find(_ key: UnsafeRawBufferPointer, _ hash: UInt64) -> (bucket: Int, slot: Int?) {
    let mask = index.count &- 1
    var bucket = Int(truncatingIfNeeded: hash) & mask
    while true {
      let entry = index[bucket]
      if entry == 0 { return (bucket, nil) }
      let slot = Int(entry) &- 1
      if slots[slot].hash == hash, slots[slot].count == key.count,
        isKey(key, at: slots[slot].start)
      {
        return (bucket, slot)
      }
      bucket = (bucket &+ 1) & mask
    }
  }

  @inline(__always)
  private func isKey(_ key: UnsafeRawBufferPointer, at start: Int) -> Bool {
    keyBytes.withUnsafeBytes { bytes in
      let known = UnsafeRawBufferPointer(rebasing: bytes[start..<start + key.count])
      return key.isPrefix(of: known)
    }
  }

  @inline(__always)
  private func slot(of key: String) -> Int? {
    Self.withBytes(of: key) { find($0, hash($0)).slot }
  }

  subscript(key: String) -> Value? {
    @inline(never)
    get { slot(of: key).map { slots[$0].value } }
  }

  /// Passes the value of a key to `body` without copying it; nil if the key has none.
  @inline(__always)
  func withValue<R>(of key: String, _ body: (borrowing Value) -> R?) -> R? {
    guard let slot = slot(of: key) else { return nil }
    // The subscript of the array would also count references of the array.
    return slots.withUnsafeBufferPointer { body($0[slot].value) }
  }

  /// Stores `value` and returns the one it replaces.
  @inline(never)
  @discardableResult
  mutating func set(_ key: String, _ value: Value) -> Value? {
    let old = Self.withBytes(of: key) { key -> Value? in
      let hash = hash(key)
      let (bucket, slot) = find(key, hash)
      if let slot {
        let old = slots[slot].value
        slots[slot].value = value
        return old
      }
      slots.append(Slot(hash: hash, start: keyBytes.count, count: key.count, value: value))
      keyBytes.append(contentsOf: key)
      index[bucket] = UInt32(slots.count)
      return nil
    }
    if slots.count * 2 > index.count { grow() }
    return old
  }

  /// Removes `key` and returns its value.
  @inline(never)
  @discardableResult
  mutating func remove(_ key: String) -> Value? {
    let (bucket, slot) = Self.withBytes(of: key) { find($0, hash($0)) }
    guard let slot else { return nil }
    let removed = slots[slot]
    vacate(bucket)
    let last = slots.count - 1
    if slot != last {
      // Move the last slot into the gap.
      index[bucketOfSlot(last)] = UInt32(slot + 1)
      slots[slot] = slots[last]
    }
    slots.removeLast()
    removedKeyBytes += removed.count
    if removedKeyBytes > keyBytes.count / 2 { dropRemovedKeys() }
    return removed.value
  }

  private func bucketOfSlot(_ slot: Int) -> Int {
    let mask = index.count - 1
    var bucket = Int(truncatingIfNeeded: slots[slot].hash) & mask
    while Int(index[bucket]) != slot + 1 { bucket = (bucket + 1) & mask }
    return bucket
  }

  private mutating func dropRemovedKeys() {
    var kept: [UInt8] = []
    kept.reserveCapacity(keyBytes.count - removedKeyBytes)
    for slot in slots.indices {
      let start = slots[slot].start
      slots[slot].start = kept.count
      kept.append(contentsOf: keyBytes[start..<start + slots[slot].count])
    }
    keyBytes = kept
    removedKeyBytes = 0
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
  @inline(never)
  @discardableResult
  mutating func modify(_ key: String, _ change: (inout Value) -> Void) -> Bool {
    guard let slot = slot(of: key) else { return false }
    change(&slots[slot].value)
    return true
  }

  /// All keys with their values.
  var elements: some Sequence<(key: String, value: Value)> {
    slots.lazy.map { (key(of: $0), $0.value) }
  }
}

extension ByteKeyedDictionary: Sendable where Value: Sendable {}
extension ByteKeyedDictionary.Slot: Sendable where Value: Sendable {}
extension ByteKeyedDictionary.Copies: Sendable where Element: Sendable {}

private let hashSeed = UInt64.random(in: .min ... .max)
