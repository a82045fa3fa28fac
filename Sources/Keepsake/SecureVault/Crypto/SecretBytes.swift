#if SecureVault
internal import FoundationEssentials
internal import KeepsakeLibc

/// Memory for plaintext, and for keys in transit. It is wiped before it is freed.
struct SecretBytes: ~Copyable {
  let bytes: UnsafeMutableRawBufferPointer
  /// False once the bytes are encrypted: wiping a large value takes a sixth of the time of that.
  var isSecret = true

  init(count: Int) throws(StorageError) {
    // At least one byte: malloc(0) may return nil.
    guard let start = malloc(max(count, 1)) else {
      throw StorageError(
        .system(ENOMEM), operation: "allocate", reason: "there is no memory for \(count) bytes",
        remedy: "Free some memory, or store less under one key.")
    }
    bytes = UnsafeMutableRawBufferPointer(start: start, count: count)
  }

  init(copying source: UnsafeRawBufferPointer) throws(StorageError) {
    try self.init(count: source.count)
    bytes.copyMemory(from: source)
  }

  deinit {
    if isSecret { OpenSSL.wipe(bytes) }
    free(bytes.baseAddress)
  }

  /// Turns part of the memory into `Data` without copying it. It is wiped with the last reference.
  consuming func data(_ range: Range<Int>) -> Data {
    let memory = bytes
    discard self
    guard let start = memory.baseAddress, !range.isEmpty else {
      free(memory.baseAddress)
      return Data()
    }
    // The rest stays allocated until the data is freed.
    OpenSSL.wipe(UnsafeMutableRawBufferPointer(rebasing: memory[..<range.lowerBound]))
    OpenSSL.wipe(UnsafeMutableRawBufferPointer(rebasing: memory[range.upperBound...]))
    // Safe because only the deallocator uses the pointer, to free it.
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
