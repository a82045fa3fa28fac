@testable import Keepsake

/// The bytes, and SHA-256 of them behind: what somebody writes who knows the format.
private func summed(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
  guard let sum = try? Digest.sha256(bytes) else { fatalError("no sum") }
  return Array(bytes) + sum
}

/// That what cannot be read is told with the path, and nothing else happens.
private func expectTold(_ error: StorageError) {
  check(error.code == .damaged || error.code == .unsupportedVersion, "a reason that is true")
  check(error.path == "/vault", "an error names the file")
}

/// A vault's header without the sum at its end.
@Sendable func tryVaultHeader(_ input: UnsafeRawBufferPointer) {
  for bytes in [Array(input), summed(input)] {
    do throws(StorageError) {
      let header = try VaultHeader(bytes, path: "/vault")
      check(try header.bytes() == bytes, "a header is written as it was read")
      check(header.vaultID.count == VaultHeader.idSize, "an id has its size")
      _ = (header.masterSlot, header.presenceSlot)
    } catch {
      expectTold(error)
    }
  }
}

/// The keys of a vault, out of their box.
@Sendable func tryVaultKeys(_ input: UnsafeRawBufferPointer) {
  guard let pages = try? KeyPages(count: XAES.keySize + input.count) else { return }
  if !input.isEmpty { pages.bytes[part: XAES.keySize...].copyMemory(from: input) }
  guard let ring = KeyRing(pages) else { return }
  check(ring.hasKey(ring.primary), "the key that seals is there")
  check(
    input.count == XAES.keySize + 8 + ring.ids.count * (4 + XAES.keySize), "nothing is left over")
  for id in ring.ids {
    check(ring.withEntryKey(id) { $0.count } == XAES.keySize, "each key has its size")
  }
}

/// An entry's head, and what its two boxes hold once they are opened.
@Sendable func tryVaultEntry(_ input: UnsafeRawBufferPointer) {
  if let head = try? EntryHeader(input) {
    check(input.starts(with: head.bytes), "a head is written as it was read")
    check(head.namesLength <= EntryHeader.maxNamesLength, "names are no longer than names are")
    check(head.fileLength > head.namesLength && head.fileLength > head.valueLength, "no overflow")
  }
  let plaintext = UnsafeRawBufferPointer(rebasing: input.dropFirst(EntryHeader.size))
  if let names = EntryNames(plaintext) {
    let bytes = names.bytes
    check(bytes.count % 64 == 0, "names are padded")
    check(bytes.withBytes { EntryNames($0) } == names, "names read back")
    let length = 24 + names.service.utf8.count + names.key.utf8.count
    check(plaintext.prefix(length).elementsEqual(bytes.prefix(length)), "to the last byte")
  }
  if let (kind, range) = PaddedValue.parse(plaintext) {
    check(range.upperBound <= plaintext.count, "a value lies in its box")
    let prefix = PaddedValue.prefix(kind: kind, length: range.count)
    check(plaintext.starts(with: prefix), "a prefix is written as it was read")
    check(PaddedValue.paddedLength(range.count) >= range.upperBound, "padding takes nothing away")
    _ = Payload.Kind(rawValue: kind)?.value(of: plaintext[part: range])
  }
}

/// A key file without the sum at its end.
@Sendable func tryKeyFile(_ input: UnsafeRawBufferPointer) {
  let file = KeyFile(path: "/vault", timeout: .seconds(1))
  for bytes in [Array(input), summed(input)] {
    bytes.withUnsafeBytes { bytes in
      do throws(StorageError) {
        try file.check(bytes)
        let records = KeyFile.records(bytes)
        check(records.count == Int(bytes[6]) | Int(bytes[7]) << 8, "as many keys as it says")
        check(records.last?.upperBound ?? 8 == bytes.count - Digest.size, "nothing is left over")
      } catch {
        expectTold(error)
      }
    }
  }
}
