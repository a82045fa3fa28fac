import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Secrets that require the user's presence.
@Suite(.singleThreaded, .quickPassphrases) struct PresenceTests {
  private let directory: TemporaryDirectory
  private let user = FakeUser()
  private let store: SecureVault.Store

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    store = directory.secrets(authenticate: user.answer)
  }

  @Test func asksOnEachReadAndWrite() throws {
    try store.set("1234", forKey: "pin", access: .userPresence)
    #expect(user.requests.map(\.isNew) == [true])
    #expect(try store.get("pin", reason: "Unlock notes") == "1234")
    #expect(try store.get("pin") == "1234")
    #expect(user.reasons.dropFirst() == ["Unlock notes", "Read the secret pin"])
    #expect(user.requests.map(\.isNew) == [true, false, false])
    // None of these calls asks.
    #expect(try store.contains("pin") && store.keys() == ["pin"])
    #expect(try store.entry("pin")?.access == .userPresence)
    try store.rotateKeys()
    #expect(user.requests.count == 3)
    #expect(try store.get("pin") == "1234")
    // The same for data and models.
    try store.set(Data([1, 2]), forKey: "data", access: .userPresence)
    #expect(try store.getData("data") == Data([1, 2]))
    try store.set(["a": 1], forKey: "model", access: .userPresence)
    #expect(try store.model("model") == ["a": 1])
    #expect(try store.withSecret("pin") { (bytes: RawSpan) in bytes.byteCount } == 4)
  }

  @Test func throwsWithoutTheRightPassphrase() throws {
    try store.set("1234", forKey: "pin", access: .userPresence)
    user.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try store.get("pin") }
    expectFailure(.wrongPassphrase) {
      _ = try store.set("5678", forKey: "pin", access: .userPresence)
    }
    user.answer = nil
    expectFailure(.locked) { _ = try store.get("pin") }
    expectFailure(.locked) { _ = try directory.secrets().get("pin") }
    struct Secretive: Error { let typed = "swordfish" }
    let failing = directory.secrets(authenticate: { _ in throw Secretive() })
    let error = #expect(throws: StorageError.self) { try failing.get("pin") }
    #expect(error?.code == .locked && error?.description.contains("swordfish") == false)
    user.answer = "swordfish"
    #expect(try store.get("pin") == "1234")
  }

  @Test func setKeepsTheAccessUnlessOneIsGiven() throws {
    try store.set("1", forKey: "pin", access: .userPresence)
    try store.set("2", forKey: "pin")
    #expect(try store.entry("pin")?.access == .userPresence)
    #expect(try store.get("pin") == "2")
    try store.set("3", forKey: "pin", access: .whenUnlocked)
    #expect(try store.entry("pin")?.access == .whenUnlocked)
    #expect(try directory.secrets().get("pin") == "3")
    let key = SecureVault.Key<String>("pin", access: .userPresence)
    try store.set("4", for: key)
    #expect(try store.get(key) == "4" && store.entry(key)?.access == .userPresence)
  }

  @Test func usesTheVaultsPassphrase() throws {
    try store.protect(with: SecureVault.KeySource(.passphrase("vault", logN: 10)))
    expectFailure(.wrongPassphrase) {
      _ = try store.set("1", forKey: "pin", access: .userPresence)
    }
    user.answer = "vault"
    try store.set("1", forKey: "pin", access: .userPresence)
    #expect(user.requests.allSatisfy { !$0.isNew })
    #expect(try store.get("pin") == "1")
    // Secrets that require presence get the new passphrase, once the current one is entered.
    let new = SecureVault.KeySource(.passphrase("new", logN: 10))
    user.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try store.protect(with: new) }
    #expect(try directory.secrets(keySources: [new]).isLocked == false)
    user.answer = "vault"
    try store.protect(with: new)
    expectFailure(.wrongPassphrase) { _ = try store.get("pin") }
    user.answer = "new"
    #expect(try store.get("pin") == "1")
    // With a key file they keep their passphrase.
    try store.protect(with: .keyFile)
    #expect(try store.get("pin") == "1")
  }

  /// The first process has read the header that had the old key.
  @Test func storesUnderTheKeyThatAnotherProcessHasMadeSince() throws {
    let (one, two) = (store, directory.secrets(authenticate: user.answer))
    try one.set("1", forKey: "pin", access: .userPresence)
    try one.remove("pin")
    user.answer = "another"
    try two.set("2", forKey: "pin2", access: .userPresence)
    try one.set("3", forKey: "pin3", access: .userPresence)
    #expect(try two.get("pin2") == "2" && two.get("pin3") == "3")
  }

  /// Another program puts the earlier header back before the one with the key is durable.
  @Test func aHeaderThatIsPutBackGetsTheKeyAgain() throws {
    try store.set("v", forKey: "k")
    let (header, copy) = (directory.headerPath, directory.path + "/header")
    #expect(try FileSystem.link(header, to: copy) == true)
    try interrupt(before: .fsync, at: "/vault") {
      try FileSystem.rename(copy, to: header)
    } in: {
      try store.set("1234", forKey: "pin", access: .userPresence)
    }
    #expect(try directory.secrets(authenticate: user.answer).get("pin") == "1234")
  }

  /// The first process does not have the keys that the other secrets are under now.
  @Test func asksForANewPassphraseAfterAnotherProcessHasReplacedTheKeys() throws {
    try store.set("v", forKey: "k")
    try store.set("1", forKey: "pin", access: .userPresence)
    try store.remove("pin")
    try directory.secrets().rotateKeys()
    user.answer = "another"
    try store.set("2", forKey: "pin", access: .userPresence)
    #expect(user.requests.last?.isNew == true)
    #expect(try store.get("pin") == "2")
  }

  /// A copy of the data directory of a vault with a key file includes the header. A short
  /// passphrase is soon found by trying all of them against a slot.
  @Test func theHeaderDoesNotShowThePresenceSlot() throws {
    try store.set("1234", forKey: "pin", access: .userPresence)
    for _ in 0..<2 {
      let bytes = try Bytes.read(directory.headerPath)
      let header = try VaultHeader(bytes, path: directory.headerPath)
      #expect(header.slots.map(\.purpose) == [.master])
      let session = try directory.openVault()
      let slot = try #require(session.header.presenceSlot)
      #expect(Data(bytes).range(of: Data(slot.bytes.suffix(176))) == nil)
      #expect(try store.get("pin") == "1234")
      _ = try store.addRecovery()
      try store.removeAllRecoveries()
      try store.rotateKeys()
    }
    user.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try store.get("pin") }
  }

  @Test func aTypedKeyThatRequiresPresenceRefusesASecretWithoutIt() throws {
    let key = SecureVault.Key<String>("pin", access: .userPresence)
    #expect(try store.get(key) == nil)
    // Another program has replaced the secret, which takes no passphrase.
    try store.set("1", for: key)
    try store.set("planted", forKey: "pin", access: .whenUnlocked)
    let error = #expect(throws: StorageError.self) { try store.get(key) }
    #expect(error?.code == .accessDenied && error?.key == "pin" && error?.operation == "get")
    #expect(error?.path == (try directory.secretPath("pin")))
    #expect(try store.get("pin") == "planted")
    #expect(try store.get(SecureVault.Key<String>("pin")) == "planted")
    try store.set("2", for: key)
    #expect(try store.get(key) == "2")
  }

  /// Another program that has the vault's key has stored it.
  @Test func aBoxThatIsTooShortIsDamaged() throws {
    try store.set("1", forKey: "pin", access: .userPresence)
    let session = try directory.openVault()
    let path = try session.entryPath(service: "standard", key: "pin")
    let names = EntryNames(
      created: WallClock.now, modified: WallClock.now, service: "standard", key: "pin")
    for count in [0, 1, XAES.overhead - 1] {
      var cipher: XAES?
      let entry = try [UInt8](repeating: 0, count: count).withBytes { box throws(StorageError) in
        try session.sealEntry(
          names, PaddedValue.boxKind, box, at: path, isPresenceRequired: true, reusing: &cipher)
      }
      _ = try FileSystem.replace(path.path, with: Array(entry.bytes), mode: 0o600, durable: false)
      expectFailure(.damaged) { _ = try store.get("pin") }
    }
  }

  @Test func addRefusesBeforeItAsks() throws {
    #expect(try store.add("1", forKey: "pin", access: .userPresence))
    let count = user.requests.count
    #expect(try !store.add("2", forKey: "pin", access: .userPresence))
    #expect(user.requests.count == count)
    #expect(try store.get("pin") == "1" && store.entry("pin")?.access == .userPresence)
  }

  @Test func makesNoNewKeyWhenTheHeaderHasLostThePresenceSlot() throws {
    try store.set("plain", forKey: "k")
    let before = try directory.bytes(of: "vault/vault.hdr")
    try store.set("1", forKey: "pin", access: .userPresence)
    let after = try directory.bytes(of: "vault/vault.hdr")
    try directory.write(before, to: "vault/vault.hdr")
    expectFailure(.damaged) { _ = try directory.secrets(authenticate: user.answer).get("pin") }
    expectFailure(.damaged) {
      _ = try store.set("2", forKey: "pin2", access: .userPresence)
    }
    try directory.write(after, to: "vault/vault.hdr")
    #expect(try directory.secrets(authenticate: user.answer).get("pin") == "1")
  }

  @Test func theAuthenticateClosureMayLockTheVault() throws {
    let box = Mutex<SecureVault.Store?>(nil)
    let store = directory.secrets(authenticate: { _ in
      try box.withLock { $0 }?.lock()
      return "swordfish"
    })
    try store.set("1", forKey: "pin", access: .userPresence)
    box.withLock { $0 = store }
    // A lock() that waited for the call that asks would time out.
    expectFailure(.locked) {
      _ = try store.set("2", forKey: "pin", access: .userPresence)
    }
    #expect(try store.isLocked)
    try store.unlock()
    box.withLock { $0 = nil }
    #expect(try store.get("pin") == "1")
  }

  @Test func theFirstSuchSecretSurvivesAConcurrentProtect() throws {
    try store.set("v", forKey: "k")
    try store.set("0", forKey: "gone", access: .userPresence)
    try store.remove("gone")
    // No secret requires presence when `protect` checks; one does when it replaces the header.
    let source = SecureVault.KeySource(.passphrase("p", logN: 10))
    let other = directory.secrets(authenticate: user.answer)
    try interruptBeforeLocking {
      try other.set("1", forKey: "pin", access: .userPresence)
    } in: {
      try store.protect(with: source)
    }
    // It gets the new passphrase, and the user was asked for the current one.
    #expect(user.reasons.last == "To change the passphrase, enter the current one")
    user.answer = "p"
    let reader = directory.secrets(keySources: [source], authenticate: user.answer)
    #expect(try reader.get("pin") == "1" && reader.get("k") == "v")
  }

  @Test func aSecretWithDamagedNamesKeepsItsAccess() throws {
    try store.set("1", forKey: "pin", access: .userPresence)
    let path = try directory.secretPath("pin")
    let names = EntryHeader.size + 30
    try Bytes.write(try Bytes.read(path)[names] ^ 1, at: names, of: path)
    let count = user.reasons.count
    try store.set("2", forKey: "pin")
    #expect(user.reasons.count > count, "storing it asks the user")
    #expect(try Bytes.read(path)[6] & 1 == 1, "reading it asks the user, too")
    #expect(try store.get("pin") == "2")
  }

  @Test func aFlippedFlagDoesNotLoseTheKey() throws {
    try store.set("1", forKey: "pin", access: .userPresence)
    let path = try directory.secretPath("pin")
    let good = try Bytes.read(path)
    try Bytes.write(good[6] ^ 1, at: 6, of: path)
    try store.protect(with: .keyFile)
    user.answer = "another"
    expectFailure(.wrongPassphrase) {
      try store.set("2", forKey: "pin2", access: .userPresence)
    }
    // With the right file restored it opens, because its key was kept.
    try Bytes.write(good, to: path)
    user.answer = "swordfish"
    #expect(try directory.secrets(authenticate: user.answer).get("pin") == "1")
  }

  @Test(arguments: [true, false])
  func setKeepsTheAccessOfAConcurrentSet(isFirst: Bool) throws {
    try store.set("0", forKey: "pin")
    // If there is such a secret already, the next one does not change the header.
    if !isFirst { try store.set("0", forKey: "other", access: .userPresence) }
    let other = directory.secrets(authenticate: user.answer)
    // Another set requires presence after this one has read the access, before it takes the lock.
    try interruptBeforeLocking {
      try other.set("1", forKey: "pin", access: .userPresence)
    } in: {
      try store.set("2", forKey: "pin")
    }
    #expect(try store.entry("pin")?.access == .userPresence && store.get("pin") == "2")
  }
}
