internal import FoundationEssentials
internal import KeepsakeLibc

/// An open file that can be read.
protocol ReadableFile: ~Copyable {
  var descriptor: Int32 { get }
  /// Names the file in errors.
  var path: String { get }
}

/// A file that is open for reading within one call, without the cost of an object.
struct ScopedFile: ReadableFile, ~Copyable {
  let descriptor: Int32
  private let name: String
  private let suffix: StaticString
  private let directory: DirectoryHandle

  /// nil if there is no file. Missing files are common, so no error is constructed for one.
  ///
  /// - Parameter suffix: The end of the path, as in `File`.
  @inline(__always)
  init?(
    ifPresent path: String, suffix: StaticString = "", in directory: DirectoryHandle
  ) throws(StorageError) {
    guard let descriptor = try File.descriptorIfPresent(path, suffix: suffix, in: directory)
    else { return nil }
    self.descriptor = Int32(descriptor)
    name = path
    self.suffix = suffix
    self.directory = directory
  }

  deinit { _ = close(descriptor) }

  var path: String { directory.path(of: name.followed(by: suffix)) }
}

extension ReadableFile where Self: ~Copyable {
  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus {
    try FileSystem.status(of: descriptor, path, withTimes: withTimes)
  }

  /// Reads `count` bytes from `offset` on; fewer only if the file ends there.
  ///
  /// - Throws: An error for more bytes than a store writes at once: a file may claim any size, and
  ///   the memory for it might not be there.
  func read(from offset: Int, count: Int) throws(StorageError) -> [UInt8] {
    // All empty arrays share one buffer, which the initializer below would write to.
    guard count > 0 else { return [] }
    guard count <= UInt32.max else { throw .tooLarge(path, count) }
    var failure: StorageError?
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      do throws(StorageError) {
        filled = try read(from: offset, into: UnsafeMutableRawBufferPointer(buffer))
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return bytes
  }

  /// Calls `body` with all bytes up to the end of the file, in pieces of at most 1 MiB.
  func readInPieces(
    _ body: (UnsafeRawBufferPointer) throws(StorageError) -> Void
  ) throws(StorageError) {
    let size = 1 << 20
    var position = 0
    while true {
      let bytes = try read(from: position, count: size)
      try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try body(bytes) }
      if bytes.count < size { return }
      position += size
    }
  }

  /// Reads the start of the file with one call, which usually returns the whole of a file that
  /// fits.
  func readOnce(into buffer: UnsafeMutableRawBufferPointer) throws(StorageError) -> Int {
    try systemCall(.read, path) { pread(descriptor, buffer.baseAddress, buffer.count, 0) }
      .get(.read, path)
  }

  /// Fills `buffer` with the bytes from `offset` on, and returns how many there were: fewer only if
  /// the file ends there.
  ///
  /// - Parameter expectedSize: The size that the file had; an end there needs no check.
  /// - Throws: An error if the file is longer than what the system returns of it.
  func read(
    from offset: Int, into buffer: UnsafeMutableRawBufferPointer, expectedSize: Int = .max
  ) throws(StorageError) -> Int {
    var filled = 0
    var emptyReads = 0
    while filled < buffer.count {
      let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])
      let position = offset + filled
      let result = systemCall(.read, path) {
        pread(descriptor, rest.baseAddress, rest.count, off_t(position))
      }
      let count = try result.get(.read, path)
      filled += count
      if count > 0 { continue }
      // A failing network or disk can look like the end of the file. What is missing would be
      // taken for deleted.
      guard position < expectedSize, try status().size > position else { break }
      // Another process may have appended to the file since it was read.
      emptyReads += 1
      if emptyReads == 3 { throw StorageError.prematureEnd(path) }
    }
    return filled
  }

  /// Memory for bytes of the file, which `free` releases. If there is not enough, an error; Swift's
  /// own call would end the process.
  func allocate(_ count: Int) throws(StorageError) -> UnsafeMutableRawPointer {
    guard count > 0, let memory = malloc(count) else {
      throw StorageError(errno: ENOMEM, operation: "read", path: path)
    }
    return memory
  }

  /// The first `count` bytes of a file; nil if it has fewer, or if `isValid` rejects them.
  ///
  /// They are read, not mapped: another program may overwrite or truncate the file at any time.
  func data(
    count: Int, where isValid: (UnsafeRawBufferPointer) -> Bool = { _ in true }
  ) throws(StorageError) -> Data? {
    guard count > 0 else {
      return isValid(UnsafeRawBufferPointer(start: nil, count: 0)) ? Data() : nil
    }
    let memory = try allocate(count)
    let buffer = UnsafeMutableRawBufferPointer(start: memory, count: count)
    do throws(StorageError) {
      guard try read(from: 0, into: buffer) == count, isValid(UnsafeRawBufferPointer(buffer)) else {
        free(memory)
        return nil
      }
    } catch {
      free(memory)
      throw error
    }
    return Data(bytesNoCopy: memory, count: count, deallocator: .free)
  }

  /// All bytes up to the end of a file that other programs may be changing.
  func contents() throws(StorageError) -> Data {
    // One byte more than expected, so that the first read reveals the end of the file.
    let capacity = try status().size.addingReportingOverflow(1).partialValue
    let memory = try allocate(capacity)
    let count: Int
    do throws(StorageError) {
      count = try read(
        from: 0, into: UnsafeMutableRawBufferPointer(start: memory, count: capacity),
        expectedSize: capacity - 1)
    } catch {
      free(memory)
      throw error
    }
    var bytes = Data(bytesNoCopy: memory, count: count, deallocator: .free)
    var isAtEnd = count < capacity
    while !isAtEnd {
      let more = try read(from: bytes.count, count: 1 << 16)
      bytes.append(contentsOf: more)
      isAtEnd = more.isEmpty
    }
    return bytes
  }
}
