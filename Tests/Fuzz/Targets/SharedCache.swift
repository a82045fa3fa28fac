@testable import Keepsake
@testable import KeepsakeValkey

/// A message on the channel of a cache.
@Sendable func tryCacheMessage(_ input: UnsafeRawBufferPointer) {
  let bytes = Array(input)
  func numbered(_ letter: String, _ number: UInt64, _ suffix: [UInt8]) -> [UInt8] {
    let digits = String(number)
    return Array(letter.utf8) + Array(repeating: 48, count: max(0, 16 - digits.utf8.count))
      + Array(digits.utf8) + suffix
  }
  let written: [UInt8]
  switch CacheMessage(bytes) {
  case .set(let key, let version):
    written = numbered("s", version.number, CacheMessage.suffix(key, name: version.name))
  case .removed(let key, let number): written = numbered("r", number, CacheMessage.suffix(key))
  case .removedAll(let number): written = numbered("a", number, [])
  case .released(let key): written = CacheMessage.release(of: key)
  case nil: return
  }
  check(written == bytes, "a message is written with the same bytes")
}

/// The value of an entry on a server. The first eight bytes are how long the server keeps it.
@Sendable func trySharedEntry(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 8 else { return }
  let remaining = Int64(littleEndian: input.loadUnaligned(as: Int64.self))
  var bytes = Array(input.dropFirst(8))
  readSharedEntry(bytes, remaining)
  guard bytes.count >= 56 else { return }
  sumSharedEntry(&bytes)
  readSharedEntry(bytes, remaining)
}

private func readSharedEntry(_ bytes: [UInt8], _ remaining: Int64) {
  let stored = SharedBytes(bytes[...], number: 5, remaining: remaining)
  guard let entry = try? SharedEntry(stored) else { return }
  check(entry.version.number == 5 && entry.size >= 0, "the size is not negative")
  check(entry.lifetime >= 0 && entry.kept >= 0, "times are not negative")
  for remaining in [stored.remaining, 0, 1, entry.lifetime, .max] {
    let isFresh = entry.isFresh(remaining: remaining)
    let options = entry.localOptions(remaining: remaining)
    check(options.details?.version == entry.version, "the version is kept")
    if case .at(let time) = options.expiry {
      check(!isFresh || time > WallClock.now, "a fresh entry does not expire at once")
    }
    if let use = entry.use(remaining: remaining) {
      check(use.interval >= 0 && use.lifetime == entry.lifetime, "uses have an interval")
      _ = use.isDue(at: .min) || use.isDue(at: .max)
    }
  }
  guard let payload = entry.payload(in: bytes[...]) else { return }
  check(payload.bytes.count == entry.size, "the payload is whole")
  let written = payload.bytes.withUnsafeBytes { entry.bytes(with: $0) }
  // Some bytes are always written as zero.
  check(written.count == bytes.count, "an entry is written with the same size")
  let again = try? SharedEntry(SharedBytes(written[...], number: 5, remaining: remaining))
  check(again == entry, "an entry reads back")
}

/// Corrects the checksum of the header and the details.
private func sumSharedEntry(_ bytes: inout [UInt8]) {
  let sum = bytes.withUnsafeBytes { bytes in
    let length = Int(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self)))
    let end = min(bytes.count, 56 + length)
    return Checksum.sum(bytes[part: 56..<end], seed: Checksum.sum(bytes[part: 0..<48], seed: 0))
  }
  withUnsafeBytes(of: sum.littleEndian) { bytes.replaceSubrange(48..<56, with: $0) }
}
