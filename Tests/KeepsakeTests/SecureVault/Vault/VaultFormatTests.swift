import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What the format refuses, and what it does not tell apart.
@Suite(.singleThreaded, .quickPassphrases) struct VaultFormatTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test func aHeaderOpensOnlyInItsContext() throws {
    let ring = try KeyRing.makeNew()
    let id = try SystemRandom.bytes(VaultHeader.idSize)
    for (context, other) in [("", "com.example.two"), ("com.example.one", "com.example.two")] {
      let bytes = try ring.makeHeader(vaultID: id, slots: [], context: context).bytes()
      func opens(in context: String) throws -> Bool {
        let header = try VaultHeader(bytes, path: "header", context: context)
        let opened = try KeyRing.open(header) { key throws(StorageError) in
          ring.withMasterKey { key.copyMemory(from: $0) }
        }
        return opened != nil
      }
      #expect(try opens(in: context) && !opens(in: other))
    }
  }

  /// There are several while entries are moved to new names.
  @Test func aKeySetHasOneNameKeyOrMore() throws {
    func ring(nameKeys: UInt32, room: Int) throws -> KeyRing? {
      let pages = try KeyPages(count: 32 + 4 + room * 32 + 8 + 36 + 2)
      var writer = ByteWriter(pages.bytes[part: 32...])
      writer.append(nameKeys)
      for number in 0..<room {
        writer.append(UInt8(number))
        writer.appendZeros(31)
      }
      writer.append(UInt32(7))
      writer.append(UInt32(1))
      writer.append(UInt32(7))
      writer.appendZeros(34)
      return try KeyRing(pages)
    }
    #expect(try ring(nameKeys: 0, room: 0) == nil)
    for count in [1, 2, 3] {
      let ring = try #require(try ring(nameKeys: UInt32(count), room: count))
      #expect(ring.primaryID == 7 && ring.nameKeyCount == count)
      for number in 0..<count { #expect(ring.withNameKey(number) { $0[0] } == UInt8(number)) }
    }
    for count in [2, 4, .max] as [UInt32] { #expect(try ring(nameKeys: count, room: 3) == nil) }
  }

  @Test func theSameBytesAsTwoKindsOfSecretGiveUnrelatedKeys() throws {
    let ring = try KeyRing.makeNew()
    let id = try SystemRandom.bytes(VaultHeader.idSize)
    let bytes = [UInt8](repeating: 7, count: 32)
    let kinds: [KeySlot.Kind] = [.keyFile, .credential, .closure, .recoveryCode]
    for kind in kinds {
      let secret = SlotSecret(kind, try bytes.withBytes(SecretBytes.init(copying:)))
      let slot = try ring.makeSlot(.recovery, vaultID: id, for: secret)
      for other in kinds {
        var changed = slot.bytes
        changed[0] = other.rawValue
        #expect(try KeySlot(changed).isOpened(by: secret.bytes) == (kind == other))
      }
    }
  }

  @Test(arguments: [("caf\u{E9}", "cafe\u{301}"), ("cafe\u{301}", "caf\u{E9}")])
  func aPassphraseOpensInEachNormalForm(chosen: String, typed: String) throws {
    let user = Locked(chosen)
    let store = directory.secrets(
      keySources: [], authenticate: { _ in user.withLock { $0 } })
    try store.protect(with: .passphrase(chosen))
    try store.set("v", forKey: "k", access: .userPresence)
    try store.addRecovery(passphrase: "2" + chosen)
    user.withLock { $0 = typed }
    for passphrase in [typed, "2" + typed] {
      try store.lock()
      try store.unlock(passphrase: passphrase)
      #expect(try store.get("k") == "v")
    }
    let source = SecureVault.KeySource.passphrase(typed)
    #expect(try directory.secrets(keySources: [source]).contains("k"))
    #expect(throws: StorageError.self) { try store.unlock(passphrase: "cafe") }
  }

  @Test func aValueAboveTheBoundIsRefusedBeforeAnythingIsWritten() throws {
    let vault = directory.vault()
    let byte = [UInt8](repeating: 0, count: 1)
    expectFailure(.misuse, reason: "1073741824 bytes") {
      try byte.withUnsafeBytes { byte in
        // Nothing reads it.
        let value = UnsafeRawBufferPointer(start: byte.baseAddress, count: (1 << 30) + 1)
        try vault.write(
          NewSecret(kind: .data, value: value, service: "standard", key: "k", access: nil))
      }
    }
    #expect(try directory.names() == [])

    try directory.secrets().set("v", forKey: "k")
    let path = try directory.secretPath("k")
    let largest = PaddedValue.maxPaddedLength + XAES.overhead
    #expect(largest > 1 << 30 && largest < 5 << 28)
    for (length, reason) in [(largest, "length"), (largest + 1, "no valid header")] {
      try Bytes.write(Bytes.put(UInt64(length), at: 16, in: Bytes.read(path)), to: path)
      expectFailure(.damaged, reason: reason) { _ = try directory.secrets().get("k") }
    }
  }

  // MARK: Another vault in its place

  /// Another process erases the vault, and stores a secret in the next one.
  @Test func anotherVaultInItsPlaceIsAnErrorUntilLock() throws {
    let source = SecureVault.KeySource.passphrase("correct horse")
    let store = directory.secrets(keySources: [source])
    try store.set("v", forKey: "k")
    let other = directory.secrets(keySources: [source])
    try other.eraseVault()
    try other.set("theirs", forKey: "k")
    let before = try directory.contents()
    for call in [
      { _ = try store.get("k") }, { try store.set("w", forKey: "k") }, { _ = try store.keys() },
      { try store.remove("k") }, { try store.rotateKeys() }, { try store.protect(with: source) },
      { try store.unlock() }, { try store.unlock(passphrase: "correct horse") },
      { _ = try store.addRecovery() },
    ] {
      let error = expectFailure(.accessDenied, reason: "replaced by another one", call)
      #expect(error?.path == directory.headerPath && error?.remedy.contains("lock()") == true)
    }
    #expect(try directory.contents() == before)
    try store.lock()
    try store.unlock(passphrase: "correct horse")
    #expect(try store.get("k") == "theirs")
  }

  /// What this process does to the vault itself is expected.
  @Test func aVaultThatThisProcessErasesOrRestoresIsFollowedByAnother() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    try store.backUp(to: directory.file("backup").path, keyFile: nil)
    try store.eraseVault()
    try store.set("w", forKey: "k")
    #expect(try store.get("k") == "w")
    _ = try store.prepareRestore(from: directory.file("backup").path, keyFile: nil).commit()
    #expect(try store.get("k") == "v")
    // Another process erases it, and this one creates the next.
    try directory.secrets().eraseVault()
    #expect(try store.get("k") == nil)
    try store.set("x", forKey: "k")
    #expect(try store.get("k") == "x")
  }
}
