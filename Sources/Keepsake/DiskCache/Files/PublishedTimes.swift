internal import Synchronization

/// The modification times of the payloads that this process published last.
///
/// They are random, so a payload that has such a time is that one. Without them, each set of an
/// existing key would need another look at its payload. They take 8 KB for each open cache.
///
/// Unchecked because it holds a pointer, which never changes. Its memory is only accessed
/// atomically.
final class PublishedTimes: @unchecked Sendable {
  private static let count = 1_024
  private let times: UnsafeMutablePointer<Atomic<Int64>>

  init() {
    times = .allocate(capacity: Self.count)
    for number in 0..<Self.count { (times + number).initialize(to: Atomic(0)) }
  }

  deinit {
    times.deinitialize(count: Self.count)
    times.deallocate()
  }

  /// Entries whose number is the same displace each other.
  private func time(of name: EntryName) -> UnsafeMutablePointer<Atomic<Int64>> {
    times + Int(truncatingIfNeeded: name.hash % UInt64(Self.count))
  }

  func note(_ time: Int64, of name: EntryName) {
    self.time(of: name).pointee.store(time, ordering: .relaxed)
  }

  /// 0 if it is unknown.
  func last(of name: EntryName) -> Int64 { time(of: name).pointee.load(ordering: .relaxed) }
}
