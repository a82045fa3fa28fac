import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// The master key in the keyring of the login. Stores here share nothing in memory, so another
/// store is like another process; `VaultProcessTests` uses other processes.
@Suite(.singleThreaded, .quickPassphrases, .enabled(if: Keyring.isAvailable))
struct RememberingTests {
  private let directory: TemporaryDirectory
  private let source = SecureVault.KeySource(.passphrase("correct horse", logN: 10))

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets(keySources: [source])
    try store.set("v", forKey: "k")
  }

  private func make(_ failures: Failures = Failures()) -> SecureVault.Store {
    directory.secrets(failures: failures, keySources: [])
  }

  private var keyName: String {
    get throws { try Keyring.name(ofHeader: directory.headerPath) }
  }

  /// A store that has opened the vault and had the key remembered, and the key's name.
  private func makeRemembered() throws -> (SecureVault.Store, name: String) {
    let store = make()
    try store.unlock(passphrase: "correct horse", rememberFor: .hours(1))
    return (store, try keyName)
  }

  @Test func theNextStoreOpensTheVaultUntilLock() throws {
    let first = make()
    try first.unlock(passphrase: "correct horse")
    #expect(try make().isLocked, "nothing is remembered unless that is asked for")
    try first.lock()
    try first.unlock(passphrase: "correct horse", rememberFor: .minutes(15))
    let second = make()
    #expect(try !second.isLocked && second.get("k") == "v")
    // A rotation keeps the master key.
    try second.rotateKeys()
    #expect(try make().get("k") == "v")
    // unlock() uses it after lock() only if it is remembered again.
    try second.lock()
    expectFailure(.locked) { try second.unlock() }
    expectFailure(.locked) { _ = try make().get("k") }
    #expect(try make().isLocked && Keyring.find(try keyName) == nil)
    #expect(try first.get("k") == "v", "a process that has opened the vault keeps it open")
    // A store that has not opened the vault makes all forget the key, too.
    try first.unlock(passphrase: "correct horse", rememberFor: .hours(1))
    try make().lock()
    #expect(try make().isLocked)
  }

  /// Another program locks it, or the remembered key expires.
  @Test func aVaultThatIsUnlockedAtTheTerminalStaysOpen() throws {
    let (other, store) = (try makeRemembered().0, make())
    #expect(try store.unlockAtTerminal())
    try other.lock()
    #expect(try store.get("k") == "v")
  }

  /// The remembered key takes the place of a key source that fails.
  @Test func aKeySourceThatFailsDoesNotHideTheRememberedKey() throws {
    try directory.secrets(keySources: [source]).protect(with: .keyFile)
    let code = try directory.secrets().addRecovery()
    try FileSystem.unlink(directory.file("state/vault.key").path)
    expectFailure(.locked) { _ = try directory.secrets().get("k") }
    let store = directory.secrets()
    try store.unlock(passphrase: code, rememberFor: .hours(1))
    #expect(try directory.secrets().get("k") == "v")
    try store.lock()
    expectFailure(.locked) { _ = try directory.secrets().get("k") }
  }

  @Test func theKeyIsOnlyForPossessorsAndExpires() throws {
    let (store, name) = try makeRemembered()
    defer { try? store.lock() }
    #expect(Keyring.describe(name) == "3f000000 \(getuid()) \(getgid()) user")
    #expect(Keyring.describe(name + ":user") == "003f0000 \(getuid()) \(getgid()) user")
    // A new one replaces it, and ends earlier.
    try store.unlock(passphrase: "correct horse", rememberFor: .seconds(1))
    waitUntil("the key expires") { Keyring.find(name) == nil }
    #expect(try make().isLocked && store.get("k") == "v")
  }

  /// `su` keeps the keyring of the login and changes the user.
  @Test(.enabled(if: getuid() == 0)) func anotherUserCannotReadTheKeyInTheSameKeyring() throws {
    typealias SetUser = @convention(c) (UInt32) -> Int32
    // It changes the user of the thread alone.
    let setUser = unsafeBitCast(
      try #require(dlsym(nil, "setfsuid")), to: SetUser.self)
    let (store, name) = try makeRemembered()
    defer { try? store.lock() }
    let results = Locked([Result<Bool, any Error>]())
    let hasEnded = startThread {
      for user: UInt32 in [0, 65_534] {
        _ = setUser(user)
        let result = Result<Bool, any Error> {
          let key = try SecretBytes(count: XAES.keySize)
          return try SessionKeyring.read(name, into: key.bytes)
        }
        results.withLock { $0.append(result) }
      }
      _ = setUser(0)
    }
    hasEnded.wait()
    #expect(try results.withLock { try $0.map { try $0.get() } } == [true, false])
  }

  /// The other login forgets the key that it remembers itself.
  @Test(arguments: [true, false])
  func lockForgetsTheKeyOfAVaultThatHasLostItsPassphraseInAnotherLogin(isOpen: Bool) throws {
    let (store, name) = try makeRemembered()
    let key = try SecretBytes(count: XAES.keySize)
    #expect(try SessionKeyring.read(name, into: key.bytes))
    try directory.secrets(keySources: [source]).protect(with: .keyFile)
    try SessionKeyring.add(UnsafeRawBufferPointer(key.bytes), named: name, seconds: 3_600)
    try (isOpen ? store : make()).lock()
    #expect(Keyring.find(name) == nil && Keyring.find(name + ":user") == nil)
  }

  /// While the new key is made, another process gives the vault a passphrase, and another one is
  /// asked to remember the key.
  @Test func protectForgetsTheKeyThatWasRememberedMeanwhile() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let slow = SecureVault.KeySource.closure("slow") { [source] in
      try directory.secrets().protect(with: source)
      let next = directory.secrets(keySources: [])
      try next.unlock(passphrase: "correct horse", rememberFor: .hours(1))
      #expect(try Keyring.find(Keyring.name(ofHeader: directory.headerPath)) != nil)
      return Data(repeating: 7, count: 32)
    }
    try store.protect(with: slow)
    #expect(try store.protection == .closure("slow"))
    #expect(try Keyring.find(Keyring.name(ofHeader: directory.headerPath)) == nil)
  }

  @Test func lockForgetsTheKeyOfAVaultThatHasGotAPassphraseSince() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let first = directory.secrets()
    try first.set("v", forKey: "k")
    try directory.secrets().protect(with: source)
    let next = directory.secrets(keySources: [])
    try next.unlock(passphrase: "correct horse", rememberFor: .hours(1))
    let name = try Keyring.name(ofHeader: directory.headerPath)
    #expect(Keyring.find(name) != nil)
    try first.lock()
    #expect(Keyring.find(name) == nil)
  }

  /// Another process of the login locks a vault whose header is away.
  @Test(arguments: ["vault/vault.hdr", "vault"])
  func lockForgetsTheKeyOfAVaultThatIsMissing(moved: String) throws {
    let name = try makeRemembered().name
    try FileSystem.rename(directory.file(moved).path, to: directory.file("aside").path)
    // A failure to look for it is no success.
    let plan = FaultPlan(decide: { $0.call == .keyring ? .fail(ENOMEM) : .proceed })
    FaultPlan.$current.withValue(plan) {
      #expect(throws: StorageError.self) { try make().lock() }
    }
    #expect(Keyring.find(name) != nil)
    try make().lock()
    #expect(Keyring.find(name) == nil)
  }

  /// The vault was remembered under another path, which nothing here names.
  @Test func lockForgetsAllKeysOfTheLibraryIfTheHeaderCannotBeRead() throws {
    let (prefix, place) = ("keepsake:vault:", String(format: "%016lx", Int.random(in: 0 ... .max)))
    let name = "\(prefix)\(place):00"
    let own = try keyName
    // Those of other tests are not found.
    let plan = FaultPlan(decide: { event in
      guard event.call == .keyring, event.path != prefix else { return .proceed }
      return event.path.contains(place) || event.path.hasPrefix(own) ? .proceed : .fail(ENOKEY)
    })
    let bytes: [UInt8] = Array(repeating: 1, count: XAES.keySize)
    for (header, isKept) in [(try Bytes.read(directory.headerPath), true), ([1, 2, 3], false)] {
      try bytes.withUnsafeBytes { try SessionKeyring.add($0, named: name, seconds: 600) }
      try Bytes.write(header, to: directory.headerPath)
      try FaultPlan.$current.withValue(plan) { try make().lock() }
      #expect((Keyring.find(name) != nil) == isKept)
    }
    try SessionKeyring.remove(name)
  }

  /// A link leads to the vault, whose header is away.
  @Test func lockForgetsTheKeyOfAVaultThatWasOpenedThroughALink() throws {
    let other = try TemporaryDirectory(isQuick: true)
    let link = TemporaryDirectory("link", in: other)
    try other.link("link", to: directory.path)
    try link.secrets(keySources: []).unlock(passphrase: "correct horse", rememberFor: .hours(1))
    let name = try keyName
    #expect(Keyring.find(name) != nil)
    #expect(try make().get("k") == "v")
    try FileSystem.rename(directory.file("vault").path, to: directory.file("aside").path)
    try make().lock()
    #expect(Keyring.find(name) == nil)
  }

  /// The disk with the vault is away, and with it what the link leads to.
  @Test(arguments: ["link", "first"], [false, true])
  func lockForgetsTheKeyOfAVaultBehindALinkToNothing(way: String, isRemoved: Bool) throws {
    let other = try TemporaryDirectory(isQuick: true)
    let disk = TemporaryDirectory("disk/app", in: other)
    let store = disk.secrets()
    try store.set("v", forKey: "k")
    try store.protect(with: source)
    // One with another one on the way, and one that is relative.
    try other.link("link", to: other.path + "/disk")
    try other.link("second", to: "disk")
    try other.link("first", to: "second")
    let link = TemporaryDirectory(way + "/app", in: other)
    try link.secrets(keySources: []).unlock(passphrase: "correct horse", rememberFor: .hours(1))
    let name = try Keyring.name(ofHeader: disk.headerPath)
    #expect(Keyring.find(name) != nil)
    try FileSystem.rename(other.path + "/disk", to: other.path + "/away")
    if isRemoved { try FileSystem.unlink(other.path + "/" + way) }
    try link.secrets(keySources: []).lock()
    #expect(Keyring.find(name) == nil)
  }

  /// The vault was remembered where it was.
  @Test func lockForgetsTheKeyOfAVaultThatWasMoved() throws {
    let name = try makeRemembered().name
    let other = try TemporaryDirectory(isQuick: true)
    try FileSystem.rename(directory.file("vault").path, to: other.file("vault").path)
    #expect(Keyring.find(name) != nil)
    try other.secrets(keySources: []).lock()
    #expect(Keyring.find(name) == nil)
  }

  @Test func aNewMasterKeyMakesItUseless() throws {
    let (store, name) = try makeRemembered()
    let key = try SecretBytes(count: XAES.keySize)
    #expect(try SessionKeyring.read(name, into: key.bytes))
    let next = SecureVault.KeySource(.passphrase("next", logN: 10))
    try store.protect(with: next)
    #expect(Keyring.find(name) == nil)
    #expect(try make().isLocked)
    // Even if it had stayed.
    try SessionKeyring.add(UnsafeRawBufferPointer(key.bytes), named: name, seconds: 3_600)
    defer { try? SessionKeyring.remove(name) }
    expectFailure(.locked) { _ = try make().get("k") }
    #expect(try make().isLocked)
    // So are bytes that are no key.
    let part = UnsafeRawBufferPointer(key.bytes)[part: ..<7]
    try SessionKeyring.add(part, named: name, seconds: 3_600)
    #expect(try make().isLocked)
    try make().eraseVault()
    #expect(Keyring.find(name) == nil)
  }

  @Test func aRecoveryCodeIsRememberedAndAKeyFileIsNot() throws {
    let store = make()
    try store.unlock(passphrase: "correct horse")
    let code = try store.addRecovery()
    try make().unlock(passphrase: code, rememberFor: .hours(1))
    #expect(try make().get("k") == "v")
    try store.lock()
    #expect(try make().isLocked)
    // A vault that no user unlocks does not use the keyring.
    let other = try TemporaryDirectory(isQuick: true)
    let calls = try systemCalls {
      try other.secrets().set("v", forKey: "k")
      #expect(try !other.secrets().isLocked && other.secrets(keySources: []).isLocked)
    }
    #expect(!calls.contains(.keyring))
    // It may have been remembered before.
    #expect(try systemCalls { try other.secrets().lock() }.contains(.keyring))
  }

  /// Containers forbid the calls; some systems lack them.
  @Test(arguments: [EPERM, ENOSYS, EACCES, EDQUOT])
  func worksWithoutAKeyringAndSaysSo(code: Int32) throws {
    let failures = Failures()
    let store = make(failures)
    let plan = FaultPlan(decide: { $0.call == .keyring ? .fail(code) : .proceed })
    try FaultPlan.$current.withValue(plan) {
      try store.unlock(passphrase: "correct horse", rememberFor: .hours(1))
      #expect(try store.get("k") == "v" && make().isLocked)
      expectFailure(.locked) { _ = try make().get("k") }
      // Nothing is remembered, so there is nothing to forget; other failures are errors.
      if code == EPERM || code == ENOSYS {
        try store.lock()
      } else {
        #expect(throws: StorageError.self) { try store.lock() }
      }
      #expect(try store.isLocked)
    }
    waitUntil("the failure is not reported") { !failures.all.isEmpty }
    let failure = try #require(failures.all.first)
    #expect(failures.all.count == 1 && failure.operation == "SecureVault.unlock")
    #expect(failure.reason?.contains("does not remember") == true, "\(failure)")
    #expect(failure.reason?.contains("keyctl: \(String(cString: strerror(code)))") == true)
    #expect(failure.remedy.contains("Unlock the vault in each process"))
  }

  /// Any program of the user can make keys with such names.
  @Test func lockLeavesAKeyThatBelongsToNoVault() throws {
    let names = try [":", "::user", ":0"].map {
      try keyName.split(separator: ":").prefix(3).joined(separator: ":") + $0
    }
    let bytes: [UInt8] = Array(repeating: 1, count: XAES.keySize)
    for name in names {
      try bytes.withUnsafeBytes { try SessionKeyring.add($0, named: name, seconds: 60) }
    }
    try make().lock()
    for name in names { #expect(Keyring.find(name) != nil, "\(name)") }
    for name in names { try SessionKeyring.remove(name) }
  }

  /// A sandbox forbids the calls, and has kept the keyring of the login.
  @Test(arguments: [EPERM, ENOSYS]) func lockFailsIfAKeyIsOutOfReach(code: Int32) throws {
    try make().unlock(passphrase: "correct horse", rememberFor: .hours(1))
    let plan = FaultPlan(decide: { $0.call == .keyring ? .fail(code) : .proceed })
    FaultPlan.$current.withValue(plan) {
      let error = #expect(throws: StorageError.self) { try make().lock() }
      #expect(error?.reason?.contains("still remembers") == true, "\(error as Any)")
    }
    try make().lock()
    try FaultPlan.$current.withValue(plan) { try make().lock() }
  }

  /// Between any two calls, the process may be killed.
  @Test func aKilledProcessLeavesNoKeyThatDoesNotExpire() throws {
    let name = try keyName
    let timeouts = Locked<[String]>([])
    let plan = FaultPlan(decide: { event in
      guard event.call == .keyring else { return .proceed }
      FaultPlan.$current.withValue(nil) {
        // The key of this thread's keyring ends with the thread.
        guard Keyring.find(name) != nil, let timeout = Keyring.timeout(name) else { return }
        timeouts.withLock { $0.append(timeout) }
      }
      return .proceed
    })
    let store = make()
    try FaultPlan.$current.withValue(plan) {
      try store.unlock(passphrase: "correct horse", rememberFor: .hours(1))
    }
    try store.lock()
    let seen = timeouts.withLock { $0 }
    #expect(!seen.isEmpty && !seen.contains("perm"), "\(seen)")
  }

  /// Whichever call fails, no key stays that does not expire.
  @Test func eachFailingCallLeavesNoKeyBehind() throws {
    var number = 0
    var isDone = false
    while !isDone {
      let count = Locked(0)
      let plan = FaultPlan(decide: { [number] event in
        guard event.call == .keyring else { return .proceed }
        return count.increment() == number + 1 ? .fail(ENOMEM) : .proceed
      })
      let failures = Failures()
      let store = make(failures)
      try FaultPlan.$current.withValue(plan) {
        try store.unlock(passphrase: "correct horse", rememberFor: .hours(1))
      }
      isDone = count.withLock { $0 } <= number
      // The last call only removes the key from this thread's keyring.
      if Keyring.find(try keyName) == nil {
        waitUntil("call \(number) is not reported") { !failures.all.isEmpty }
      } else {
        #expect(failures.all.isEmpty, "call \(number)")
      }
      try store.lock()
      #expect(Keyring.find(try keyName) == nil, "call \(number)")
      number += 1
      try #require(number < 40)
    }
    #expect(number > 5)
  }

  @Test func aLockDuringUnlockForgetsTheKey() throws {
    let store = make()
    let hasEnded = ThreadGate()
    try interrupt(before: .keyring) {
      Thread.detachNewThread {
        try? store.lock()  // ends when the vault is no longer in use
        hasEnded.open()
      }
      try waitUntil("the lock has begun") { try store.isLocked }
    } in: {
      try? store.unlock(passphrase: "correct horse", rememberFor: .hours(1))
    }
    hasEnded.wait()
    #expect(try Keyring.find(keyName) == nil)
    #expect(try store.isLocked && make().isLocked)
  }

  @Test func periodsAreClamped() {
    #expect(Duration.minutes(15).wholeSeconds == 900)
    #expect(Duration.hours(2).wholeSeconds == 7_200)
    #expect(Duration.milliseconds(1_001).wholeSeconds == 2)
    #expect(Duration.zero.wholeSeconds == 1 && Duration.seconds(-5).wholeSeconds == 1)
    #expect(Duration.hours(Int.max).wholeSeconds == .max)
    #expect((Duration.seconds(Int64.max) * 9).wholeSeconds == .max)
  }
}

/// The keyring of the login.
enum Keyring {
  /// The description of the key of the vault with this header.
  static func name(ofHeader path: String) throws -> String {
    let id = try Bytes.read(path)[8..<24]
    let place = try Array(FileSystem.parent(of: path).utf8).withBytes(Digest.sha256).prefix(8)
    return "keepsake:vault:"
      + [Array(place), Array(id)].map { $0.map { String(format: "%02x", $0) }.joined() }
      .joined(separator: ":")
  }

  static func find(_ name: String) -> Int? { try? SessionKeyring.find(name).get() }

  /// The owner, the permissions and the type of a key, as the system lists them.
  static func describe(_ name: String) -> String? {
    fields(of: name).map { $0[4...7].joined(separator: " ") }
  }

  /// In how much time a key expires, as the system lists it; "perm" for never.
  static func timeout(_ name: String) -> String? { fields(of: name).map { String($0[3]) } }

  /// ID, flags, usage, time-out, permissions, user, group, type, description.
  private static func fields(of name: String) -> [Substring]? {
    guard find(name) != nil else { return nil }
    // Keys that have expired stay in the list for minutes.
    let line = MemoryScan.text("/proc/keys").split(separator: "\n").first {
      $0.contains("\(name): ")
    }
    return line?.split(separator: " ", omittingEmptySubsequences: true)
  }

  static let isAvailable: Bool = {
    let name = "keepsake:test:\(getpid())"
    let bytes: [UInt8] = [1, 2, 3]
    return bytes.withUnsafeBytes { bytes in
      (try? SessionKeyring.add(bytes, named: name, seconds: 5)) != nil
        && (try? SessionKeyring.remove(name)) != nil
    }
  }()
}
