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
      let result = systemCall(.random, "random bytes") { Int(keepsake_random(start, rest.count)) }
      switch result {
      case .success(let count) where count > 0: rest = rest[part: min(count, rest.count)...]
      case .success: throw unavailable(EIO)
      case .failure(let error): throw unavailable(error.code)
      }
    }
  }

  private static func unavailable(_ errno: Int32) -> StorageError {
    StorageError(
      .system(errno), operation: SystemCall.random.rawValue,
      reason: "the system gives no random bytes (getrandom: \(String(cString: strerror(errno))))",
      remedy: "Allow the system call getrandom in the sandbox of this program.")
  }

  static func bytes(_ count: Int) throws(StorageError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var span = bytes.mutableSpan
    try span.withUnsafeMutableBytes { bytes throws(StorageError) in try fill(bytes) }
    return bytes
  }
}
#endif
