import Foundation

@testable import Keepsake
@testable import KeepsakeTestSupport

extension Sidecar {
  init(_ record: [UInt8]) throws {
    self = try record.withUnsafeBytes { try SidecarRecord($0).sidecar }
  }

  func record(of key: String) throws -> Data { try withRecord(of: key) { Data($0) } }

  /// Writes the record of the key at the start of the file.
  func write(key: String, to file: File) throws {
    try file.overwrite(Array(record(of: key)).span.bytes, at: 0)
  }

  /// A changed sidecar with a checksum that fits the bytes of its first record.
  static func summed(_ sidecar: [UInt8]) -> [UInt8] {
    let sum = sidecar.withUnsafeBytes { bytes in
      let end = headerSize + Int(bytes.number(at: 56, as: UInt32.self))
      return Checksum.sum(
        UnsafeRawBufferPointer(rebasing: bytes[16..<end]), seed: bytes.number(at: 0))
    }
    return Bytes.put(sum, at: 8, in: sidecar)
  }
}
