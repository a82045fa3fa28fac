#if SecureVault
internal import KeepsakeLibc

/// Memory for keys.
///
/// It is kept out of swap space and core dumps, reads as zeros in a forked child, and is wiped
/// before it is freed.
final class KeyPages: Sendable {
  // Safe because only the code that makes this object writes the bytes, before it shares it.
  nonisolated(unsafe) let bytes: UnsafeMutableRawBufferPointer
  /// Why the pages may reach swap space or a core dump; nil when they cannot.
  let shieldFailure: StorageError?
  private let length: Int
  /// Released after the keys are wiped. A weak reference to the pages ends before that.
  let lease = Lease()

  final class Lease: Sendable {}

  init(count: Int) throws(StorageError) {
    let pageSize = max(4_096, Int(sysconf(Int32(_SC_PAGESIZE))))
    let length = (max(count, 1) + pageSize - 1) / pageSize * pageSize
    var start: UnsafeMutableRawPointer?
    try systemCall(.map, "memory for keys") {
      start = mmap(
        nil, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
      return start == MAP_FAILED ? -1 : 0
    }.get(.map, "memory for keys")
    bytes = UnsafeMutableRawBufferPointer(start: start, count: count)
    self.length = length
    shieldFailure = Self.shield(start, length)
  }

  private static func shield(_ start: UnsafeMutableRawPointer?, _ length: Int) -> StorageError? {
    var calls: [(SystemCall, () -> Int)] = [(.lockMemory, { Int(mlock(start, length)) })]
    #if os(Linux)
    calls.append((.adviseMemory, { Int(madvise(start, length, MADV_DONTDUMP)) }))
    calls.append((.adviseMemory, { Int(madvise(start, length, MADV_WIPEONFORK)) }))
    #endif
    var failure: StorageError?
    for (call, body) in calls {
      guard case .failure(let error) = systemCall(call, "memory for keys", body) else { continue }
      failure = StorageError(
        .system(error.code), operation: call.rawValue,
        reason: "keys may reach swap space or a core dump (\(call.rawValue): "
          + "\(String(cString: strerror(error.code))))",
        remedy: "Raise the limit on locked memory (ulimit -l), or turn off swap and core dumps.")
    }
    return failure
  }

  deinit {
    OpenSSL.wipe(bytes)
    munmap(bytes.baseAddress, length)
  }
}
#endif
