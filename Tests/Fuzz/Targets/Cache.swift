@testable import Keepsake

/// The sidecar of a cached payload.
@Sendable func trySidecar(_ input: UnsafeRawBufferPointer) {
  readSidecar(input)
  guard input.count >= Sidecar.headerSize else { return }
  var bytes = Array(input)
  sumSidecar(&bytes)
  bytes.withUnsafeBytes { readSidecar($0) }
}

private func readSidecar(_ bytes: UnsafeRawBufferPointer) {
  guard let record = try? SidecarRecord(bytes) else { return }
  let (sidecar, key) = (record.sidecar, record.key)
  check(key.count <= bytes.count - Sidecar.headerSize, "the key is inside the file")
  check(sidecar.size >= 0, "the size is not negative")
  if let previous = try? SidecarRecord(bytes[part: record.bytes.count..<bytes.count]) {
    check(previous.sidecar.size >= 0, "the size of the previous record is not negative")
  }
  for time in [Int64.min, -1, 0, sidecar.created, .max] {
    _ = sidecar.expiry.hasPassed(created: sidecar.created, lastUsed: time, now: time)
  }
  guard let name = String(utf8: key) else { return }
  do throws(StorageError) {
    try sidecar.withRecord(of: name) { again throws(StorageError) in
      check((try? SidecarRecord(again))?.sidecar == sidecar, "a sidecar reads back")
      // Other values in bytes that the library always writes as zero are lost, and so are details
      // that say nothing.
      let isPlain =
        bytes[6..<8].allSatisfy { $0 == 0 } && again.count == record.bytes.count
        && (sidecar.expiry != .never || bytes[48..<56].allSatisfy { $0 == 0 })
      check(!isPlain || bytes.starts(with: again), "all bytes read back")
    }
  } catch {
    fatalError("no record: \(error)")
  }
}

/// Corrects the checksum.
private func sumSidecar(_ bytes: inout [UInt8]) {
  let keyLength = bytes.withUnsafeBytes {
    UInt32(littleEndian: $0.loadUnaligned(fromByteOffset: 56, as: UInt32.self))
  }
  let end = min(bytes.count, Sidecar.headerSize + Int(keyLength))
  let sum = bytes.withUnsafeBytes { bytes in
    Checksum.sum(
      bytes[part: 16..<end], seed: UInt64(littleEndian: bytes.loadUnaligned(as: UInt64.self)))
  }
  withUnsafeBytes(of: sum.littleEndian) { bytes.replaceSubrange(8..<16, with: $0) }
}

/// File names of cache entries, suites, services and caches.
@Sendable func tryNames(_ input: UnsafeRawBufferPointer) {
  // Every name has a file of its own.
  let name = String(decoding: input, as: UTF8.self)
  check(
    FileName.decode(String(decoding: FileName.escape(name), as: UTF8.self)) == name,
    "a name reads back")
  for (longest, ignoresCase) in [(250, false), (20, false), (250, true)] {
    let rules = EntryName.Rules(ignoresCase: ignoresCase, longestName: longest)
    guard let entry = try? EntryName(key: name, rules: rules) else { continue }
    let fileName = String(entry.path.dropFirst(3))
    check(fileName.utf8.count <= max(longest, 34 + 9), "the file name is not too long")
    check(
      !fileName.contains("/") && !fileName.hasPrefix("."), "the file name stays in its directory")
    let back = EntryName(fileName: fileName)
    check(back?.path == entry.path && back?.hash == entry.hash, "an entry is found by its file")
    let key = EntryName.key(fileName: fileName)
    check(entry.isHashed ? key == nil : key == Array(name.utf8), "a key reads back")
    check(
      Sidecar.payloadName(of: fileName + Sidecar.suffix) == fileName,
      "the name of a sidecar leads to its payload")
  }

  // Every file name stands for one name or for none.
  if let decoded = FileName.decode(name) {
    check(Array(name.utf8) == FileName.escape(decoded), "one name has one file")
  }
  if let key = EntryName.key(fileName: name), let text = String(validating: key, as: UTF8.self) {
    let rules = EntryName.Rules(ignoresCase: false, longestName: .max)
    let entry = try? EntryName(key: text, rules: rules)
    check(entry.map { $0.path.dropFirst(3).elementsEqual(name) } ?? true, "one key has one file")
    check(
      EntryName(fileName: name)?.path == entry?.path, "a file name and its key give the same entry")
  }
  _ = Sidecar.payloadName(of: name)
}
