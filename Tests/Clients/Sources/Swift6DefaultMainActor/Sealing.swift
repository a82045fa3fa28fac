// SecureVault with the main actor as default isolation.
import Checks
import Foundation
import Keepsake
import Observation

extension SecureVault.Key<Note> {
  static let secretNote = Self("secretNote")
}

extension SecureVault.Key<[Note]> {
  static let diary = SecureVault.Key<[Note]>("diary", service: "Diary")
}

extension SecureVault.Key<String> {
  static let pin = Self("pin", access: .userPresence)
}

// A model and a key that can be used off the main actor.
nonisolated struct Credentials: Codable, Equatable {
  var user: String
  var password: String
}

nonisolated extension SecureVault.Key<Credentials> {
  static let credentials = Self("credentials", service: "com.app.auth")
}

enum Vaults {
  // Computed, because a constant would stay the store of the scope in which it was first used.
  static var diary: SecureVault.Store { SecureVault.service("Diary") }
}

/// Off the main actor, because a passphrase takes half a second.
@concurrent func unlockOffMainActor(_ passphrase: String) async -> Bool {
  SecureVault.unlock(passphrase: passphrase)
}

@concurrent func protectOffMainActor(_ source: SecureVault.KeySource) async throws {
  try SecureVault.shared.protect(with: source)
}

@concurrent func userOffMainActor() async -> String? { SecureVault[.credentials]?.user }

@Observable final class Lock {
  var isLocked = SecureVault.isLocked
  var note: Note?
  var bytes = 0
  var problem = ""

  func read() {
    do {
      note = try SecureVault.shared.get(.secretNote)
    } catch StorageError.Code.locked {
      problem = "unlock first"
    } catch {
      problem = error.remedy
    }
    isLocked = SecureVault.isLocked
  }

  func unlock(_ passphrase: String) async {
    if await unlockOffMainActor(passphrase) { read() }
  }

  func measure() throws {
    SecureVault.withSecret("secretNote") { bytes = $0.byteCount }
    try SecureVault.shared.withSecret("secretNote") { bytes += $0.byteCount }
    try SecureVault.shared.withSecret("secretNote") { span in
      if span.isEmpty { throw CancellationError() }
      self.bytes += 1
    }
  }
}

func checkSecrets() throws {
  SecureVault.set(Note(title: "first"), forKey: "note")
  let note: Note? = SecureVault.model("note")
  check(note?.title, is: "first")
  check(SecureVault.model("note", type: Note.self)?.pinned == false)
  SecureVault.set(Draft(text: "d"), forKey: "draft", access: .whenUnlocked, service: "Drafts")
  check(SecureVault.model("draft", type: Draft.self, service: "Drafts")?.text, is: "d")
  SecureVault.set(Sorting.date, forKey: "sorting", service: "user-\(note?.title ?? "")")
  check(SecureVault.model("sorting", service: "user-first") == Sorting.date)
  SecureVault.set(nil, forKey: "note")
  check(SecureVault.contains("note"), is: false)
  SecureVault.set("tok", forKey: "token")
  check(SecureVault.get("token"), is: "tok")
  check(SecureVault.getData("token"), is: Data("tok".utf8))
  SecureVault[.secretNote] = Note(title: "secret")
  SecureVault[.secretNote]?.pinned = true
  check(SecureVault.get(.secretNote)?.pinned == true)
  SecureVault[.diary] = [Note(title: "n")]
  check(SecureVault[.diary]?.map(\.title), is: ["n"])
  check(try Vaults.diary.get(.diary)?.count, is: 1)
  check(SecureVault.set(Credentials(user: "ada", password: "p"), for: .credentials))
  check(SecureVault.services().map(\.name).contains("com.app.auth"))
  try Vaults.diary.set(Note(title: "a"), forKey: "a")
  check(try Vaults.diary.model("a", type: Note.self)?.title, is: "a")
  check(try Vaults.diary.keys(), is: ["a", "diary"])
  check(try Vaults.diary.entry("a")?.access == .whenUnlocked)
  try Vaults.diary.remove("a")
  try Vaults.diary.removeAll()
  check(SecureVault.keys(service: "Diary"), is: [])
  let lock = Lock()
  try lock.measure()
  check(lock.bytes > 1 && !lock.isLocked)
  SecureVault.defaultService = "com.app.auth"
  check(SecureVault.contains("credentials"))
  SecureVault.defaultService = .standard
}

func checkSecretsInTasks() async throws {
  check(await userOffMainActor(), is: "ada")
  check(SecureVault.protection == .keyFile)
  try await protectOffMainActor(.passphrase("open sesame"))
  let lock = Lock()
  SecureVault.lock()
  lock.read()
  check(lock.isLocked && lock.problem == "unlock first")
  await lock.unlock("open sesame")
  check(lock.note?.title, is: "secret")
  check(!lock.isLocked)
  check(await Task.detached { SecureVault[.credentials]?.password }.value, is: "p")
  check(SecureVault.rotateKeys() && SecureVault.contains(.secretNote))
  SecureVault.remove(.secretNote)

  var answered = ""
  let user: SecureVault.Authenticator = { request in request.isNew ? "chosen" : nil }
  try await StorageSystem.withTemporary(authenticate: user) {
    SecureVault[.pin] = "1234"
    check(SecureVault.entry(.pin)?.access == .userPresence)
    StorageSystem.onFailure = { error in check(error.code == .locked) }
    answered = SecureVault.get(.pin, reason: "Unlock notes") ?? "no answer"
  }
  check(answered, is: "no answer")
  try await StorageSystem.withTemporary(keySources: [.closure("server") { Data(count: 32) }]) {
    SecureVault[.secretNote] = Note(title: "temporary")
    check(await Task { SecureVault[.secretNote]?.title }.value, is: "temporary")
    check(SecureVault.protection == .closure("server"))
    check(SecureVault.eraseVault())
  }
}
