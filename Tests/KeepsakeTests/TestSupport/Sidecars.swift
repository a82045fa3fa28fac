@testable import Keepsake

extension Sidecar {
  init(_ record: [UInt8]) throws {
    self = try record.withUnsafeBytes { try Sidecar($0) }
  }

  /// Writes the record of the key at the start of the file.
  func write(key: String, to file: File) throws {
    try withRecord(of: key) { record throws(StorageError) in
      try file.overwrite(record.bytes, at: 0)
    }
  }

  /// A changed sidecar with a checksum that fits its bytes.
  static func summed(_ sidecar: [UInt8]) -> [UInt8] {
    let sum = sidecar.withUnsafeBytes { bytes in
      Checksum.sum(
        UnsafeRawBufferPointer(rebasing: bytes[16...]),
        seed: UInt64(littleEndian: bytes.loadUnaligned(as: UInt64.self)))
    }
    return Bytes.put(sum, at: 8, in: sidecar)
  }
}
