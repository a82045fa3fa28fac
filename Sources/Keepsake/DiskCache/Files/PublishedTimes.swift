internal import Synchronization

/// The payloads that this process published last, by their modification times.
///
/// The times are random, so a payload that has such a time is that one. Without them, each set of
/// an existing key would need another look at its payload. They take 8 KB for each open cache.
///
/// Unchecked because it holds a pointer, which never changes. Its memory is only accessed
/// atomically.
final class PublishedTimes: @unchecked Sendable {
  private static let setCount = 256
  /// The number of entries that fit in a set. With one, some of a few hundred entries would always
  /// displace each other.
  private static let setSize = 4
  /// 16 bits of the entry's hash, and below them the lowest 48 bits of the time; 0 if it is free.
  private let words: UnsafeMutablePointer<Atomic<UInt64>>

  init() {
    words = .allocate(capacity: Self.setCount * Self.setSize)
    for number in 0..<Self.setCount * Self.setSize { (words + number).initialize(to: Atomic(0)) }
  }

  deinit {
    words.deinitialize(count: Self.setCount * Self.setSize)
    words.deallocate()
  }

  /// The set of a name.
  private func words(of name: EntryName) -> UnsafeMutablePointer<Atomic<UInt64>> {
    words + Int(truncatingIfNeeded: name.hash % UInt64(Self.setCount)) * Self.setSize
  }

  private static func tag(_ name: EntryName) -> UInt64 { max(1, name.hash >> 16 & 0xFFFF) }

  private static func word(_ time: Int64, _ name: EntryName) -> UInt64 {
    tag(name) << 48 | UInt64(bitPattern: time) & (1 << 48 - 1)
  }

  /// Notes the time of a name's last payload. The name's key must be locked.
  func note(_ time: Int64, of name: EntryName) {
    let (set, tag) = (words(of: name), Self.tag(name))
    // The lowest bit is not random: it tells whether the entry expires.
    var position = Int(truncatingIfNeeded: (time.magnitude >> 1) % UInt64(Self.setSize))
    for number in 0..<Self.setSize {
      let word = (set + number).pointee.load(ordering: .relaxed)
      if word == 0 { position = number }
      // Never two times of one name, of which one would not be the last.
      if word >> 48 == tag {
        position = number
        break
      }
    }
    (set + position).pointee.store(Self.word(time, name), ordering: .relaxed)
  }

  /// Whether the payload with this time is the last one of its name.
  func isLast(_ time: Int64, of name: EntryName) -> Bool {
    let (set, word) = (words(of: name), Self.word(time, name))
    return (0..<Self.setSize).contains { (set + $0).pointee.load(ordering: .relaxed) == word }
  }

  /// Whether a payload of this name is among them; true for a few other names as well.
  func mayContain(_ name: EntryName) -> Bool {
    let (set, tag) = (words(of: name), Self.tag(name))
    return (0..<Self.setSize).contains { (set + $0).pointee.load(ordering: .relaxed) >> 48 == tag }
  }
}
