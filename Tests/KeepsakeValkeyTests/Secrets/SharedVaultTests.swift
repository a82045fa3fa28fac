import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A vault that several machines share, and what they do to it at the same time.
@Suite(.singleThreaded, .quickPassphrases, .timeLimit(.minutes(20))) struct SharedVaultTests {
  private let server = SharedServer()

  /// Runs `interruption` once, just before the next call of an engine of this name.
  private func interrupt(
    _ call: String = "apply", _ interruption: @escaping @Sendable () throws -> Void
  ) -> Flag {
    let flag = Flag()
    onCall { [server] name in
      guard name == call else { return }
      server.hook.withLock { $0 = { _ in } }
      #expect(throws: Never.self) { try interruption() }
      flag.value = true
    }
    return flag
  }

  private func onCall(_ action: @escaping @Sendable (String) throws -> Void) {
    server.hook.withLock { $0 = action }
  }

  private func refuse(_ calls: Set<String>) {
    onCall { name in
      guard calls.contains(name) else { return }
      throw StorageError(
        .unreachable, operation: "connect", reason: "the cable is out", remedy: "Plug it in.")
    }
  }

  private func allow() { onCall { _ in } }

  private func names(on machine: Machine) throws -> [String] { try machine.engine.keys().sorted() }

  /// Expects one header, one key and entries that a machine which knows nothing can read.
  private func expectWhole(
    _ values: [String: String], sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let machine = try Machine(server)
    let store = machine.secrets()
    #expect(try store.keys() == values.keys.sorted(), sourceLocation: sourceLocation)
    for (key, value) in values {
      #expect(try store.get(key) == value, "\(key)", sourceLocation: sourceLocation)
    }
    #expect(machine.failures.all.isEmpty, sourceLocation: sourceLocation)
  }

  private func keyCount() throws -> Int? {
    try Machine(server).vault.currentSession()?.ring.keyIDs.count
  }

  // MARK: New names

  /// Another machine stores, replaces and removes secrets while they are moved.
  @Test(arguments: 1...5) func protectGivesEverySecretANewName(_ number: Int) throws {
    let (one, two) = (try Machine(server), try Machine(server))
    for key in ["a", "b", "c"] { try one.secrets().set("old", forKey: key) }
    let old = try names(on: one)
    let calls = Locked(0)
    onCall { [server] name in
      guard name == "apply", calls.increment() == number else { return }
      server.hook.withLock { $0 = { _ in } }
      #expect(throws: Never.self) {
        try two.secrets().set("new", forKey: "a")
        try two.secrets().remove("b")
        try two.secrets().set("new", forKey: "d")
      }
    }
    try one.secrets().protect(with: Machine.key)
    allow()
    #expect(calls.withLock { $0 } == number)
    #expect(Set(try names(on: one)).intersection(old) == ["header"])
    try expectWhole(["a": "new", "c": "old", "d": "new"])
    #expect(try Machine(server).vault.currentSession()?.ring.nameKeyCount == 1)
  }

  /// Another machine sets a secret again, or goes on moving them, while `removeAll` finds some
  /// under their old names.
  @Test(arguments: [true, false]) func removeAllRemovesEachSecretOnce(setsAgain: Bool) throws {
    let (one, two) = (try Machine(server), try Machine(server))
    for key in ["a", "b"] { try one.secrets().set("old", forKey: key) }
    let applied = Locked(0)
    onCall { if $0 == "apply", applied.increment() > 1 { throw Failure() } }
    try two.secrets().protect(with: Machine.key)
    allow()
    #expect(try two.vault.currentSession()?.ring.nameKeyCount == 2)
    try one.secrets().set("new", forKey: "c")
    let isDone = Flag()
    onCall { [server] name in
      guard name == (setsAgain ? "keys" : "apply"), !isDone.value else { return }
      let hook = server.hook.withLock { $0 }
      server.hook.withLock { $0 = { _ in } }
      defer { server.hook.withLock { $0 = hook } }
      #expect(throws: Never.self) {
        if setsAgain {
          try two.catchUp()
          if try two.secrets().contains("a") { return }
          try two.secrets().set("again", forKey: "a")
        } else {
          let session = try #require(try two.vault.currentSession())
          for path in try session.storage.allEntries() { _ = try session.resealEntry(at: path) }
        }
        isDone.value = true
      }
    }
    try one.secrets().removeAll()
    allow()
    let isSetAgain = setsAgain && isDone.value
    #expect(setsAgain || isDone.value)
    try expectWhole(isSetAgain ? ["a": "again"] : [:])
  }

  // MARK: What leaves the machine

  @Test func onlyCiphertextLeavesTheMachine() throws {
    let machine = try Machine(server, authenticate: { _ in "swordfish" })
    let words = ["accessToken", "com.app.auth", "plaintext of the secret"]
    try machine.secrets(SecureVault.Service(words[1])).set(words[2], forKey: words[0])
    try machine.secrets().set(words[2], forKey: words[0], access: .userPresence)
    let names = try names(on: machine)
    #expect(names.count == 3 && names.last == "header")
    for name in names where name != "header" {
      #expect(try /[0-9a-f]{32}\/[0-9a-f]{32}/.wholeMatch(in: name) != nil)
    }
    for name in names {
      let bytes = try self.bytes(name)
      for word in words { #expect(bytes.range(of: Data(word.utf8)) == nil, "\(name)") }
      // The smallest secrets are padded to the same size.
      if name != "header" { #expect(bytes.count >= 300) }
    }
    #expect(try machine.directory.names() == [])
  }

  @Test func servicesInADirectoryStayOnTheMachine() throws {
    let machine = try Machine(server)
    let local = machine.secrets(SecureVault.Service("tls", in: machine.directory.url))
    try local.set("1", forKey: "k")
    #expect(try server.isEmpty && local.folderURL.path == machine.directory.path + "/vault")
    try machine.secrets().set("2", forKey: "k")
    #expect(try local.get("k") == "1" && machine.secrets().get("k") == "2")
    expectFailure(.misuse) { _ = try machine.secrets().folderURL }
    expectFailure(.misuse) {
      try machine.secrets().backUp(to: machine.directory.path + "/copy", keyFile: nil)
    }
  }

  /// Both apps have the same key, and somebody who can write to the server exchanges their vaults.
  @Test func theVaultOfAnotherAppIsRefused() throws {
    let other = SharedServer()
    let bank = try Machine(other, app: "bank")
    try bank.secrets().set("v", forKey: "k")
    let entries = try bank.engine.keys().map {
      StorageEngines.Entry(key: $0, data: other.data(forKey: $0))
    }
    let machine = try Machine(server)
    #expect(try machine.engine.apply(entries, ifCurrent: []))
    #expect(throws: StorageError.self) { _ = try machine.secrets().get("k") }
    #expect(throws: StorageError.self) { try machine.secrets().set("w", forKey: "k") }
    #expect(try Machine(server, app: "bank").secrets().get("k") == "v")
  }

  // MARK: Key sources

  @Test func keyFilesAreRefused() throws {
    let machine = try Machine(server, keySources: SecureVault.KeySource.standard)
    let store = machine.secrets()
    let error = expectFailure(.locked) { try store.set("1", forKey: "k") }
    #expect(error?.remedy.contains("cannot share a key file") == true)
    let refusal = expectFailure(.misuse) { try store.protect(with: .keyFile) }
    #expect(refusal?.remedy.contains("passphrase, a credential or a closure") == true)
    #expect(server.isEmpty)
    try store.protect(with: .passphrase("open sesame"))
    try store.set("1", forKey: "k")
    expectFailure(.misuse) { try store.protect(with: .keyFile) }
    #expect(try store.protection == .passphrase && machine.directory.names() == [])
  }

  // MARK: Two machines at once

  @Test func theLoserOfACreationUsesTheWinnersVault() throws {
    let (one, two) = (try Machine(server), try Machine(server))
    #expect(try one.secrets().get("a") == nil && two.secrets().get("a") == nil)
    let isDone = interrupt { try two.secrets().set("2", forKey: "b") }
    try one.secrets().set("1", forKey: "a")
    #expect(isDone.value)
    try two.catchUp()
    #expect(try one.secrets().get("b") == "2" && two.secrets().get("a") == "1")
    try expectWhole(["a": "1", "b": "2"])
  }

  @Test func aSecretIsNotSealedUnderARetiredKey() throws {
    let (one, two) = (try Machine(server), try Machine(server))
    try one.secrets().set("1", forKey: "a")
    #expect(try two.secrets().get("a") == "1")
    let isDone = interrupt { try two.secrets().rotateKeys() }
    try one.secrets().set("2", forKey: "b")
    #expect(isDone.value)
    #expect(try keyCount() == 1)
    try expectWhole(["a": "1", "b": "2"])
  }

  /// The mirror of the machine that rotates does not have the other's secret.
  @Test func noKeyIsDroppedThatAnUnseenSecretNeeds() throws {
    let one = try Machine(server)
    try one.secrets().set("1", forKey: "a")
    let two = try Machine(server, flaw: .keepsImports)
    try two.secrets().set("2", forKey: "b")
    #expect(try one.secrets().get("b") == nil)
    try one.secrets().rotateKeys()
    #expect(try keyCount() == 1)
    try expectWhole(["a": "1", "b": "2"])
  }

  /// A secret that is stored while the keys are dropped is sealed under the new one.
  @Test(arguments: 1...6) func keysAreDroppedBesideAWriter(_ number: Int) throws {
    let (one, two) = (try Machine(server), try Machine(server))
    try one.secrets().set("1", forKey: "a")
    try one.secrets().set("1", forKey: "b")
    #expect(try two.secrets().get("a") == "1")
    let calls = Locked(0)
    onCall { name in
      guard name != "fill", calls.increment() == number else { return }
      #expect(throws: Never.self) {
        try two.secrets().set("2", forKey: "a")
        try two.secrets().set("2", forKey: "c")
      }
    }
    try one.secrets().rotateKeys()
    #expect(calls.withLock { $0 } >= number)
    allow()
    #expect(try keyCount() == 1)
    try expectWhole(["a": "2", "b": "1", "c": "2"])
  }

  @Test func rotatesAndWritesOnSeveralMachines() throws {
    let machines = try (0..<3).map { _ in try Machine(server) }
    try machines[0].secrets().set("0", forKey: "first")
    let errors = Failures()
    onThreads(6) { thread in
      let store = machines[thread % 3].secrets()
      do throws(StorageError) {
        for number in 0..<40 {
          try store.set("\(number)", forKey: "k\(thread)")
          try store.set("\(thread)", forKey: "contended")
          if number % 10 == thread { try store.rotateKeys() }
          if number % 8 == thread { try store.remove("k\(thread)") }
        }
        try store.set("last", forKey: "k\(thread)")
      } catch {
        errors.append(error)
      }
    }
    #expect(errors.all.isEmpty, "\(errors.all)")
    try machines[0].catchUp()
    try machines[0].secrets().rotateKeys()
    #expect(try keyCount() == 1)
    let contended = try #require(try Machine(server).secrets().get("contended"))
    var values = ["first": "0", "contended": contended]
    for thread in 0..<6 { values["k\(thread)"] = "last" }
    try expectWhole(values)
    for machine in machines { #expect(machine.failures.all.isEmpty) }
  }

  /// Two machines of which the first one has the presence key, under which no secret is left. The
  /// second one would replace it.
  ///
  /// Unchecked because of the key, which only one thread uses.
  private struct UnusedPresenceKey: @unchecked Sendable {
    let one: Machine
    let two: Machine
    private let key: PresenceKey

    init(_ server: SharedServer) throws {
      one = try Machine(server, authenticate: { _ in "one" })
      two = try Machine(server, authenticate: { _ in "two" })
      try one.secrets().set("0", forKey: "old", access: .userPresence)
      let header = try #require(try one.vault.currentSession()).header
      let slot = try #require(header.presenceSlot)
      let secret = try SecureVault.KeySource.secret(passphrase: "one", logN: slot.logN)
      let bytes = try SecretBytes(count: XAES.keySize)
      _ = try slot.unwrap(with: secret.bytes, vaultID: header.vaultID, into: bytes.bytes)
      key = PresenceKey(slot: slot, bytes)
      try one.secrets().remove("old")
      try two.catchUp()
    }

    /// The first one has asked its user, and stores a secret under the key.
    func store() throws -> WriteOutcome {
      let session = try #require(try one.vault.currentSession())
      let path = try session.entryPath(service: "standard", key: "a")
      return try [UInt8]("1".utf8).withBytes { value throws(StorageError) in
        try session.write(
          NewSecret(
            kind: .text, value: value, service: "standard", key: "a", access: .userPresence),
          key, at: path, isLockHeld: false)
      }
    }

    func replaceKey() throws { try two.secrets().set("2", forKey: "b", access: .userPresence) }
  }

  /// The second machine has found that no secret is under the key.
  @Test func noPresenceKeyIsReplacedThatASecretNeeds() throws {
    let state = try UnusedPresenceKey(server)
    let outcome = Locked<WriteOutcome?>(nil)
    let isDone = interrupt {
      let stored = try state.store()
      outcome.withLock { $0 = stored }
    }
    expectFailure(.wrongPassphrase) { try state.replaceKey() }
    guard isDone.value, case .stored = outcome.withLock({ $0 }) else {
      Issue.record("nothing was stored meanwhile")
      return
    }
    #expect(try state.one.secrets().get("a") == "1")
    #expect(try Machine(server, authenticate: { _ in "one" }).secrets().get("a") == "1")
  }

  /// The key is replaced just before the secret is stored.
  @Test func noSecretIsStoredUnderAReplacedPresenceKey() throws {
    let state = try UnusedPresenceKey(server)
    let isDone = interrupt { try state.replaceKey() }
    guard case .overtaken = try state.store() else {
      Issue.record("stored under a key that is gone")
      return
    }
    #expect(isDone.value)
    #expect(try state.two.secrets().get("b") == "2")
  }

  /// The second machine has found that no secret is under the key.
  @Test func aNewPassphraseHoldsForASecretThatIsStoredMeanwhile() throws {
    let state = try UnusedPresenceKey(server)
    let isDone = interrupt { _ = try state.store() }
    let source = SecureVault.KeySource(.passphrase("new", logN: 10))
    // It asks for the current passphrase, which its user does not know.
    expectFailure(.wrongPassphrase) { try state.two.secrets().protect(with: source) }
    #expect(isDone.value)
    #expect(try state.one.secrets().get("a") == "1")
    #expect(try state.two.secrets().protection == .closure("test"))
  }

  @Test func accessIsKeptIfAnotherMachineChangesIt() throws {
    let user = FakeUser()
    let one = try Machine(server, authenticate: user.answer)
    let two = try Machine(server, authenticate: user.answer)
    try one.secrets().set("0", forKey: "k", access: .whenUnlocked)
    try one.secrets().set("0", forKey: "pin", access: .userPresence)
    try two.catchUp()
    #expect(try two.secrets().get("k") == "0")
    let isDone = interrupt { try two.secrets().set("2", forKey: "k", access: .userPresence) }
    try one.secrets().set("1", forKey: "k")
    #expect(isDone.value)
    #expect(try one.secrets().entry("k")?.access == .userPresence)
    #expect(try one.secrets().get("k") == "1")
  }

  @Test func ofTwoThatAddASecretOneDoes() throws {
    let (one, two) = (try Machine(server), try Machine(server))
    try one.secrets().set("0", forKey: "first")
    #expect(try two.secrets().get("first") == "0")
    let isDone = interrupt { () throws in
      let isAdded = try two.secrets().add("2", forKey: "k")
      #expect(isAdded)
    }
    #expect(try !one.secrets().add("1", forKey: "k"))
    #expect(isDone.value)
    #expect(try one.secrets().get("k") == "2")
  }

  @Test func aSecretIsStoredInTheVaultThatFollowsAnErasedOne() throws {
    let (one, two) = (try Machine(server), try Machine(server))
    for key in ["a", "b"] { try one.secrets().set("1", forKey: key) }
    #expect(try two.secrets().get("a") == "1")
    let isDone = interrupt { try two.secrets().eraseVault() }
    try one.secrets().set("2", forKey: "c")
    #expect(isDone.value)
    try expectWhole(["c": "2"])
    #expect(try names(on: one).count == 2)
  }

  @Test func changesOfManySecretsAreOneStep() throws {
    let machine = try Machine(server)
    for number in 0..<5 { try machine.secrets("many").set("1", forKey: "\(number)") }
    try machine.secrets().set("1", forKey: "k")
    let counts = Recorder<Int>()
    server.onApply.withLock { $0 = { counts.append($0) } }
    try machine.secrets("many").removeAll()
    #expect(counts.all == [5])
    #expect(try names(on: machine).count == 2)
    try machine.secrets().eraseVault()
    #expect(server.isEmpty && counts.all == [5])
  }

  /// The first machine does not hear what the second one does: it knows of no vault, or has an
  /// earlier header.
  @Test(
    arguments: ["remove", "removeAll", "rotateKeys", "forgetOldKeys", "removeRecovery"],
    [false, true])
  func aHeaderThatHasNotArrivedIsFollowed(_ call: String, isVaultKnown: Bool) throws {
    let (one, two) = (try Machine(server), try Machine(server, flaw: .keepsImports))
    let store = one.secrets()
    #expect(try store.get("k") == nil)
    try (isVaultKnown ? store : two.secrets()).set("1", forKey: "k")
    _ = try two.secrets().addRecovery()
    // An interrupted rotation leaves two keys.
    let count = Locked(0)
    onCall { name in
      if (name == "apply" ? count.increment() : count.withLock { $0 }) > 1 { throw Failure() }
    }
    #expect(throws: StorageError.self) { try two.secrets().rotateKeys() }
    allow()
    #expect(try keyCount() == 2 && store.get("k") == (isVaultKnown ? "1" : nil))
    switch call {
    case "remove": try store.remove("k")
    case "removeAll": try store.removeAll()
    case "rotateKeys": try store.rotateKeys()
    case "forgetOldKeys": try store.forgetOldKeys()
    default: try store.removeAllRecoveries()
    }
    try expectWhole(["remove", "removeAll"].contains(call) ? [:] : ["k": "1"])
    #expect(try keyCount() == (["rotateKeys", "forgetOldKeys"].contains(call) ? 1 : 2))
    #expect(try Machine(server).secrets().unlockMethods.count == (call == "removeRecovery" ? 1 : 2))
  }

  @Test func aRecoveryIsAddedAfterAnotherMachineHasMadeRoom() throws {
    let (one, two) = (try Machine(server), try Machine(server, flaw: .keepsImports))
    let store = one.secrets()
    try store.set("1", forKey: "k")
    for _ in 0..<15 { _ = try store.addRecovery() }
    expectFailure(.misuse) { _ = try store.addRecovery() }
    try two.secrets().removeAllRecoveries()
    _ = try store.addRecovery()
    #expect(try Machine(server).secrets().unlockMethods.count == 2)
  }

  // MARK: A server that is away

  @Test func readsGoOnWhileTheServerIsAway() throws {
    let machine = try Machine(server)
    let store = machine.secrets()
    try store.set("1", forKey: "k")
    refuse(["apply", "data", "keys", "fill", "removeAll"])
    #expect(try store.get("k") == "1" && store.keys() == ["k"] && store.contains("k"))
    try store.lock()
    try store.unlock()
    #expect(try store.get("k") == "1")
    for call in [
      { try store.set("2", forKey: "k") }, { try store.remove("k") }, { try store.removeAll() },
      { try store.rotateKeys() }, { try store.eraseVault() }, { _ = try store.addRecovery() },
      { try store.removeAllRecoveries() }, { try store.forgetOldKeys() },
      { try store.protect(with: .passphrase("open sesame")) },
    ] as [() throws -> Void] {
      let error = expectFailure(.unreachable, call)
      #expect(error?.reason == "the cable is out")
    }
    expectFailure(.unreachable) { _ = try Machine(server).secrets().get("k") }
    allow()
    try store.set("2", forKey: "k")
    try expectWhole(["k": "2"])
  }

  @Test func aMachineThatHearsOfNothingReadsAgain() throws {
    let one = try Machine(server)
    try one.secrets().set("1", forKey: "a")
    let two = try Machine(server, flaw: .keepsImports)
    try two.secrets().rotateKeys()
    // The first one still has the old header.
    try one.secrets().set("2", forKey: "b")
    #expect(try one.secrets().get("a") == "1")
    try expectWhole(["a": "1", "b": "2"])
    try two.secrets().rotateKeys()
    refuse(["fill"])
    expectFailure(.unreachable) { try one.secrets().set("3", forKey: "b") }
    #expect(try one.secrets().get("b") == "2")
    allow()
    try expectWhole(["a": "1", "b": "2"])
  }

  // MARK: Other programs

  private func value(_ name: String) throws -> StoredValue {
    try #require(try StoredValue(engineData: server.data(forKey: name), key: name))
  }

  private func bytes(_ name: String) throws -> Data {
    guard case .data(let bytes) = try value(name) else { throw Failure() }
    return bytes
  }

  private struct Failure: Error {}

  private func put(_ bytes: Data, as name: String, with machine: Machine) throws {
    try machine.engine.set(StoredValue.data(bytes).engineData, forKey: name)
  }

  private func entryName(_ key: String, on machine: Machine) throws -> String {
    try #require(try machine.vault.currentSession())
      .entryPath(service: "standard", key: key).subpath
  }

  @Test func theSameBytesWrittenDifferentlyAreTheSame() throws {
    let user = FakeUser()
    let machine = try Machine(server, authenticate: user.answer)
    let store = machine.secrets()
    try store.set("0", forKey: "pin", access: .userPresence)
    try store.set("1", forKey: "k")
    for name in try names(on: machine) {
      let text = try bytes(name).base64EncodedString()
      try machine.engine.set(Data("{ \"$data\" : \"\(text)\" }".utf8), forKey: name)
    }
    #expect(try store.get("k") == "1")
    try store.set("2", forKey: "k")
    try store.set("2", forKey: "pin")
    try store.rotateKeys()
    #expect(try store.get("k") == "2" && store.get("pin") == "2")
  }

  @Test(arguments: ["7", "\"text\"", "{\"$data\": \"%\"}", "no JSON"])
  func anEntryThatIsNoBytesIsDamaged(_ json: String) throws {
    let machine = try Machine(server, authenticate: { _ in "swordfish" })
    let store = machine.secrets()
    try store.set("0", forKey: "pin", access: .userPresence)
    try store.set("1", forKey: "k")
    try store.set("2", forKey: "l")
    let name = try entryName("k", on: machine)
    try machine.engine.set(Data(json.utf8), forKey: name)
    expectFailure(.damaged) { _ = try store.get("k") }
    #expect(try store.contains("k") && store.keys() == ["l", "pin"])
    #expect(machine.failures.all.map(\.code) == [.damaged])
    expectFailure(.damaged) { try store.rotateKeys() }
    #expect(try store.get("l") == "2")
    // Without an access, the old entry has to be the one that was seen.
    try store.set("3", forKey: "k")
    #expect(try store.get("k") == "3")
    try machine.engine.set(Data(json.utf8), forKey: name)
    try store.remove("k")
    #expect(try store.get("k") == nil)
    try store.rotateKeys()
    #expect(try keyCount() == 1)
  }

  @Test func alteredEntriesAreDamaged() throws {
    let machine = try Machine(server)
    let store = machine.secrets()
    try store.set("1", forKey: "k")
    try store.set("2", forKey: "l")
    let name = try entryName("k", on: machine)
    let (good, other) = (try bytes(name), try bytes(entryName("l", on: machine)))
    for count in [0, 1, EntryHeader.size - 1, EntryHeader.size, good.count - 1] {
      try put(good.prefix(count), as: name, with: machine)
      expectFailure(.damaged) { _ = try store.get("k") }
    }
    for position in good.indices where position % 7 == 0 {
      var bytes = good
      bytes[position] ^= 1
      try put(bytes, as: name, with: machine)
      #expect(throws: StorageError.self, "byte \(position)") { try store.get("k") }
    }
    try put(good + [0], as: name, with: machine)
    expectFailure(.damaged) { _ = try store.get("k") }
    try put(other, as: name, with: machine)
    expectFailure(.damaged) { _ = try store.get("k") }
    try put(good, as: name, with: machine)
    #expect(try store.get("k") == "1")
  }

  @Test func newerVersionsAreLeftAlone() throws {
    let machine = try Machine(server)
    let store = machine.secrets()
    try store.set("1", forKey: "k")
    let name = try entryName("k", on: machine)
    var entry = try bytes(name)
    entry[4] = 2
    try put(entry, as: name, with: machine)
    expectFailure(.unsupportedVersion) { _ = try store.get("k") }
    expectFailure(.unsupportedVersion) { try store.set("2", forKey: "k") }
    #expect(try bytes(name) == entry)

    var header = Array(try bytes("header"))
    header[4] = 3
    header = try Bytes.summed(header)
    try put(Data(header), as: "header", with: machine)
    for call in [
      { _ = try Machine(server).secrets().get("k") },
      { try Machine(server).secrets().set("2", forKey: "l") },
      { try store.set("2", forKey: "l") },
    ] as [() throws -> Void] { expectFailure(.unsupportedVersion, call) }
    #expect(try Array(bytes("header")) == header)
  }

  @Test func aDamagedHeaderIsNotReplaced() throws {
    let machine = try Machine(server)
    try machine.secrets().set("1", forKey: "k")
    let good = try bytes("header")
    for bad in [Data("7".utf8), StoredValue.data(good.dropLast()).engineData] {
      try machine.engine.set(bad, forKey: "header")
      for store in [machine.secrets(), try Machine(server).secrets()] {
        expectFailure(.damaged) { try store.set("2", forKey: "l") }
        expectFailure(.damaged) { _ = try store.protection }
      }
      #expect(server.data(forKey: "header") == bad)
    }
    try put(good, as: "header", with: machine)
    try expectWhole(["k": "1"])
    try machine.engine.set(Data("7".utf8), forKey: "header")
    try machine.secrets().eraseVault()
    #expect(server.isEmpty)
  }

  @Test func secretsWithoutAHeaderAreNotHidden() throws {
    let machine = try Machine(server)
    try machine.secrets().set("1", forKey: "k")
    let good = try bytes("header")
    try machine.engine.set(nil, forKey: "header")
    for store in [machine.secrets(), try Machine(server).secrets()] {
      expectFailure(.damaged) { try store.set("2", forKey: "l") }
    }
    try put(good, as: "header", with: machine)
    try expectWhole(["k": "1"])
  }

  /// Another machine creates the vault and stores a secret, at any moment of a creation.
  @Test func aVaultThatAppearsIsNotDamaged() throws {
    let machine = try Machine(server)
    try machine.secrets().set("1", forKey: "k")
    let header = try #require(try machine.vault.storage.readHeader()?.0)
    let engine = InertEngine()
    let vault = SharedVault(engine, app: "shared") { _ in }
    #expect(try vault.isCurrent())
    let mirror = try #require(engine.mirror.withLock { $0.take() })
    let entries = try names(on: machine).map { StorageEngines.Entry(key: $0, data: Data("1".utf8)) }
    let (hasBegun, isDone) = (ThreadGate(), Flag())
    let hasEnded = startThread {
      hasBegun.open()
      while !isDone.value {
        mirror.apply(entries)
        mirror.replaceAll(with: [])
      }
    }
    hasBegun.wait()
    var (count, createdCount, damageCount) = (0, 0, 0)
    // Until it has met both, a vault and none.
    let deadline = ContinuousClock.now + .seconds(600)
    while count < 20_000 || createdCount == 0 || createdCount == count,
      ContinuousClock.now < deadline
    {
      count += 1
      do throws(StorageError) {
        if try vault.replaceHeader({ header }) != nil { createdCount += 1 }
      } catch {
        if error.code == .damaged { damageCount += 1 }
      }
    }
    isDone.value = true
    hasEnded.wait()
    #expect(createdCount > 0 && createdCount < count && damageCount == 0)
  }

  /// Shows the values of its mirror, which the test changes.
  private final class InertEngine: StorageEngines.MirroredEngine {
    let mirror = Locked<StorageEngines.Mirror?>(nil)

    func fill(_ mirror: StorageEngines.Mirror) { self.mirror.withLock { $0 = mirror } }
    func data(forKey key: String) -> Data? { nil }
    func keys() -> [String] { [] }
    func set(_ data: Data?, forKey key: String) {}
    func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool { true }
    func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry])
      -> Bool
    { true }
    func removeAll() {}
  }

  /// Anyone who can write to the server can take back a rotation. What was sealed since cannot be
  /// read until the newer header is back, and is not overwritten.
  @Test func anOldHeaderHidesWhatWasSealedSince() throws {
    let machine = try Machine(server)
    let store = machine.secrets()
    try store.set("1", forKey: "k")
    let old = try bytes("header")
    try store.rotateKeys()
    let new = try bytes("header")
    try put(old, as: "header", with: machine)
    // The key is still in memory.
    #expect(try store.get("k") == "1")
    for store in [store, try Machine(server).secrets()] {
      expectFailure(.damaged) { try store.set("2", forKey: "k") }
      expectFailure(.damaged) { _ = try store.get("k") }
    }
    try put(new, as: "header", with: machine)
    #expect(try store.get("k") == "1")
    try expectWhole(["k": "1"])
  }

  // MARK: The backing

  @Test func theBackingIsAskedOnce() throws {
    let directory = try TemporaryDirectory()
    let apps = Recorder<String>()
    let backing = VaultEngine(ServerEngine(server)) { apps.append($0) }
    let scope = StorageScope(
      finder: DirectoryFinder(app: "shop", chosen: .init(data: directory.url)), backing: backing,
      vaultOptions: VaultOptions(sources: [Machine.key]), handler: { _ in })
    defer { scope.close() }
    for service in ["a", "b"] as [SecureVault.Service] {
      try scope.vault(service).set("1", forKey: "k")
    }
    #expect(apps.all == ["shop"])
    #expect(try scope.vault("a").vault.services() == ["a", "b"])
    #expect(try directory.names() == [])
  }
}
