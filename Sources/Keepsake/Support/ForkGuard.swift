internal import CKeepsake
internal import Synchronization

/// Detects that this process is a child that was forked from one that used the library.
///
/// Parent and child share the locks taken through descriptors that the child inherited. Files
/// opened under one ``generation`` are therefore not used under another.
package enum ForkGuard {
  /// Unchecked because it holds a pointer: its memory is only accessed atomically and is never
  /// released.
  private struct Page: @unchecked Sendable {
    let word: UnsafeMutablePointer<UInt64>
  }

  private static let page: Page = {
    if let word = keepsake_wipe_on_fork_page() {
      keepsake_store(word, 1)
      return Page(word: word)
    }
    // Some systems do not wipe pages on fork: there a forked child is not detected.
    let word = UnsafeMutablePointer<UInt64>.allocate(capacity: 1)
    word.initialize(to: 1)
    return Page(word: word)
  }()

  private static let count = Atomic<UInt64>(1)

  /// A number that is different in a forked child.
  @inline(__always)
  package static var generation: UInt64 {
    let current = keepsake_load(page.word)
    return current == 0 ? enterChild() : current
  }

  /// Whether this process was forked from one that used the library.
  package static var isForkedChild: Bool { generation != 1 }

  /// Uses no lock: a thread of the parent may have held it.
  private static func enterChild() -> UInt64 {
    let (_, next) = count.add(1, ordering: .relaxed)
    return keepsake_store_first(page.word, next)
  }
}
