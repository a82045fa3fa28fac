internal import Synchronization

/// The payloads that this process published last, by their modification times.
///
/// The times are random, so a payload that has such a time is that one. Without them, each set of
/// an existing key would need another look at its payload. They take 8 KB for each open cache.
///
/// Unchecked because it holds a pointer, which never changes. Its memory is only accessed
/// atomically.
final class PublishedTimes: @unchecked Sendable {
  private static let count = 1_024
  /// 16 bits of the entry's hash, and below them the lowest 48 bits of the time.
  private let words: UnsafeMutablePointer<Atomic<UInt64>>

  init() {
    words = .allocate(capacity: Self.count)
    for number in 0..<Self.count { (words + number).initialize(to: Atomic(0)) }
  }

  deinit {
    words.deinitialize(count: Self.count)
    words.deallocate()
  }

  /// Entries with the same number displace each other.
  private func word(of name: EntryName) -> UnsafeMutablePointer<Atomic<UInt64>> {
    words + Int(truncatingIfNeeded: name.hash % UInt64(Self.count))
  }

  private static func tag(_ name: EntryName) -> UInt64 { name.hash >> 16 & 0xFFFF }

  private static func word(_ time: Int64, _ name: EntryName) -> UInt64 {
    tag(name) << 48 | UInt64(bitPattern: time) & (1 << 48 - 1)
  }

  func note(_ time: Int64, of name: EntryName) {
    word(of: name).pointee.store(Self.word(time, name), ordering: .relaxed)
  }

  /// Whether the payload with this time is the last one of its name.
  func isLast(_ time: Int64, of name: EntryName) -> Bool {
    word(of: name).pointee.load(ordering: .relaxed) == Self.word(time, name)
  }

  /// Whether a payload of this name is among them; true for a few other names as well.
  func mayContain(_ name: EntryName) -> Bool {
    word(of: name).pointee.load(ordering: .relaxed) >> 48 == Self.tag(name)
  }
}
