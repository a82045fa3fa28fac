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
}
