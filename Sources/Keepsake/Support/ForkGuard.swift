internal import CKeepsake
internal import Synchronization

/// Detects that this process is a child that was forked from one that used the library.
///
/// Parent and child share the locks taken through descriptors that the child inherited. Files
/// opened under one ``generation`` are therefore not used under another: each store compares it
/// with the one under which it opened its files.
package enum ForkGuard {
  /// A word that a fork sets to 0.
  ///
  /// Unchecked because it holds a pointer: its memory is only accessed atomically and is never
  /// released.
  private struct Word: @unchecked Sendable {
    let pointer: UnsafeMutablePointer<UInt64>
  }

  private static let word: Word = {
    if let word = keepsake_wipe_on_fork_page() {
      keepsake_store(word, 1)
      return Word(pointer: word)
    }
    // Some systems do not wipe pages on fork: there a forked child is not detected.
    let word = UnsafeMutablePointer<UInt64>.allocate(capacity: 1)
    word.initialize(to: 1)
    return Word(pointer: word)
  }()

  /// The address of ``word`` once it was used: each lock asks for it, and asking for a lazy global
  /// costs a call.
  private static let address = Atomic<UInt>(0)

  private static let count = Atomic<UInt64>(1)

  /// A number that is different in a forked child.
  @inline(__always)
  package static var generation: UInt64 {
    if let word = UnsafePointer<UInt64>(bitPattern: address.load(ordering: .acquiring)) {
      let current = keepsake_load(word)
      if current != 0 { return current }
    }
    return firstGeneration()
  }

  /// Whether this process was forked from one that used the library.
  package static var isForkedChild: Bool { generation != 1 }

  /// The generation when this process asks for the first time. Uses no lock in a forked child: a
  /// thread of the parent may have held it.
  @inline(never)
  private static func firstGeneration() -> UInt64 {
    let pointer = word.pointer
    address.store(UInt(bitPattern: pointer), ordering: .releasing)
    let current = keepsake_load(pointer)
    if current != 0 { return current }
    let (_, next) = count.add(1, ordering: .relaxed)
    return keepsake_store_first(pointer, next)
  }
}
