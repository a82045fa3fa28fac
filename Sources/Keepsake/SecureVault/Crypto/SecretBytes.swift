#if SecureVault
internal import FoundationEssentials
internal import KeepsakeLibc

/// Memory for plaintext and for keys on their way; wiped before it is given back.
struct SecretBytes: ~Copyable {
  let bytes: UnsafeMutableRawBufferPointer

  init(count: Int) throws(StorageError) {
    // At least one byte, because of none some systems give no address.
    guard let start = malloc(max(count, 1)) else {
      throw StorageError(
        .system(ENOMEM), operation: "allocate", reason: "no memory for \(count) bytes",
        remedy: "Free some memory or store less under one key.")
    }
    bytes = UnsafeMutableRawBufferPointer(start: start, count: count)
  }

  init(copying source: UnsafeRawBufferPointer) throws(StorageError) {
    try self.init(count: source.count)
    bytes.copyMemory(from: source)
  }

  deinit {
    OpenSSL.wipe(bytes)
    free(bytes.baseAddress)
  }

  /// Hands a part of the bytes on, which are wiped with the last reference to them.
  consuming func data(_ range: Range<Int>) -> Data {
    let memory = bytes
    discard self
    guard let start = memory.baseAddress, !range.isEmpty else {
      free(memory.baseAddress)
      return Data()
    }
    // The rest, which nobody will see.
    OpenSSL.wipe(UnsafeMutableRawBufferPointer(rebasing: memory[..<range.lowerBound]))
    OpenSSL.wipe(UnsafeMutableRawBufferPointer(rebasing: memory[range.upperBound...]))
    // Unchecked because it is a pointer; nobody else has it any more, and it is only freed.
    nonisolated(unsafe) let whole = start
    return Data(
      bytesNoCopy: start + range.lowerBound, count: range.count,
      deallocator: .custom { part, count in
        OpenSSL.wipe(UnsafeMutableRawBufferPointer(start: part, count: count))
        free(whole)
      })
  }
}
#endif
