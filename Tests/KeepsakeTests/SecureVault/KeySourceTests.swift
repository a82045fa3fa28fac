import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Key sources, and changing from one to another.
@Suite struct KeySourceTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private static func passphrase(_ text: String) -> SecureVault.KeySource {
    SecureVault.KeySource(.passphrase(text, logN: 10))
  }

  @Test func createsAKeyFileThatOnlyTheUserMayOpen() throws {
    try directory.secrets().set("v", forKey: "k")
    for (name, mode): (String, UInt32) in [
      ("state/vault.key", 0o600), ("vault/vault.hdr", 0o600), ("vault", 0o700),
    ] {
      #expect(try directory.status(name)?.mode == mode, "\(name)")
    }
    #expect(try directory.secrets().get("k") == "v")
    #expect(try directory.secrets().protection == .keyFile)
  }

  @Test func readingCreatesNoFiles() throws {
    let store = directory.secrets()
    #expect(try store.get("k") == nil && store.keys() == [] && !store.contains("k"))
    #expect(try store.protection == nil && store.isLocked == false && store.entry("k") == nil)
    try store.remove("k")
    try store.removeAll()
    try store.rotateKeys()
    try store.eraseVault()
    #expect(try directory.names() == [])
  }

  /// scrypt would take it for the same without the zeros.
  @Test(arguments: ["", "\0", "correct horse\0"])
  func aPassphraseThatIsNoneIsRefused(_ text: String) throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    expectFailure(.misuse) { try store.protect(with: Self.passphrase(text)) }
    expectFailure(.misuse) { try store.addRecovery(passphrase: text) }
    try store.protect(with: Self.passphrase("correct horse"))
    let locked = directory.secrets(keySources: [])
    #expect(throws: StorageError.self) { try locked.unlock(passphrase: text) }
    #expect(try locked.isLocked)
  }

  @Test func prefersACredentialToAKeyFile() throws {
    let key = Data((0..<48).map { UInt8($0) })
    try directory.makeDirectory("credentials")
    try key.write(to: directory.file("credentials/vault.key"))
    let environment = ["CREDENTIALS_DIRECTORY": directory.file("credentials").path]
    try directory.secrets(environment: environment).set("v", forKey: "k")
    #expect(try directory.secrets(environment: environment).get("k") == "v")
    #expect(try directory.secrets().protection == .credential("vault.key"))
    #expect(!FileManager.default.fileExists(atPath: directory.file("state/vault.key").path))
    let other = #expect(throws: StorageError.self) {
      try directory.secrets(environment: environment).protect(with: .credential("other"))
    }
    #expect(other?.failureReason?.contains(#"the credential "other" is missing"#) == true)
    // Without the credential the vault stays closed, and no key file is created instead.
    let missing = expectFailure(.locked) { _ = try directory.secrets().get("k") }
    #expect(missing?.description.contains("LoadCredential") == true)
    #expect(throws: StorageError.self) { try directory.secrets().set("w", forKey: "k") }
    // Another credential does not open it.
    try Data(repeating: 1, count: 48).write(to: directory.file("credentials/vault.key"))
    expectFailure(.locked) {
      _ = try directory.secrets(environment: environment).get("k")
    }
    // A credential that can be guessed is refused.
    try Data("hunter2".utf8).write(to: directory.file("credentials/vault.key"))
    let short = #expect(throws: StorageError.self) {
      try directory.secrets(environment: environment).get("k")
    }
    #expect(short?.code == .misuse && short?.description.contains("hunter2") == false)
    try key.write(to: directory.file("credentials/vault.key"))
    #expect(try directory.secrets(environment: environment).get("k") == "v")
  }

  @Test func refusesCredentialNamesThatLeaveTheDirectory() throws {
    let environment = ["CREDENTIALS_DIRECTORY": directory.path]
    for name in ["../x", "/etc/passwd", "", "..", "a\0b"] {
      let store = directory.secrets(keySources: [.credential(name)], environment: environment)
      expectFailure(.misuse) { _ = try store.set("v", forKey: "k") }
    }
  }

  @Test func callsAClosureOnceAndFindsItByName() throws {
    let calls = Mutex(0)
    let source = SecureVault.KeySource.closure("kms") {
      calls.withLock { $0 += 1 }
      return Data(repeating: 9, count: 32)
    }
    let store = directory.secrets(keySources: [source])
    for index in 0..<10 { try store.set("v", forKey: "k\(index)") }
    #expect(calls.withLock { $0 } == 1)
    #expect(try store.protection == .closure("kms"))
    #expect(try directory.secrets(keySources: [.keyFile, source]).get("k3") == "v")
    let other = SecureVault.KeySource.closure("other") { Data(repeating: 9, count: 32) }
    expectFailure(.locked) { _ = try directory.secrets(keySources: [other]).get("k3") }
    struct Unreachable: Error { let key = "swordfish" }
    let failing = SecureVault.KeySource.closure("kms") { throw Unreachable() }
    let error = #expect(throws: StorageError.self) {
      try directory.secrets(keySources: [failing]).get("k3")
    }
    #expect(error?.description.contains("Unreachable") == true)
    #expect(error?.description.contains("swordfish") == false)
  }

  @Test func usesTheFirstAvailableSource() throws {
    let first = SecureVault.KeySource.closure("first") { Data(repeating: 1, count: 32) }
    let store = directory.secrets(keySources: [.credential("absent"), first, .keyFile])
    try store.set("v", forKey: "k")
    #expect(try store.protection == .closure("first"))
    // Without sources only `protect` creates a vault.
    let empty = try TemporaryDirectory()
    let none = empty.secrets(keySources: [])
    expectFailure(.locked) { _ = try none.set("v", forKey: "k") }
    #expect(try empty.names() == [])
    try none.protect(with: Self.passphrase("p"))
    try none.set("v", forKey: "k")
    #expect(try none.get("k") == "v")
  }

  @Test func opensACopiedVaultWithItsPassphrase() throws {
    let (here, there) = (try TemporaryDirectory(), try TemporaryDirectory())
    let store = here.secrets("com.app.auth")
    try store.set("tok", forKey: "accessToken")
    try store.protect(with: Self.passphrase("open sesame"))
    try FileManager.default.copyItem(at: here.file("vault"), to: there.file("vault"))
    let copy = there.secrets("com.app.auth")
    #expect(try copy.isLocked && copy.protection == .passphrase)
    expectFailure(.locked) { _ = try copy.get("accessToken") }
    expectFailure(.wrongPassphrase) { _ = try copy.unlock(passphrase: "sesame") }
    try copy.unlock(passphrase: "open sesame")
    #expect(try copy.get("accessToken") == "tok")
    // The same in a directory of the caller, with a key source instead of `unlock`.
    let service = SecureVault.Service("com.app.auth", in: here.url)
    let elsewhere = try TemporaryDirectory()
    let reader = elsewhere.secrets(service, keySources: [Self.passphrase("open sesame")])
    #expect(try reader.get("accessToken") == "tok" && !reader.isLocked)
    #expect(try elsewhere.names() == [])
  }

  @Test func oldKeysOpenNothingNew() throws {
    let store = directory.secrets()
    try store.set("old", forKey: "k")
    let oldHeader = try directory.bytes(of: "vault/vault.hdr")
    let oldKeyFile = try directory.bytes(of: "state/vault.key")
    try store.protect(with: Self.passphrase("p"))
    try store.set("new", forKey: "k")
    try store.set("newer", forKey: "k2")
    // The old key file and the new header.
    try directory.write(oldKeyFile, to: "state/vault.key")
    expectFailure(.locked) { _ = try directory.secrets().get("k") }
    // The old key file and the old header.
    let newHeader = try directory.bytes(of: "vault/vault.hdr")
    try directory.write(oldHeader, to: "vault/vault.hdr")
    for key in ["k", "k2"] { #expect(try directory.secrets().get(key) == nil) }
    try directory.write(newHeader, to: "vault/vault.hdr")
    let reader = directory.secrets(keySources: [Self.passphrase("p")])
    #expect(try reader.get("k") == "new" && reader.get("k2") == "newer")
    // From one passphrase to another, and back to a key file, which gets a new key.
    try reader.protect(with: Self.passphrase("q"))
    expectFailure(.wrongPassphrase) {
      _ = try directory.secrets(keySources: []).unlock(passphrase: "p")
    }
    try reader.protect(with: .keyFile)
    #expect(try directory.secrets().get("k") == "new")
    try directory.write(oldKeyFile, to: "state/vault.key")
    expectFailure(.locked) { _ = try directory.secrets().get("k") }
  }

  @Test func unlockAndLockedCallsThrowTheRightErrors() throws {
    let store = directory.secrets()
    expectFailure(.notFound) { _ = try store.unlock(passphrase: "p") }
    try store.set("v", forKey: "k")
    expectFailure(.misuse) { _ = try store.unlock(passphrase: "p") }
    try store.lock()
    #expect(try store.isLocked)
    for call in [
      { _ = try store.get("k") }, { try store.set("w", forKey: "k") }, { try store.remove("k") },
      { _ = try store.keys() }, { _ = try store.contains("k") }, { try store.rotateKeys() },
      { try store.removeAll() }, { try store.protect(with: .keyFile) },
    ] as [() throws -> Void] {
      expectFailure(.locked) { _ = try call() }
    }
    // Another store, like another process, has keys of its own.
    #expect(try directory.secrets().get("k") == "v")
    try store.unlock()
    #expect(try store.get("k") == "v" && !store.isLocked)
    expectFailure(.misuse) { _ = try store.protect(with: Self.passphrase("")) }
    #expect(try store.protection == .keyFile)
  }

  @Test func erasesAVaultThatItCannotOpen() throws {
    let store = directory.secrets()
    try store.protect(with: Self.passphrase("forgotten"))
    try store.set("v", forKey: "k")
    let other = directory.secrets()
    expectFailure(.locked) { _ = try other.set("w", forKey: "k") }
    try other.eraseVault()
    #expect(try other.get("k") == nil && other.keys() == [])
    try other.set("w", forKey: "k")
    #expect(try other.protection == .keyFile && other.get("k") == "w")
  }

  @Test func refusesATooLongSourceNameBeforeWriting() throws {
    func source(_ count: Int) -> SecureVault.KeySource {
      .closure(String(repeating: "n", count: count)) { Data(repeating: 1, count: 32) }
    }
    expectFailure(.misuse) {
      try directory.secrets(keySources: [source(256)]).set("v", forKey: "k")
    }
    #expect(try directory.names() == [])
    let store = directory.secrets(keySources: [source(255)])
    try store.set("v", forKey: "k")
    #expect(try directory.secrets(keySources: [source(255)]).get("k") == "v")
    expectFailure(.misuse) { try store.protect(with: source(300)) }
    #expect(try directory.secrets(keySources: [source(255)]).get("k") == "v")
  }

  @Test func aVaultCanBeCreatedAfterLock() throws {
    let store = directory.secrets()
    try store.lock()
    expectFailure(.notFound) { try store.unlock(passphrase: "p") }
    try store.protect(with: Self.passphrase("p"))
    #expect(try store.protection == .passphrase && !store.isLocked)
  }

  @Test func protectSucceedsWhenLockedInTheMeantime() throws {
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    try store.set("v", forKey: "k")
    // Locks when the header is in place, before any secret is sealed again.
    try interrupt(before: .fsync, at: "/vault") {
      Thread.detachNewThread { try? store.lock() }
      // It begins without waiting for this call.
      try waitUntil("the lock has begun") { try store.isLocked }
    } in: {
      try store.protect(with: Self.passphrase("p"))
    }
    #expect(try store.isLocked && store.protection == .passphrase)
    try store.unlock(passphrase: "p")
    #expect(try store.get("k") == "v")
    // The rest of the work is reported, and the next call does it.
    #expect(failures.all.map(\.code) == [.locked])
    try store.rotateKeys()
    #expect(try store.get("k") == "v")
  }

  @Test func unlockLeavesAnOpenVaultOpen() throws {
    let other = directory.secrets()
    try other.protect(with: Self.passphrase("p"))
    let store = directory.secrets(keySources: [])
    try store.unlock(passphrase: "p")
    try store.unlock()
    try other.rotateKeys()
    try store.unlock()
    try store.set("v", forKey: "k")
    try other.protect(with: Self.passphrase("q"))
    expectFailure(.locked) { try store.unlock() }
  }

  /// Another vault takes its place while a slow source returns the first one's key, and is opened.
  @Test func aVaultThatWasReplacedDuringUnlockDoesNotReplaceTheOpenOne() throws {
    let directory = directory
    let isSlow = Mutex(false)
    let kept = Mutex<SecureVault.Store?>(nil)
    let source = SecureVault.KeySource.closure("slow") {
      if isSlow.withLock({ $0 }) {
        try FileSystem.rename(directory.file("vault").path, to: directory.file("first").path)
        try FileSystem.rename(directory.file("second").path, to: directory.file("vault").path)
        #expect(try kept.withLock { $0 }?.get("k") == "second")
      }
      return Data(repeating: 7, count: 32)
    }
    try directory.secrets().set("second", forKey: "k")
    try FileSystem.rename(directory.file("vault").path, to: directory.file("second").path)
    try directory.secrets(keySources: [source]).set("first", forKey: "k")
    let store = directory.secrets(keySources: [source, .keyFile])
    kept.withLock { $0 = store }
    // It holds the source, which holds it.
    defer { kept.withLock { $0 = nil } }
    isSlow.withLock { $0 = true }
    expectFailure(.accessDenied, reason: "replaced by another one") { try store.unlock() }
    #expect(try store.get("k") == "second")
  }

  @Test func theFailureHandlerMayLockTheVault() throws {
    let kept = Mutex<SecureVault.Store?>(nil)
    let count = Mutex(0)
    let finder = DirectoryFinder(
      app: "test", chosen: .init(data: directory.url, state: directory.file("state")))
    let scope = StorageScope(finder: finder) { _ in
      count.withLock { $0 += 1 }
      // A call that waited for the one that failed would time out.
      #expect(throws: Never.self) { try kept.withLock { $0 }?.lock() }
    }
    defer { scope.close() }
    let store = scope.vault("standard")
    kept.withLock { $0 = store }
    try store.set("v", forKey: "k")
    try store.set("w", forKey: "l")
    let path = try directory.secretPath("k")
    try Bytes.write(try Bytes.read(path)[40] ^ 1, at: 40, of: path)
    #expect(try store.keys() == ["l"])
    #expect(try store.isLocked && count.withLock { $0 } == 1)
  }
}
