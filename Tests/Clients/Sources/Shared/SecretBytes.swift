// The bytes of secrets, in closures and functions.
import Checks
import FoundationEssentials
import Keepsake

func checksum(_ bytes: RawSpan) -> Int {
  bytes.withUnsafeBytes { $0.reduce(0) { $0 + Int($1) } }
}

func size(_ bytes: RawSpan) throws(Refusal) -> Int {
  if bytes.isEmpty { throw Refusal() }
  return bytes.byteCount
}

/// The facade throws only the closure's error type.
func size(_ key: String, atMost limit: Int) throws(Refusal) -> Int? {
  try SecureVault.withSecret(key) { (bytes: RawSpan) throws(Refusal) in
    if bytes.byteCount > limit { throw Refusal() }
    return bytes.byteCount
  }
}

/// The store throws its own errors and the closure's.
func firstByte(_ key: String) throws -> UInt8? {
  try SecureVault.shared.withSecret(key) { bytes in
    guard bytes.byteCount > 0 else { throw Refusal() }
    return bytes.unsafeLoad(as: UInt8.self)
  }
}

extension Caller {
  func checkSecretBytes() throws {
    SecureVault.set(Data([1, 254]), forKey: "key")
    check(SecureVault.withSecret("key") { $0.byteCount }, is: 2)
    check(SecureVault.withSecret("missing", checksum) == nil)
    check(try SecureVault.withSecret("key", service: .standard, size), is: 2)
    var seen = 0
    count = 0
    SecureVault.withSecret("key", reason: "Sign") { bytes in
      let digits = checksum(bytes)
      seen += digits
    }
    SecureVault.withSecret("key") { count += $0.byteCount }
    try SecureVault.shared.withSecret("key") { _ in count += 1 }
    try SecureVault.shared.withSecret("key") { bytes in self.count += try size(bytes) }
    check(seen == 255 && count == 5)
    check(try SecureVault.shared.withSecret("key", checksum), is: 255)
    do {
      try SecureVault.withSecret("key") { _ in throw Refusal() }
      check(false)
    } catch {
      check(error is Refusal)
    }
    check(try size("key", atMost: 9), is: 2)
    check(try firstByte("key"), is: 1)
  }
}
