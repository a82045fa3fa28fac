internal import CKeepsake
internal import KeepsakeLibc

/// The start of a file in memory, as all processes see it.
///
/// If another program truncates the file, the mapping turns into zeros instead of ending the
/// process.
final class SharedMapping: Sendable {
  // Safe because the pointer never changes, all access to the memory is atomic, and it is unmapped
  // with the last reference.
  private nonisolated(unsafe) let start: UnsafeMutableRawPointer
  private let size: Int

  init(_ file: File, size: Int, isWritable: Bool = false) throws(StorageError) {
    var address: UnsafeMutableRawPointer?
    try systemCall(.map, file.path) {
      address = keepsake_map(file.descriptor, size, isWritable)
      return address == nil ? -1 : 0
    }.get(.map, file.path)
    guard let address else { throw StorageError(errno: ENOMEM, operation: "map", path: file.path) }
    start = address
    self.size = size
  }

  deinit { keepsake_unmap(start, size) }

  /// A word in the mapping. It can be read while the mapping is referenced.
  ///
  /// Unchecked because it holds a pointer, which is only used for atomic access.
  struct Word: @unchecked Sendable {
    fileprivate let address: UnsafeMutablePointer<UInt64>

    @inline(__always)
    var value: UInt64 { keepsake_load(address) }

    /// Stores a value, if the mapping is writable.
    func store(_ value: UInt64) { keepsake_store(address, value) }

    /// Adds a value, if the mapping is writable.
    @inline(__always)
    func add(_ value: UInt64) { keepsake_add(address, value) }

    /// The word that many words behind this one.
    @inline(__always)
    func advanced(by count: Int) -> Word { Word(address: address + count) }
  }

  /// The word at a byte offset, which is a multiple of its size and within the mapping.
  @inline(__always)
  func word(at offset: Int) -> Word {
    Word(address: (start + offset).assumingMemoryBound(to: UInt64.self))
  }

  /// Whether a store into a page that was written before needs no new block on the file's file
  /// system, so that it succeeds on a full disk.
  static func keepsBlocks(_ file: File) -> Bool {
    // If the file system is unknown, system calls do.
    let result = systemCall(.space, file.path) { Int(keepsake_keeps_blocks(file.descriptor)) }
    return (try? result.get()) == 1
  }
}
