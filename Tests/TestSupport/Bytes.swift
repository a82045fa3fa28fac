import Foundation
import Testing

@testable import Keepsake

/// Reads files, and changes them in place: they keep their inode and mode.
enum Bytes {
  static func read(_ path: String) throws -> [UInt8] {
    Array(try Data(contentsOf: URL(filePath: path)))
  }

  static func write(_ bytes: [UInt8], to path: String) throws {
    let file = try File(path, .readWrite)
    try #require(ftruncate(file.descriptor, off_t(bytes.count)) == 0)
    try file.overwrite(bytes.span.bytes, at: 0)
  }

  static func write(_ byte: UInt8, at position: Int, of path: String) throws {
    try File(path, .readWrite).overwrite([byte].span.bytes, at: position)
  }

  /// The bytes with their last 32 replaced by the digest of all before: a change by an attacker who
  /// knows the format.
  static func summed(_ bytes: [UInt8]) throws -> [UInt8] {
    let body = Array(bytes.dropLast(Digest.size))
    return try body + body.withBytes(Digest.sha256)
  }

  /// The bytes with a number in little-endian order written at `position`.
  static func put(
    _ number: some FixedWidthInteger, at position: Int, in bytes: [UInt8]
  ) -> [UInt8] {
    var bytes = bytes
    withUnsafeBytes(of: number.littleEndian) {
      bytes.replaceSubrange(position..<(position + $0.count), with: $0)
    }
    return bytes
  }
}
