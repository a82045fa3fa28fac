import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a vault does wherever it is kept.
@Suite(.singleThreaded, .quickPassphrases) struct VaultStorageTests {
  enum Storage: CaseIterable {
    case directory
    case engine
  }

  /// Opens the vault again and again, as processes do, on one machine or on several.
  private final class App {
    private let storage: Storage
    private let directory: TemporaryDirectory
    private let server = SharedServer()
    private var machines: [Machine] = []

    init(_ storage: Storage) throws {
      self.storage = storage
      directory = try TemporaryDirectory()
    }

    func open(
      _ service: SecureVault.Service = .standard,
      _ keySources: [SecureVault.KeySource] = [Machine.key],
      authenticate: SecureVault.Authenticator? = nil
    ) throws -> SecureVault.Store {
      guard storage == .engine else {
        return directory.secrets(service, keySources: keySources, authenticate: authenticate)
      }
      for machine in machines { try machine.catchUp() }
      let machine = try Machine(server, keySources: keySources, authenticate: authenticate)
      machines.append(machine)
      return machine.secrets(service)
    }

    /// Waits until all have what another one has done.
    func settle() throws {
      for machine in machines { try machine.catchUp() }
    }
  }

  private struct Login: Codable, Equatable {
    var user = "ann"
    var scopes = ["a", "b"]
  }

  @Test(arguments: Storage.allCases) func valuesAreReadByAnotherProcess(
    _ storage: Storage
  ) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    let large = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0) })
    try one.set("tok", forKey: "token")
    try one.set("", forKey: "")
    try one.set(Login(), forKey: "login")
    try one.set(large, forKey: "large")
    for count in [4_000, 4_096, 4_097, 5_000] {
      try one.set(large.prefix(count), forKey: "of \(count) bytes")
    }
    try app.settle()
    for store in [one, two, try app.open()] {
      #expect(try store.get("token") == "tok" && store.get("") == "")
      #expect(try store.model("login") == Login())
      #expect(try store.getData("large") == large)
      for count in [4_000, 4_096, 4_097, 5_000] {
        #expect(try store.getData("of \(count) bytes") == large.prefix(count))
      }
      #expect(try store.get("missing") == nil && !store.contains("missing"))
      #expect(try store.contains("token") && store.getData("token") == Data("tok".utf8))
    }
    try two.set("new", forKey: "token")
    try two.remove("large")
    try two.remove("missing")
    try app.settle()
    #expect(try one.get("token") == "new" && one.getData("large") == nil)
  }

  @Test(arguments: Storage.allCases) func servicesAreApart(_ storage: Storage) throws {
    let app = try App(storage)
    let (auth, mail) = (try app.open("auth"), try app.open("mail"))
    for key in ["b", "a", "ä"] { try auth.set(key, forKey: key) }
    try mail.set("1", forKey: "a")
    try app.settle()
    #expect(try auth.keys() == ["a", "b", "ä"].sorted() && mail.keys() == ["a"])
    #expect(try auth.vault.services() == ["auth", "mail"])
    #expect(try mail.get("a") == "1" && auth.get("a") == "a")
    try auth.removeAll()
    try app.settle()
    #expect(try auth.keys() == [] && mail.keys() == ["a"] && mail.vault.services() == ["mail"])
    try auth.removeAll()
    #expect(try mail.get("a") == "1")
  }

  @Test(arguments: Storage.allCases) func addStoresOnce(_ storage: Storage) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    #expect(try one.add("1", forKey: "k"))
    try app.settle()
    #expect(try !one.add("2", forKey: "k") && !two.add("2", forKey: "k"))
    #expect(try two.get("k") == "1")
    try two.remove("k")
    try app.settle()
    #expect(try one.add("3", forKey: "k"))
  }

  @Test(arguments: Storage.allCases) func datesAreKept(_ storage: Storage) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    try one.set("1", forKey: "k")
    try app.settle()
    let first = try #require(try two.entry("k"))
    #expect(first.created == first.modified && first.access == .whenUnlocked)
    try two.set("2", forKey: "k")
    try app.settle()
    let second = try #require(try one.entry("k"))
    #expect(second.created == first.created && second.modified > first.modified)
    try one.rotateKeys()
    try app.settle()
    #expect(try two.entry("k") == second)
    #expect(try two.entry("missing") == nil)
  }

  @Test(arguments: Storage.allCases) func keysAreRotated(_ storage: Storage) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    for number in 0..<5 { try one.set("\(number)", forKey: "k\(number)") }
    try app.settle()
    #expect(try two.get("k0") == "0")
    let old = try #require(try two.vault.currentSession()).ring.primaryID
    try one.rotateKeys()
    try app.settle()
    for store in [one, two] {
      let session = try #require(try store.vault.currentSession())
      #expect(session.ring.keyIDs == [session.ring.primaryID] && session.ring.primaryID != old)
      for number in 0..<5 { #expect(try store.get("k\(number)") == "\(number)") }
    }
    try two.set("new", forKey: "k0")
    try app.settle()
    #expect(try one.get("k0") == "new" && app.open().keys().count == 5)
  }

  @Test(arguments: Storage.allCases) func protectionIsChanged(_ storage: Storage) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    try one.set("1", forKey: "k")
    try app.settle()
    #expect(try two.get("k") == "1")
    let passphrase = SecureVault.KeySource.passphrase("open sesame")
    try one.protect(with: passphrase)
    try app.settle()
    #expect(try one.get("k") == "1" && one.protection == .passphrase)
    // Its key is out of date, and its source no longer opens the vault.
    expectFailure(.locked) { try two.set("2", forKey: "k") }
    #expect(try two.isLocked)
    expectFailure(.wrongPassphrase) { try two.unlock(passphrase: "wrong") }
    try two.unlock(passphrase: "open sesame")
    #expect(try two.get("k") == "1")
    try two.lock()
    expectFailure(.locked) { _ = try two.get("k") }
    expectFailure(.locked) { _ = try two.keys() }
    try two.unlock(passphrase: "open sesame")
    try two.set("2", forKey: "k")
    try app.settle()
    #expect(try app.open(.standard, [passphrase]).get("k") == "2")
  }

  @Test(arguments: Storage.allCases) func recoveryCodesOpenTheVault(_ storage: Storage) throws {
    let app = try App(storage)
    let store = try app.open()
    try store.set("1", forKey: "k")
    let code = try store.addRecovery()
    try store.addRecovery(passphrase: "second")
    #expect(try store.unlockMethods.count == 3)
    for typed in [code, "second"] {
      let other = try app.open(.standard, [])
      expectFailure(.locked) { _ = try other.get("k") }
      try other.unlock(passphrase: typed)
      #expect(try other.get("k") == "1")
    }
    try store.removeAllRecoveries()
    expectFailure(.misuse) { try app.open(.standard, []).unlock(passphrase: code) }
    #expect(try store.unlockMethods.count == 1 && store.get("k") == "1")
  }

  @Test(arguments: Storage.allCases) func presenceIsRequired(_ storage: Storage) throws {
    let app = try App(storage)
    let user = FakeUser()
    let (one, two) = (
      try app.open(authenticate: user.answer), try app.open(authenticate: user.answer)
    )
    try one.set("1234", forKey: "pin", access: .userPresence)
    #expect(user.requests.map(\.isNew) == [true])
    try app.settle()
    #expect(try two.get("pin") == "1234" && two.entry("pin")?.access == .userPresence)
    try two.set("5678", forKey: "pin")
    try app.settle()
    #expect(try one.get("pin") == "5678" && one.entry("pin")?.access == .userPresence)
    try one.rotateKeys()
    try app.settle()
    #expect(try two.get("pin") == "5678")
    #expect(user.requests.dropFirst().allSatisfy { !$0.isNew })
    user.answer = "wrong"
    expectFailure(.wrongPassphrase) { _ = try two.get("pin") }
    // Without such a secret, the next one has a passphrase of its own.
    try one.remove("pin")
    try app.settle()
    user.answer = "another"
    try two.set("9", forKey: "pin2", access: .userPresence)
    #expect(user.requests.last?.isNew == true)
    try app.settle()
    #expect(try one.get("pin2") == "9")
  }

  @Test(arguments: Storage.allCases) func vaultIsErased(_ storage: Storage) throws {
    let app = try App(storage)
    let (one, two) = (try app.open(), try app.open())
    try one.eraseVault()
    for key in ["a", "b"] { try one.set("1", forKey: key) }
    try app.settle()
    #expect(try two.get("a") == "1")
    let old = try #require(try two.vault.currentSession()).header.vaultID
    try two.eraseVault()
    try app.settle()
    for store in [one, two] {
      #expect(try store.get("a") == nil && store.keys() == [] && store.protection == nil)
    }
    try one.set("2", forKey: "a")
    try app.settle()
    #expect(try two.get("a") == "2")
    #expect(try two.vault.currentSession()?.header.vaultID != old)
  }

  @Test(arguments: Storage.allCases) func namesAreLimited(_ storage: Storage) throws {
    let store = try App(storage).open()
    try store.set("1", forKey: String(repeating: "k", count: EntryNames.maxNameSize))
    #expect(try store.keys().count == 1)
    expectFailure(.misuse) {
      try store.set("1", forKey: String(repeating: "k", count: EntryNames.maxNameSize + 1))
    }
  }
}
