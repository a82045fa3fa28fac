import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Recovery codes, second passphrases, and what a change of keys does to them.
@Suite(.singleThreaded, .quickPassphrases) struct RecoveryTests {
  private let directory: TemporaryDirectory
  private let source = SecureVault.KeySource(.passphrase("correct horse", logN: 10))

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  private func locked(_ sources: [SecureVault.KeySource] = []) -> SecureVault.Store {
    directory.secrets(keySources: sources)
  }

  /// A vault under a passphrase, with the secret `k`.
  private func makeVault() throws -> SecureVault.Store {
    let store = directory.secrets(keySources: [source])
    try store.set("v", forKey: "k")
    return store
  }

  private func expectOpens(_ passphrase: String) throws {
    let store = locked()
    try store.unlock(passphrase: passphrase)
    #expect(try store.get("k") == "v")
  }

  private func expectCloses(_ passphrase: String) {
    expectFailure(.wrongPassphrase) { try locked().unlock(passphrase: passphrase) }
  }

  @Test func aRecoveryCodeOpensAVaultWhoseKeyIsLost() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let code = try store.addRecovery()
    #expect(code.count == 34 && code.split(separator: "-").allSatisfy { $0.count == 4 })
    #expect(try store.addRecovery() != code)
    try FileSystem.unlink(directory.keyFilePath)
    #expect(try locked().isLocked)
    try expectOpens(code)
    // As a user types it from paper.
    try expectOpens(code.lowercased().replacing("-", with: " "))
    // As a document, a message or a terminal may give it back.
    for separator in [
      "\u{2010}", "\u{2011}", "\u{2013}", "\u{2014}", "\u{2212}", "\u{AD}", "\u{A0}", "\t",
      "\u{202F}", " \u{2013} ", "\r\n", "\u{200B}", "\u{FF0D}", "\u{2043}", "\u{207B}",
    ] {
      try expectOpens("\u{FEFF} " + code.replacing("-", with: separator) + "\r\n")
    }
    try expectOpens(
      " " + code.replacing("-", with: "").replacing("0", with: "o").replacing("1", with: "l"))
    var wrong = Array(code)
    wrong[5] = wrong[5] == "2" ? "3" : "2"
    for code in [String(wrong), String(code.dropLast()), try RecoveryCode.makeNew().text] {
      expectCloses(code)
    }
  }

  /// `isLocked` does not try the key sources.
  @Test func aVaultWhoseKeyIsLostIsNotLocked() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let code = try store.addRecovery()
    try FileSystem.unlink(directory.keyFilePath)
    let next = directory.secrets()
    #expect(try !next.isLocked)
    expectFailure(.locked) { _ = try next.get("k") }
    expectFailure(.locked) { try next.unlock() }
    try next.unlock(passphrase: code)
    #expect(try next.get("k") == "v")
    try next.protect(with: .keyFile)
    #expect(try directory.secrets().get("k") == "v")
  }

  @Test func unlockTriesEveryPassphrase() throws {
    let store = try makeVault()
    try store.addRecovery(passphrase: "second")
    let code = try store.addRecovery()
    for passphrase in ["correct horse", "second", code] { try expectOpens(passphrase) }
    expectCloses("third")
    expectFailure(.misuse) { try store.addRecovery(passphrase: "") }
    expectFailure(.locked) { _ = try locked().addRecovery() }
    // A passphrase of bootstrap is tried at every slot, too.
    let second = SecureVault.KeySource(.passphrase("second", logN: 10))
    #expect(try locked([second]).get("k") == "v")
  }

  @Test func unlockMethodsListsAllSlots() throws {
    #expect(try locked().unlockMethods.isEmpty)
    let store = try makeVault()
    _ = try store.addRecovery()
    try store.addRecovery(passphrase: "second")
    let unlockMethods = try locked().unlockMethods
    #expect(
      unlockMethods.map(\.kind) == [.keySource(.passphrase), .recoveryCode, .recoveryPassphrase])
    #expect(unlockMethods.map(\.isRecovery) == [false, true, true])
    #expect(
      Set(unlockMethods.map(\.id)).count == 3 && Set(unlockMethods.map(\.description)).count == 3)
    #expect(try locked().protection == .passphrase)
    expectFailure(.misuse) { try store.removeRecovery(unlockMethods[0]) }

    try store.removeRecovery(unlockMethods[1])
    #expect(try locked().unlockMethods.map(\.id) == [unlockMethods[0].id, unlockMethods[2].id])
    try store.removeRecovery(unlockMethods[1])
    try expectOpens("second")
    try store.removeAllRecoveries()
    expectCloses("second")
    #expect(try locked().unlockMethods == [unlockMethods[0]])
    try store.removeAllRecoveries()
    try expectOpens("correct horse")
  }

  /// `rotateKeys` keeps every unlock method, so after a compromise `protect` must be called.
  @Test func onlyProtectEndsEveryUnlockMethod() throws {
    let store = try makeVault()
    let code = try store.addRecovery()
    try store.addRecovery(passphrase: "attacker")
    let oldHeader = try Bytes.read(directory.headerPath)
    try store.rotateKeys()
    for passphrase in ["correct horse", "attacker", code] { try expectOpens(passphrase) }

    // Removing one keeps the master key: an old header and what was removed open the vault.
    try store.removeAllRecoveries()
    expectCloses("attacker")
    let master = try KeyRing.open(
      VaultHeader(Bytes.read(directory.headerPath), path: directory.headerPath)
    ) { key throws(StorageError) in
      let old = try VaultHeader(oldHeader, path: "old")
      let secret = try SecureVault.KeySource.secret(passphrase: "attacker", logN: 10)
      _ = try old.slots[2].unwrap(with: secret.bytes, vaultID: old.vaultID, into: key)
    }
    #expect(master != nil)

    let next = SecureVault.KeySource(.passphrase("next", logN: 10))
    try store.protect(with: next)
    #expect(try locked().unlockMethods.count == 1)
    for passphrase in ["correct horse", "attacker", code] { expectCloses(passphrase) }
    try expectOpens("next")
    try Bytes.write(oldHeader, to: directory.headerPath)
    let old = locked()
    try old.unlock(passphrase: "attacker")
    #expect(try old.get("k") == nil && !old.contains("k"), "it has another name now")
  }

  @Test func thereIsRoomForThreePassphrasesOrFifteenCodes() throws {
    try KeySlot.$defaultLogN.withValue(10) {
      let store = directory.secrets()
      try store.set("v", forKey: "k")
      for _ in 0..<15 { _ = try store.addRecovery() }
      expectFailure(.misuse) { _ = try store.addRecovery() }
      #expect(try store.unlockMethods.count == 16)
      // Another process makes room.
      try directory.secrets().removeAllRecoveries()
      _ = try store.addRecovery()
      #expect(try store.unlockMethods.count == 2)
    }
    var budget = PassphraseWorkBudget(maxLogN: 19)
    let header = try directory.openVault()
    let secret = SlotSecret(.passphrase, logN: 10, try SecretBytes(count: 1))
    let bytes = try header.ring.makeSlot(vaultID: header.header.vaultID, for: secret).bytes
    func slot(_ logN: UInt8) throws -> KeySlot {
      var changed = bytes
      changed[2] = logN
      return try KeySlot(changed)
    }
    let usual = try slot(17)
    // One slot of the greatest cost, or four of the usual cost: the vault's and three recoveries'.
    for (maxLogN, count): (UInt8, Int) in [(10, 4), (17, 4), (19, 4), (20, 8)] {
      #expect(
        PassphraseWorkBudget.allow(Array(repeating: usual, count: count), maxLogN: maxLogN))
      #expect(
        !PassphraseWorkBudget.allow(Array(repeating: usual, count: count + 1), maxLogN: maxLogN))
    }
    for _ in 0..<4 { try budget.spend(on: usual, "header") }
    expectFailure(.unsupportedVersion) { try budget.spend(on: usual, "header") }
    budget = PassphraseWorkBudget(maxLogN: 19)
    expectFailure(.unsupportedVersion) { try budget.spend(on: slot(20), "header") }
    try budget.spend(on: slot(19), "header")
    expectFailure(.unsupportedVersion) { try budget.spend(on: slot(10), "header") }
    // The caller allows it.
    budget = PassphraseWorkBudget(maxLogN: 20)
    try budget.spend(on: slot(20), "header")
    expectFailure(.unsupportedVersion) { try budget.spend(on: slot(10), "header") }
  }

  /// The limit is the caller's choice: another program may have made a vault with a higher cost.
  /// The greatest one takes 1 GiB and some seconds.
  @Test(arguments: Coverage.isComplete ? [12, 20] : [12])
  func theCallerSetsTheGreatestWorkFactor(logN: Int) async throws {
    let source = SecureVault.KeySource.passphrase("correct horse", logN: UInt8(logN))
    try await StorageSystem.withTemporary(keySources: [source]) {
      let store = SecureVault.shared
      try store.protect(with: source)
      try store.set("v", forKey: "k")
      try store.lock()
      #expect(SecureVault.shared.maxWorkFactor == 19)
      SecureVault.shared.maxWorkFactor = logN - 1
      for unlock in [{ try store.unlock() }, { try store.unlock(passphrase: "correct horse") }] {
        let error = expectFailure(
          .unsupportedVersion, reason: "work factor \(logN), at most \(logN - 1)", unlock)
        #expect(error?.remedy.contains("raise SecureVault.shared.maxWorkFactor") == true)
      }
      SecureVault.shared.maxWorkFactor = logN
      try store.unlock(passphrase: "correct horse")
      #expect(try store.get("k") == "v")
      // The bounds of the format.
      for (value, expected) in [(99, 20), (20, 20), (.min, 10), (.max, 20)] {
        SecureVault.shared.maxWorkFactor = value
        #expect(SecureVault.shared.maxWorkFactor == expected)
      }
    }
    #expect(SecureVault.shared.maxWorkFactor == 19)
  }

  /// Without a limit, 16 slots of the greatest cost take a minute and a half.
  @Test func aForgedHeaderCausesLittleWork() throws {
    let store = try makeVault()
    let session = try directory.openVault([source])
    var header = session.header
    var bytes = header.slots[0].bytes
    bytes[2] = 20
    header.slots = Array(repeating: try KeySlot(bytes), count: 16)
    try Bytes.write(try header.bytes(), to: directory.headerPath)
    try store.lock()
    // The work is done on the caller's thread.
    let start = threadTime()
    expectFailure(.unsupportedVersion) { try locked().unlock(passphrase: "x") }
    expectFailure(.unsupportedVersion) { _ = try locked([source]).get("k") }
    #expect(threadTime() - start < 20_000_000_000)
  }

  @Test func recoveriesSurviveConcurrentChangesOfKeys() throws {
    let store = try makeVault()
    let other = directory.secrets(keySources: [source])
    #expect(try other.get("k") == "v")
    let code = try store.addRecovery()
    // This session's header is out of date.
    try other.addRecovery(passphrase: "second")
    try store.rotateKeys()
    for passphrase in ["correct horse", "second", code] { try expectOpens(passphrase) }
  }

  // MARK: Versions of the header

  @Test(arguments: [(0, UInt8(6)), (0, 200), (1, 4), (1, 77)])
  func anUnknownSlotIsANewerVersion(offset: Int, value: UInt8) throws {
    _ = try makeVault()
    let good = try Bytes.read(directory.headerPath)
    var bad = good
    bad[24 + offset] = value
    try Bytes.write(try Bytes.summed(bad), to: directory.headerPath)
    for call in [
      { _ = try locked([source]).get("k") }, { try locked().unlock(passphrase: "correct horse") },
      { _ = try locked().unlockMethods }, { _ = try locked().protection },
    ] {
      let error = #expect(throws: StorageError.self) { try call() }
      #expect(error?.code == .unsupportedVersion && error?.remedy.contains("Update") == true)
    }
    try Bytes.write(good, to: directory.headerPath)
    #expect(try locked([source]).get("k") == "v")
  }

  // MARK: Adding secrets

  @Test func addNeverReplaces() throws {
    let store = try makeVault()
    #expect(try store.add("1", forKey: "new") && !store.add("2", forKey: "new"))
    #expect(try !store.add("2", forKey: "k") && store.get("k") == "v" && store.get("new") == "1")
    #expect(try store.add(["a": 1], forKey: "model") && store.model("model") == ["a": 1])
    // Not even a damaged one.
    try Bytes.write(0, at: 30, of: try directory.secretPath("new", "standard", [source]))
    #expect(try !store.add("3", forKey: "new"))
    try store.remove("new")
    #expect(try store.add("3", forKey: "new") && store.get("new") == "3")
    let none: String? = nil
    #expect(try !store.add(none, forKey: "nothing") && store.get("nothing") == nil)
    #expect(try directory.temporaries() == [])
  }

  /// Another process stores the secret after this one found none, before it takes the lock.
  @Test func addLosesToAConcurrentAdd() throws {
    let store = try makeVault()
    let other = directory.secrets(keySources: [source])
    try interruptBeforeLocking {
      let isStored = try other.add("theirs", forKey: "new")
      #expect(isStored)
    } in: {
      let isStored = try store.add("mine", forKey: "new")
      #expect(!isStored)
    }
    #expect(try store.get("new") == "theirs" && directory.temporaries() == [])
  }

  // MARK: Forgetting and erasing

  @Test func forgetOldKeysDropsThemDespiteJunk() throws {
    let store = try makeVault()
    try store.set("damaged", forKey: "damaged")
    let junk =
      FileSystem.parent(of: try directory.secretPath("k", "standard", [source])) + "/"
      + String(repeating: "a", count: 32)
    try File(junk, .create).writeAll([1, 2, 3])
    try FileSystem.createDirectory(junk.dropLast() + "b")
    let path = try directory.secretPath("damaged", "standard", [source])
    let good = try Bytes.read(path)
    try Bytes.write(good[100] ^ 1, at: 100, of: path)
    let failures = Failures()
    let owner = directory.secrets(failures: failures, keySources: [source])
    try owner.protect(with: source)
    // The exception that the documentation states.
    #expect(failures.all.count == 3)
    #expect(try directory.openVault([source]).ring.keyIDs.count == 2)
    #expect(throws: StorageError.self) { try owner.rotateKeys() }
    #expect(try directory.openVault([source]).ring.keyIDs.count == 3)

    try owner.forgetOldKeys()
    #expect(try directory.openVault([source]).ring.keyIDs.count == 1)
    #expect(try owner.get("k") == "v" && FileSystem.status(junk) != nil)
    try Bytes.write(good, to: path)
    expectFailure(.damaged) { _ = try owner.get("damaged") }
    try owner.forgetOldKeys()
  }

  /// A secret that cannot be read at the moment is not forgotten.
  @Test func forgetOldKeysKeepsThemWhenTheDiskFails() throws {
    let store = try makeVault()
    try store.set("w", forKey: "l")
    let path = try directory.secretPath("l", "standard", [source])
    let plan = FaultPlan(decide: {
      $0.call == .open && $0.path == path ? .fail(EIO) : .proceed
    })
    try? FaultPlan.$current.withValue(plan) { try store.rotateKeys() }
    let error = #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(plan) { try store.forgetOldKeys() }
    }
    #expect(error?.code == .system(EIO) && error?.path == path)
    #expect(try directory.openVault([source]).ring.keyIDs.count == 2)
    #expect(try store.get("l") == "w")
    try store.forgetOldKeys()
    #expect(try store.get("l") == "w")
    #expect(try directory.openVault([source]).ring.keyIDs.count == 1)
  }

  /// Between sealing the entries again and dropping the old keys, another process adds a key and is
  /// killed.
  @Test func forgetOldKeysKeepsTheKeysOfAnInterruptedRotation() throws {
    let store = try makeVault()
    let other = directory.secrets(keySources: [source])
    #expect(try other.get("k") == "v")
    let interrupting = FaultPlan(decide: {
      $0.call == .rename && !$0.path.hasSuffix("/vault.hdr") ? .fail(ENOSPC) : .proceed
    })
    try? FaultPlan.$current.withValue(interrupting) { try store.rotateKeys() }
    let isSealed = Locked(false)
    let isInterrupted = Locked(false)
    let plan = FaultPlan(decide: { event in
      if event.call == .rename { isSealed.withLock { $0 = true } }
      if event.call == .lock, isSealed.withLock({ $0 }), !isInterrupted.withLock({ $0 }) {
        isInterrupted.withLock { $0 = true }
        try? FaultPlan.$current.withValue(interrupting) { try other.rotateKeys() }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.forgetOldKeys() }
    #expect(isInterrupted.withLock { $0 })
    #expect(try directory.secrets(keySources: [source]).get("k") == "v")
    try store.forgetOldKeys()
    #expect(try directory.openVault([source]).ring.keyIDs.count == 1 && store.get("k") == "v")
  }

  @Test func eraseOverwritesTheHeaderBeforeItIsRemoved() throws {
    let store = try makeVault()
    let header = try Bytes.read(directory.headerPath)
    let file = try File(directory.headerPath, .read)
    try store.eraseVault()
    let rest = try file.read(from: 0, count: header.count)
    #expect(rest == [UInt8](repeating: 0, count: header.count))
    #expect(try FileSystem.status(directory.headerPath) == nil && directory.temporaries() == [])

    // A backup made with hard links stays whole, and so does what a link leads to.
    _ = try makeVault()
    let backup = directory.path + "/backup"
    #expect(try FileSystem.link(directory.headerPath, to: backup) == true)
    let kept = try Bytes.read(backup)
    try directory.secrets().eraseVault()
    #expect(try Bytes.read(backup) == kept)
    try directory.link("vault/vault.hdr", to: backup)
    try directory.secrets().eraseVault()
    #expect(try Bytes.read(backup) == kept)
    #expect(try directory.status("vault/vault.hdr") == nil)
  }

  @Test func theNextCallOverwritesTheHeaderThatAKilledOneLeft() throws {
    for number in 0... {
      try directory.secrets().set("v", forKey: "k")
      let file = try File(directory.headerPath, .read)
      let size = try file.status().size
      let isKilled = killing(beforeCall: number) { try? directory.secrets().eraseVault() }
      try directory.secrets().eraseVault()
      let rest = try file.read(from: 0, count: size)
      #expect(rest == [UInt8](repeating: 0, count: size), "killed before call \(number)")
      #expect(try directory.temporaries() == [])
      if !isKilled { break }
      try #require(number < 200)
    }
  }

  @Test func eraseRemovesEntriesOnly() throws {
    try directory.secrets().set("v", forKey: "k")
    let failures = Failures()
    let service = FileSystem.parent(of: try directory.secretPath("k"))
    try directory.write([1], to: "vault/\(FileSystem.name(of: service))/notes")
    let store = directory.secrets(failures: failures)
    try store.eraseVault()
    #expect(try FileSystem.list(service) == ["notes"])
    #expect(failures.all.map(\.path) == [service])
    #expect(failures.all.allSatisfy { $0.operation == "SecureVault.eraseVault" })
    try store.set("new", forKey: "k")
    #expect(try store.keys() == ["k"])
  }

  @Test func eraseFollowsNoLink() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let path = try directory.secretPath("k")
    let (name, other) = (FileSystem.name(of: path), directory.path + "/other")
    try directory.makeDirectory("other")
    try directory.write([1], to: "other/\(name)")
    let link = "vault/" + String(repeating: "0", count: 32)
    try directory.link(link, to: other)
    let error = #expect(throws: StorageError.self) { try store.eraseVault() }
    #expect(error?.path == directory.path + "/" + link)
    #expect(try FileSystem.list(other) == [name])
    #expect(try FileSystem.status(path) == nil, "the link keeps no other secret")
    #expect(try FileSystem.status(directory.headerPath) != nil)
    try FileSystem.unlink(directory.path + "/" + link)
    try store.eraseVault()
    #expect(try FileSystem.status(directory.headerPath) == nil)
  }

  /// A file system that is mounted where a service has its secrets, or would have them.
  @Test(.enabled(if: OneAtATime.HazardTests.canMount, "a file system cannot be mounted here"))
  func eraseAndRemoveAllCrossNoMount() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let path = try directory.secretPath("k")
    let (service, name) = (
      FileSystem.name(of: FileSystem.parent(of: path)), FileSystem.name(of: path)
    )
    for place in [service, String(repeating: "0", count: 32)] {
      let mounted = TemporaryDirectory("vault/" + place, in: directory)
      try FileSystem.createDirectory(mounted.path)
      try #require(OneAtATime.HazardTests.mountDisk(at: mounted))
      defer { OneAtATime.HazardTests.unmountDisk(at: mounted) }
      try mounted.write([1], to: name)
      for call in [{ try store.eraseVault() }, { try store.removeAll() }] {
        let error = #expect(throws: StorageError.self, "\(place)") { try call() }
        #expect(error?.path == mounted.path && error?.reason?.contains("mounted") == true)
        #expect(try mounted.names() == [name] && FileSystem.status(directory.headerPath) != nil)
        if place != service { break }  // removeAll is about one service
      }
    }
    try store.eraseVault()
    #expect(try FileSystem.status(directory.headerPath) == nil)
  }

  /// The vault is opened while another thread erases it.
  @Test func anOpeningDoesNotRestoreAnErasedVault() throws {
    let stores = Locked<[SecureVault.Store]>([])
    let source = SecureVault.KeySource.closure("key") {
      try stores.withLock { $0.popLast() }?.eraseVault()
      return Data(repeating: 7, count: 32)
    }
    try directory.secrets(keySources: [source]).set("old", forKey: "k")
    let store = directory.secrets(keySources: [source])
    stores.withLock { $0 = [store] }
    expectFailure(.locked) { _ = try store.get("k") }
    // Another vault may take its place.
    try directory.secrets().set("new", forKey: "k")
    expectFailure(.locked, reason: "key file") { _ = try store.get("k") }
  }

  @Test(arguments: [SystemCall.open, .write, .fdatasync])
  func aHeaderThatCannotBeOverwrittenIsRemovedAndReported(call: SystemCall) throws {
    _ = try makeVault()
    let failures = Failures()
    let plan = FaultPlan(decide: {
      $0.call == call && $0.path.hasSuffix(".vault.hdr.0.tmp") ? .fail(EIO) : .proceed
    })
    try FaultPlan.$current.withValue(plan) {
      try directory.secrets(failures: failures).eraseVault()
    }
    #expect(failures.all.map(\.code) == [.system(EIO)])
    #expect(try FileSystem.status(directory.headerPath) == nil && directory.temporaries() == [])
  }
}
