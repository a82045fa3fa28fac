/// A hash table from keys to values that compares keys byte by byte.
///
/// `Dictionary` takes canonically equivalent strings for one key, hashes with SipHash and costs
/// twice as much per look-up. The seed is random per process, so that nobody can prepare keys that
/// collide.
struct ByteKeyedDictionary<Value> {
  fileprivate struct Slot {
    let hash: UInt64
    let key: String
    var value: Value
  }

  private static var seed: UInt64 { hashSeed }

  /// Open addressing: 0 is free, n is `slots[n - 1]`. Its count is a power of two.
  private var index: [UInt32] = [0, 0, 0, 0, 0, 0, 0, 0]
  private var slots: [Slot] = []

  var count: Int { slots.count }
  var keys: [String] { slots.map(\.key) }

  @inline(__always)
  private static func hash(_ key: String) -> UInt64 {
    key.utf8.withContiguousStorageIfAvailable { Checksum.sum(.init($0), seed: seed) }
      ?? Checksum.sum(Array(key.utf8))
  }

  /// The place in `index` where `key` is, or where it would go, and its slot if it has one.
  @inline(__always)
  private func find(_ key: String, _ hash: UInt64) -> (place: Int, slot: Int?) {
    let mask = index.count &- 1
    var place = Int(truncatingIfNeeded: hash) & mask
    while true {
      let entry = index[place]
      if entry == 0 { return (place, nil) }
      let slot = Int(entry) &- 1
      // Equal strings can differ in their bytes (NFC and NFD): those hash differently.
      if slots[slot].hash == hash, slots[slot].key == key,
        slots[slot].key.utf8.count == key.utf8.count
      {
        return (place, slot)
      }
      place = (place &+ 1) & mask
    }
  }

  subscript(key: String) -> Value? {
    @inline(__always)
    get { find(key, Self.hash(key)).slot.map { slots[$0].value } }
  }

  /// Stores `value` and returns the one it replaces.
  @discardableResult
  mutating func set(_ key: String, _ value: Value) -> Value? {
    let hash = Self.hash(key)
    let (place, slot) = find(key, hash)
    if let slot {
      let old = slots[slot].value
      slots[slot].value = value
      return old
    }
    slots.append(Slot(hash: hash, key: key, value: value))
    index[place] = UInt32(slots.count)
    if slots.count * 2 > index.count { grow() }
    return nil
  }

  /// Removes `key` and returns its value.
  @discardableResult
  mutating func remove(_ key: String) -> Value? {
    let (place, slot) = find(key, Self.hash(key))
    guard let slot else { return nil }
    let removed = slots[slot].value
    vacate(place)
    let last = slots.count - 1
    if slot != last {
      // The last slot moves into the gap: its index entry follows.
      let moved = find(slots[last].key, slots[last].hash).place
      slots[slot] = slots[last]
      index[moved] = UInt32(slot + 1)
    }
    slots.removeLast()
    return removed
  }

  /// Frees a place and closes the gap in its run (Knuth, TAOCP 6.4, algorithm R).
  private mutating func vacate(_ place: Int) {
    let mask = index.count - 1
    var gap = place
    var next = (place + 1) & mask
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
    for (number, slot) in slots.enumerated() {
      var place = Int(truncatingIfNeeded: slot.hash) & mask
      while index[place] != 0 { place = (place + 1) & mask }
      index[place] = UInt32(number + 1)
    }
  }

  /// Lets `change` alter a value in place; false when there is none.
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
