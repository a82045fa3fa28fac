import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

// Internal calls with arrays and texts instead of buffers.

extension Vault {
  /// Stores a text in the standard service.
  func set(_ text: String, forKey key: String) throws(StorageError) {
    try Array(text.utf8).withBytes { bytes throws(StorageError) in
      _ = try write(
        NewSecret(kind: .text, value: bytes, service: "standard", key: key, access: nil))
    }
  }
}

extension EntryHeader {
  /// The nonces of an entry's two boxes.
  static func nonces(in path: String) throws -> [[UInt8]] {
    let bytes = try Bytes.read(path)
    let valueStart = size + (try EntryHeader(bytes).namesLength)
    return [size, valueStart].map { Array(bytes[$0..<($0 + XAES.nonceSize)]) }
  }
}

extension KeySlot {
  init(_ bytes: [UInt8]) throws {
    let slot = try bytes.withBytes { bytes throws(StorageError) in
      var reader = ByteReader(bytes)
      return try KeySlot(&reader, path: nil)
    }
    self = try #require(slot)
  }
}

extension Digest {
  static func hmac(key: [UInt8], _ message: [UInt8]) throws(StorageError) -> [UInt8] {
    try key.withBytes { key throws(StorageError) in
      try message.withBytes { message throws(StorageError) in try hmac(key: key, message) }
    }
  }
}

extension KeyDerivation {
  static func hkdf(
    _ secret: [UInt8], salt: [UInt8], info: [UInt8], count: Int
  ) throws -> [UInt8] {
    var derived = [UInt8](repeating: 0, count: count)
    try derived.withUnsafeMutableBytes { derived in
      try secret.withBytes { try hkdf($0, salt: salt, info: info, into: derived) }
    }
    return derived
  }

  /// The 64 bytes that a passphrase slot derives.
  static func scrypt(
    _ passphrase: String, salt: [UInt8], logN: UInt8, r: UInt64 = 8, p: UInt64 = 1
  ) throws -> [UInt8] {
    var derived = [UInt8](repeating: 0, count: 64)
    try derived.withUnsafeMutableBytes { derived in
      try Array(passphrase.utf8).withBytes { passphrase in
        try salt.withBytes {
          try scrypt(passphrase, salt: $0, logN: logN, r: r, p: p, into: derived)
        }
      }
    }
    return derived
  }
}
