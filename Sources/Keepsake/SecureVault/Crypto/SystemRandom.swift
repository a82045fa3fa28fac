#if SecureVault
internal import CKeepsake
internal import KeepsakeLibc

/// Random bytes for nonces, ids and keys, from the system.
///
/// A generator in this process would repeat itself in a copy of it: after a `clone(2)` that
/// runs no fork handlers, or in a virtual machine that was started twice from one snapshot. Two
/// secrets under the same nonce would give away both.
enum SystemRandom {
  /// Fills memory.
  static func fill(_ memory: UnsafeMutableRawBufferPointer) throws(StorageError) {
    var rest = memory[part: 0...]
    while let start = rest.baseAddress, !rest.isEmpty {
      let count = try systemCall(.random, "random bytes") {
        Int(keepsake_random(start, rest.count))
      }.get(.random, "random bytes")
      guard count > 0 else {
        throw StorageError(errno: EIO, operation: "random bytes", path: "random bytes")
      }
      rest = rest[part: min(count, rest.count)...]
    }
  }

  static func bytes(_ count: Int) throws(StorageError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    try span.withUnsafeMutableBytes { bytes throws(StorageError) in try fill(bytes) }
    return bytes
  }
}
#endif
