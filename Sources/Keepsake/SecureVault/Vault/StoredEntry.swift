#if SecureVault
internal import FoundationEssentials

/// An entry as it is stored.
enum StoredEntry {
  case file(File)
  /// All bytes of the entry.
  case bytes(Data)
  /// Something that has no bytes of an entry.
  case unreadable

  /// The entry's header, which nothing authenticates yet.
  func header(at path: EntryPath) throws(StorageError) -> EntryHeader {
    switch self {
    case .file(let file):
      let bytes = try file.read(from: 0, count: EntryHeader.size)
      return try bytes.withBytes { bytes throws(StorageError) in try path.parseHeader(bytes) }
    case .bytes(let data):
      return try data.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
        try path.parseHeader(bytes)
      }
    case .unreadable: throw path.invalidHeaderError
    }
  }
}

/// What an entry is opened for.
enum EntryPurpose {
  /// To return it, or a part of it.
  case reading
  /// To store another one in its place.
  case replacing
  /// To change or count the keys in use. The entry is the one that is stored now: one that has not
  /// arrived on this machine counts.
  case changingKeys
}

/// What has to be true of the entry in whose place another one is stored.
enum EntryCondition {
  case none
  /// There is none.
  case isAbsent
  /// It requires the user's presence, or not, as the one did that was read. `nil` was none, or a
  /// file.
  case hasAccess(of: StoredEntry?, isPresenceRequired: Bool)
}

/// Where the bytes of a sealed entry go.
struct EntryOutput {
  /// nil if they are collected in ``bytes``.
  let file: File?
  private(set) var bytes = Data()

  init(to file: File? = nil) { self.file = file }

  /// Calls `body` with an output that takes `count` bytes.
  mutating func write(
    _ count: Int, _ body: (inout ChunkOutput) throws(StorageError) -> Void
  ) throws(StorageError) {
    if let file {
      return try ChunkBuffer.with(count) { buffer throws(StorageError) in
        var output = ChunkOutput(file: file, buffer: buffer)
        try body(&output)
        try output.flush()
      }
    }
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 8)
    defer { buffer.deallocate() }
    var output = ChunkOutput(file: nil, buffer: buffer)
    try body(&output)
    bytes = Data(buffer[part: ..<output.used])
  }
}
#endif
