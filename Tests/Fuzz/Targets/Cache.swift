@testable import Keepsake

/// What stands beside a cached payload.
@Sendable func trySidecar(_ input: UnsafeRawBufferPointer) {
  readSidecar(input)
  guard input.count >= Sidecar.headerSize else { return }
  var bytes = Array(input)
  sumSidecar(&bytes)
  bytes.withUnsafeBytes { readSidecar($0) }
}

private func readSidecar(_ bytes: UnsafeRawBufferPointer) {
  _ = Sidecar.sizes(bytes)
  guard let sidecar = try? Sidecar(bytes) else { return }
  let key = Sidecar.key(in: bytes)
  check(key.count <= bytes.count - Sidecar.headerSize, "a key lies in its file")
  check(sidecar.size >= 0, "a size is one")
  check(Sidecar.sizes(bytes)?.payload == sidecar.size, "both ways to read it agree")
  for time in [Int64.min, -1, 0, sidecar.created, .max] {
    _ = sidecar.lifespan.isOver(created: sidecar.created, used: time, now: time)
  }
  guard let name = String(utf8: key) else { return }
  do throws(StorageError) {
    try sidecar.withRecord(of: name) { record throws(StorageError) in
      check((try? Sidecar(record)) == sidecar, "a sidecar reads back")
      // What is zero in all that the library writes may be anything.
      let isPlain =
        bytes[6..<8].allSatisfy { $0 == 0 } && bytes[60..<64].allSatisfy { $0 == 0 }
        && (sidecar.lifespan != .endless || bytes[48..<56].allSatisfy { $0 == 0 })
      check(!isPlain || bytes.starts(with: record), "to the last byte")
    }
  } catch {
    fatalError("no record: \(error)")
  }
}

/// Puts the sum in its place.
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

/// The names of files: of cache entries, and of suites, services and caches.
@Sendable func tryNames(_ input: UnsafeRawBufferPointer) {
  // Whatever the name, it has a file of its own…
  let name = String(decoding: input, as: UTF8.self)
  check(
    FileName.decode(String(decoding: FileName.escape(name), as: UTF8.self)) == name,
    "a name reads back")
  for (longest, ignoresCase) in [(250, false), (20, false), (250, true)] {
    let rules = EntryName.Rules(ignoresCase: ignoresCase, longestName: longest)
    guard let entry = try? EntryName(key: name, rules: rules) else { continue }
    let fileName = String(entry.path.dropFirst(3))
    check(fileName.utf8.count <= max(longest, 34), "a file system takes the name")
    check(!fileName.contains("/") && !fileName.hasPrefix("."), "it leads nowhere else")
    let back = EntryName(fileName: fileName)
    check(back?.path == entry.path && back?.hash == entry.hash, "an entry is found by its file")
    let key = EntryName.key(fileName: fileName)
    check(entry.isHashed ? key == nil : key == Array(name.utf8), "a key reads back")
    check(key == nil || EntryName.keyLength(fileName: fileName) == key?.count, "so does its length")
    check(Sidecar.payloadName(of: fileName + Sidecar.suffix) == fileName, "sidecars are told apart")
  }

  // …and whatever the file's name, it is that of one name or of none.
  if let decoded = FileName.decode(name) {
    check(Array(name.utf8) == FileName.escape(decoded), "one name has one file")
  }
  if let key = EntryName.key(fileName: name), let text = String(validating: key, as: UTF8.self) {
    let rules = EntryName.Rules(ignoresCase: false, longestName: .max)
    let entry = try? EntryName(key: text, rules: rules)
    check(entry.map { $0.path.dropFirst(3).elementsEqual(name) } ?? true, "one key has one file")
    check(EntryName(fileName: name)?.path == entry?.path, "which is found both ways")
  }
  _ = (
    EntryName(fileName: name), EntryName.keyLength(fileName: name), Sidecar.payloadName(of: name)
  )
}
