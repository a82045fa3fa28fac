@testable import Keepsake

/// The bytes with their SHA-256 appended, as an attacker who knows the format would write them.
private func summed(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
  guard let sum = try? Digest.sha256(bytes) else { fatalError("no sum") }
  return Array(bytes) + sum
}

/// Expects the error of an unreadable file, with its path.
private func checkUnreadable(_ error: StorageError) {
  check(
    error.code == .damaged || error.code == .unsupportedVersion, "the code fits an unreadable file")
  check(error.path == "/vault", "the error has the path")
}

/// A vault header, with and without a correct checksum.
@Sendable func tryVaultHeader(_ input: UnsafeRawBufferPointer) {
  for bytes in [Array(input), summed(input)] {
    do throws(StorageError) {
      let header = try VaultHeader(bytes, path: "/vault")
      check(try header.bytes() == bytes, "a header is written with the same bytes")
      check(header.vaultID.count == VaultHeader.idSize, "an id has its size")
      check(header.slots.allSatisfy(\.opensVault), "no presence slot is in clear")
      _ = (
        header.masterSlot, header.presenceSlot,
        PassphraseWorkBudget.allow(header.slots, maxLogN: 19)
      )
    } catch {
      checkUnreadable(error)
    }
  }
}

/// The decrypted keys of a vault.
@Sendable func tryVaultKeys(_ input: UnsafeRawBufferPointer) {
  guard let pages = try? KeyPages(count: XAES.keySize + input.count) else { return }
  if !input.isEmpty { pages.bytes[part: XAES.keySize...].copyMemory(from: input) }
  guard let ring = try? KeyRing(pages) else { return }
  check(ring.hasKey(ring.primaryID), "the primary key exists")
  let slots = ring.sealedSlots.flatMap(\.bytes)
  let keysEnd = 4 + ring.nameKeyCount * XAES.keySize + 8 + ring.keyIDs.count * (4 + XAES.keySize)
  check(input.count == keysEnd + 2 + slots.count, "no bytes remain")
  check(input.suffix(slots.count).elementsEqual(slots), "slots are written with the same bytes")
  check(ring.sealedSlots.allSatisfy { !$0.opensVault }, "only presence slots are sealed")
  for id in ring.keyIDs {
    check(ring.withEntryKey(id) { $0.count } == XAES.keySize, "each key has its size")
  }
}

/// The header of an entry, and its two boxes after decryption.
@Sendable func tryVaultEntry(_ input: UnsafeRawBufferPointer) {
  let path = EntryPath(vault: "", directoryName: "", fileName: "")
  if let header = try? EntryHeader(input, at: path) {
    let bytes = [UInt8](count: EntryHeader.size) { header.write(to: &$0) }
    check(input.starts(with: bytes), "a header is written with the same bytes")
    check(header.namesLength <= EntryHeader.maxNamesLength, "names are within their limit")
    check(
      header.fileLength > header.namesLength && header.fileLength > header.valueLength,
      "lengths do not overflow")
  }
  let plaintext = UnsafeRawBufferPointer(rebasing: input.dropFirst(EntryHeader.size))
  if let names = EntryNames(plaintext) {
    let bytes = [UInt8](count: names.length) { names.write(to: &$0) }
    check(bytes.count % 64 == 0, "names are padded")
    check(bytes.withBytes { EntryNames($0) } == names, "names read back")
    let length = 24 + names.service.utf8.count + names.key.utf8.count
    check(plaintext.prefix(length).elementsEqual(bytes.prefix(length)), "all bytes read back")
  }
  if let (kind, range) = PaddedValue.parse(plaintext) {
    check(range.upperBound <= plaintext.count, "a value is inside its box")
    var written = [UInt8](repeating: 1, count: PaddedValue.paddedLength(range.count))
    check(written.count >= range.upperBound, "padding cuts nothing off")
    written.withUnsafeMutableBytes { PaddedValue.write(kind, plaintext[part: range], to: $0) }
    check(
      plaintext.starts(with: written[..<range.upperBound]), "a value is written with the same bytes"
    )
    check(written[range.upperBound...].allSatisfy { $0 == 0 }, "padding is zeros")
    _ = Payload.Kind(rawValue: kind)?.value(of: plaintext[part: range])
  }
}

/// A key file without the sum at its end.
@Sendable func tryKeyFile(_ input: UnsafeRawBufferPointer) {
  let file = KeyFile(path: "/vault", timeout: .seconds(1))
  for bytes in [Array(input), summed(input)] {
    bytes.withUnsafeBytes { bytes in
      do throws(StorageError) {
        try file.validate(bytes)
        let records = KeyFile.records(bytes)
        check(records.count == Int(bytes[6]) | Int(bytes[7]) << 8, "as many keys as it says")
        check(8 + records.map(\.count).reduce(0, +) == bytes.count - Digest.size, "no bytes remain")
      } catch {
        checkUnreadable(error)
      }
    }
  }
}
