internal import CKeepsake

/// Tells a child process after `fork` that it is one.
///
/// Locks taken through descriptors that parent and child share are no locks, so what was opened
/// under one ``generation`` is not used under another.
enum ForkGuard {
  /// Unchecked because it holds a pointer: it is read and written atomically only, and its memory
  /// stays for as long as the process lives.
  private struct Page: @unchecked Sendable {
    let word: UnsafeMutablePointer<UInt64>
  }

  private static let page: Page = {
    if let word = keepsake_wipe_on_fork_page() {
      keepsake_store(word, 1)
      return Page(word: word)
    }
    // Without memory for one page nothing works; without a wiped one a child goes unnoticed.
    let word = UnsafeMutablePointer<UInt64>.allocate(capacity: 1)
    word.initialize(to: 1)
    return Page(word: word)
  }()

  private static let count = Locked<UInt64>(1)

  /// Changes in a child process.
  @inline(__always)
  static var generation: UInt64 {
    let current = keepsake_load(page.word)
    return current == 0 ? enterChild() : current
  }

  /// Whether this process was forked from one that used the library.
  static var isForkedChild: Bool { generation != 1 }

  private static func enterChild() -> UInt64 {
    count.withLock { count in
      let current = keepsake_load(page.word)
      if current != 0 { return current }
      count += 1
      keepsake_store(page.word, count)
      return count
    }
  }
}
