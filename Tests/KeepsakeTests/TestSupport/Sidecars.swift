import Foundation

@testable import Keepsake

extension Sidecar {
  init(_ record: [UInt8]) throws {
    self = try record.withUnsafeBytes { try Sidecar($0) }
  }

  /// The record of the key, without the room for the previous one.
  func record(of key: String) throws -> Data {
    try withContents(of: key) { Data($0.dropLast(Self.headerSize)) }
  }

  /// Writes the record of the key at the start of the file.
  func write(key: String, to file: File) throws {
    try file.overwrite(Array(record(of: key)).span.bytes, at: 0)
  }

  /// A changed sidecar with a checksum that fits the bytes of its record.
  static func summed(_ sidecar: [UInt8]) -> [UInt8] {
    let sum = sidecar.withUnsafeBytes { bytes in
      Checksum.sum(
        UnsafeRawBufferPointer(rebasing: bytes[16..<bytes.count - headerSize]),
        seed: UInt64(littleEndian: bytes.loadUnaligned(as: UInt64.self)))
    }
    return Bytes.put(sum, at: 8, in: sidecar)
  }
}
