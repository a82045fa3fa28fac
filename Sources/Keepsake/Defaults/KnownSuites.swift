internal import Synchronization

/// Finds the stores of named suites that the process has used before, without a lock and without
/// hashing the name.
///
/// It compares the representation of the `String`, and not its text. The same literal always has
/// the same one, and so has the same text of up to 15 bytes. Another string with the same text is
/// added too, or is looked up in the ``StoreRegistry``.
final class KnownSuites: Sendable {
  /// Those of the process's own scope, which never releases a store.
  static let ofProcess = KnownSuites()

  private final class Entry: Sendable {
    let representation: Representation
    /// Keeps the string, so that no other one gets its address.
    let name: String
    let store: Defaults.Store

    init(_ name: String, _ store: Defaults.Store) {
      representation = Representation(of: name)
      self.name = name
      self.store = store
    }
  }

  /// A copy of the bytes of a `String` value.
  private struct Representation: Equatable {
    private var words: (UInt64, UInt64) = (0, 0)

    @inline(__always)
    init(of name: String) {
      withUnsafeMutableBytes(of: &words) { words in
        withUnsafeBytes(of: name) { words.copyMemory(from: $0) }
      }
    }

    @inline(__always)
    static func == (a: Self, b: Self) -> Bool { a.words == b.words }

    @inline(__always)
    var hash: UInt64 { (words.0 ^ words.1 &>> 7) &* 0x9E37_79B9_7F4A_7C15 }
  }

  private static let bits: UInt64 = 6
  // Safe because all access is atomic. The entries are never replaced or released.
  private nonisolated(unsafe) let entries: UnsafeMutablePointer<Atomic<Unmanaged<Entry>?>>

  init() {
    entries = .allocate(capacity: 1 << Self.bits)
    for index in 0..<1 << Self.bits { (entries + index).initialize(to: Atomic(nil)) }
  }

  @inline(__always)
  private func slot(_ name: Representation) -> UnsafeMutablePointer<Atomic<Unmanaged<Entry>?>> {
    entries + Int(truncatingIfNeeded: name.hash &>> (64 - Self.bits))
  }

  @inline(__always)
  func store(named name: String) -> Unmanaged<Defaults.Store>? {
    let representation = Representation(of: name)
    return slot(representation).pointee.load(ordering: .acquiring)?._withUnsafeGuaranteedRef {
      $0.representation == representation ? Unmanaged.passUnretained($0.store) : nil
    }
  }

  /// Adds a store, unless there is no room for this name.
  ///
  /// A program may make new names for each call. They must not take the room of the others.
  func add(_ store: Defaults.Store, named name: String) {
    let slot = slot(Representation(of: name))
    guard slot.pointee.load(ordering: .relaxed) == nil, store.mayAddKnownName() else { return }
    let entry = Unmanaged.passRetained(Entry(name, store))
    let isAdded = slot.pointee.compareExchange(
      expected: nil, desired: entry, ordering: .acquiringAndReleasing
    ).exchanged
    if !isAdded { entry.release() }
  }
}
