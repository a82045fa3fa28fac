import Foundation
import Synchronization
import Testing

@testable import Keepsake

/// Secrets that need a person's presence.
@Suite(.singleThreaded) struct PresenceTests {
  /// Somebody who types what the test says, and remembers what was asked.
  final class Person: Sendable {
    private let state = Mutex<(answer: String?, requests: [SecureVault.PassphraseRequest])>(
      ("swordfish", []))
    var answer: String? {
      get { state.withLock { $0.answer } }
      set { state.withLock { $0.answer = newValue } }
    }
    var requests: [SecureVault.PassphraseRequest] { state.withLock { $0.requests } }
    var reasons: [String] { requests.map(\.reason) }
    @Sendable func answer(_ request: SecureVault.PassphraseRequest) -> String? {
      state.withLock { state in
        state.requests.append(request)
        return state.answer
      }
    }
  }

  /// Does something once, at the moment when `body` first takes the vault's lock.
  private func beforeTheLockIsTaken(
    _ interruption: @escaping @Sendable () throws -> Void, in body: () throws -> Void
  ) throws {
    let isDone = Mutex(false)
    let plan = FaultPlan(decide: { event in
      let isNow = event.call == .lock && event.path.hasSuffix("/vault/.lock")
      let isFirst =
        isNow
        && isDone.withLock { isDone in
          defer { isDone = true }
          return !isDone
        }
      if isFirst {
        FaultPlan.$current.withValue(nil) {
          #expect(throws: Never.self) { try interruption() }
        }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan, operation: body)
    #expect(isDone.withLock { $0 })
  }

  @Test func asksEachTimeItIsReadOrSet() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("1234", forKey: "pin", access: .userPresence)
    #expect(person.requests.map(\.isNew) == [true])
    #expect(try store.get("pin", reason: "Unlock notes") == "1234")
    #expect(try store.get("pin") == "1234")
    #expect(person.reasons.dropFirst() == ["Unlock notes", "Read the secret pin"])
    #expect(person.requests.map(\.isNew) == [true, false, false])
    // Nothing of this asks.
    #expect(try store.contains("pin") && store.keys() == ["pin"])
    #expect(try store.entry("pin")?.access == .userPresence)
    try store.rotateKeys()
    #expect(person.requests.count == 3)
    #expect(try store.get("pin") == "1234")
    // Data and models as well.
    try store.set(Data([1, 2]), forKey: "data", access: .userPresence)
    #expect(try store.getData("data") == Data([1, 2]))
    try store.set(["a": 1], forKey: "model", access: .userPresence)
    #expect(try store.model("model") == ["a": 1])
    #expect(try store.withSecret("pin") { (bytes: RawSpan) in bytes.byteCount } == 4)
  }

  @Test func failsAsLockedOrWrongPassphraseAndNeverWithTheValue() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("1234", forKey: "pin", access: .userPresence)
    person.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try store.get("pin") }
    expectFailure(.wrongPassphrase) {
      _ = try store.set("5678", forKey: "pin", access: .userPresence)
    }
    person.answer = nil
    expectFailure(.locked) { _ = try store.get("pin") }
    expectFailure(.locked) { _ = try directory.secrets().get("pin") }
    struct Secretive: Error { let typed = "swordfish" }
    let failing = directory.secrets(authenticate: { _ in throw Secretive() })
    let error = #expect(throws: StorageError.self) { try failing.get("pin") }
    #expect(error?.code == .locked && error?.description.contains("swordfish") == false)
    person.answer = "swordfish"
    #expect(try store.get("pin") == "1234")
  }

  @Test func aSetKeepsTheAccessUnlessItSaysOtherwise() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
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

  @Test func underAPassphraseItIsThatOne() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.protect(with: SecureVault.KeySource(.passphrase("vault", logN: 10)))
    expectFailure(.wrongPassphrase) {
      _ = try store.set("1", forKey: "pin", access: .userPresence)
    }
    person.answer = "vault"
    try store.set("1", forKey: "pin", access: .userPresence)
    #expect(person.requests.allSatisfy { !$0.isNew })
    #expect(try store.get("pin") == "1")
    // A new passphrase takes the secrets that need presence along, once the current one is given.
    let new = SecureVault.KeySource(.passphrase("new", logN: 10))
    person.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try store.protect(with: new) }
    #expect(try directory.secrets(keySources: [new]).isLocked == false)
    person.answer = "vault"
    try store.protect(with: new)
    expectFailure(.wrongPassphrase) { _ = try store.get("pin") }
    person.answer = "new"
    #expect(try store.get("pin") == "1")
    // Under a key file the passphrase stays theirs.
    try store.protect(with: .keyFile)
    #expect(try store.get("pin") == "1")
  }

  @Test func choosesAnewOnceNoneIsLeft() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("1", forKey: "pin", access: .userPresence)
    person.answer = "another"
    expectFailure(.wrongPassphrase) {
      _ = try store.set("2", forKey: "pin2", access: .userPresence)
    }
    try store.remove("pin")
    try store.set("2", forKey: "pin2", access: .userPresence)
    #expect(person.requests.last?.isNew == true)
    #expect(try store.get("pin2") == "2")
  }

  @Test func noNewKeyIsMadeWhereTheHeaderHasLostTheWay() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("plain", forKey: "k")
    let before = try directory.bytes(of: "vault/vault.hdr")
    try store.set("1", forKey: "pin", access: .userPresence)
    let after = try directory.bytes(of: "vault/vault.hdr")
    try directory.write(before, to: "vault/vault.hdr")
    expectFailure(.damaged) { _ = try directory.secrets(authenticate: person.answer).get("pin") }
    expectFailure(.damaged) {
      _ = try store.set("2", forKey: "pin2", access: .userPresence)
    }
    try directory.write(after, to: "vault/vault.hdr")
    #expect(try directory.secrets(authenticate: person.answer).get("pin") == "1")
  }

  @Test func theAnswerMayTakeItsTimeAndLockTheVault() throws {
    let directory = try TemporaryDirectory()
    let box = Mutex<SecureVault.Store?>(nil)
    let store = directory.secrets(authenticate: { _ in
      try box.withLock { $0 }?.lock()
      return "swordfish"
    })
    try store.set("1", forKey: "pin", access: .userPresence)
    box.withLock { $0 = store }
    let start = ContinuousClock.now
    expectFailure(.locked) {
      _ = try store.set("2", forKey: "pin", access: .userPresence)
    }
    #expect(ContinuousClock.now - start < .seconds(10))
    #expect(try store.isLocked)
    try store.unlock()
    box.withLock { $0 = nil }
    #expect(try store.get("pin") == "1")
  }

  @Test func theFirstOneSurvivesThatTheVaultIsPutUnderSomethingElseMeanwhile() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("v", forKey: "k")
    try store.set("0", forKey: "gone", access: .userPresence)
    try store.remove("gone")
    // Nothing needs presence when `protect` looks; something does when it replaces the header.
    let source = SecureVault.KeySource(.passphrase("p", logN: 10))
    let other = directory.secrets(authenticate: person.answer)
    try beforeTheLockIsTaken {
      try other.set("1", forKey: "pin", access: .userPresence)
    } in: {
      try store.protect(with: source)
    }
    // It is moved to the new passphrase, for which the current one was asked.
    #expect(person.reasons.last == "A new passphrase needs the current one")
    person.answer = "p"
    let reader = directory.secrets(keySources: [source], authenticate: person.answer)
    #expect(try reader.get("pin") == "1" && reader.get("k") == "v")
  }

  @Test func aFlagThatWasFlippedLosesNoKey() throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("1", forKey: "pin", access: .userPresence)
    let path = try directory.secretPath("pin")
    let good = try Bytes.read(path)
    try Bytes.write(good[6] ^ 1, at: 6, of: path)
    try store.protect(with: .keyFile)
    person.answer = "another"
    expectFailure(.wrongPassphrase) {
      try store.set("2", forKey: "pin2", access: .userPresence)
    }
    // With the right file back it opens, as its key was kept.
    try Bytes.write(good, to: path)
    person.answer = "swordfish"
    #expect(try directory.secrets(authenticate: person.answer).get("pin") == "1")
  }

  @Test(arguments: [true, false])
  func aSetThatKeepsTheAccessKeepsTheOneOfTheLastMoment(isFirst: Bool) throws {
    let directory = try TemporaryDirectory()
    let person = Person()
    let store = directory.secrets(authenticate: person.answer)
    try store.set("0", forKey: "pin")
    // With one of them there already, the next one changes nothing in the header.
    if !isFirst { try store.set("0", forKey: "other", access: .userPresence) }
    let other = directory.secrets(authenticate: person.answer)
    // Another one asks for presence after this one has looked, and before it takes the lock.
    try beforeTheLockIsTaken {
      try other.set("1", forKey: "pin", access: .userPresence)
    } in: {
      try store.set("2", forKey: "pin")
    }
    #expect(try store.entry("pin")?.access == .userPresence && store.get("pin") == "2")
  }
}
