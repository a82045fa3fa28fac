internal import Keepsake

/// A message on the channel of a cache.
///
/// It begins with a letter: `s` if a key was set, `r` if one was removed, `a` if all keys were
/// removed; each is followed by the number of the change in 16 digits. Then comes the name of the
/// version in eight little-endian bytes, if the key was set, and the key. `p` and a key tell that
/// its lease was released.
enum CacheMessage: Equatable, Sendable {
  case set(String, EntryVersion)
  case removed(String, number: UInt64)
  case removedAll(number: UInt64)
  case released(String)

  /// nil if the bytes are no message, for example one of a newer format.
  init?(_ bytes: [UInt8]) {
    func key(in bytes: ArraySlice<UInt8>) -> String? { String(validating: bytes, as: UTF8.self) }
    let number = ChangeNumber.parse(bytes.dropFirst().prefix(ChangeNumber.count))
    let rest = bytes.dropFirst(1 + ChangeNumber.count)
    let message: Self?
    switch (bytes.first, number) {
    case (UInt8(ascii: "s"), let number?) where rest.count >= 8:
      let version = EntryVersion(number: number, name: rest.withUnsafeBytes { $0.number(at: 0) })
      message = key(in: rest.dropFirst(8)).map { .set($0, version) }
    case (UInt8(ascii: "r"), let number?):
      message = key(in: rest).map { .removed($0, number: number) }
    case (UInt8(ascii: "a"), let number?) where rest.isEmpty: message = .removedAll(number: number)
    case (UInt8(ascii: "p"), _): message = key(in: bytes.dropFirst()).map { .released($0) }
    default: message = nil
    }
    guard let message else { return nil }
    self = message
  }

  /// What a script appends to the number, if a key is set to the version of this name, or removed.
  static func suffix(_ key: String, name: UInt64? = nil) -> [UInt8] {
    var bytes: [UInt8] = []
    if let name { bytes.append(number: name) }
    return bytes + key.utf8
  }

  static func release(of key: String) -> [UInt8] { [UInt8(ascii: "p")] + key.utf8 }
}

/// The number of a change, as scripts write it.
enum ChangeNumber {
  /// The number of digits.
  static let count = 16

  /// nil if the bytes are no such number.
  static func parse(_ digits: some Collection<UInt8>) -> UInt64? {
    guard digits.count == count, digits.allSatisfy({ (48...57).contains($0) }) else { return nil }
    return digits.reduce(0) { $0 * 10 + UInt64($1 - 48) }
  }

  /// The number with which a cache begins: the time in microseconds. Scripts count exactly up to
  /// 2^53.
  static var first: [UInt8] {
    let number = min(max(1, WallClock.now / 1_000), 1 << 52)
    let digits = Array(String(number).utf8)
    return Array(repeating: 48, count: count - digits.count) + digits
  }
}
