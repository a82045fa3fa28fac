@testable import Keepsake

extension Sidecar {
  init(_ record: [UInt8]) throws {
    self = try record.withUnsafeBytes { try Sidecar($0) }
  }

  /// Puts the record of a key at the start of a file.
  func write(key: String, to file: File) throws {
    try withRecord(of: key) { record throws(StorageError) in
      try file.overwrite(record.bytes, at: 0)
    }
  }

  /// A sidecar with other bytes, and the sum that its program would have given it.
  static func summed(_ sidecar: [UInt8]) -> [UInt8] {
    let sum = sidecar.withUnsafeBytes { bytes in
      Checksum.sum(
        UnsafeRawBufferPointer(rebasing: bytes[16...]),
        seed: UInt64(littleEndian: bytes.loadUnaligned(as: UInt64.self)))
    }
    return Bytes.put(sum, at: 8, in: sidecar)
  }
}
