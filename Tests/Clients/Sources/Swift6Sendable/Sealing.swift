// SecureVault from any thread, task and actor: Swift 6 mode without a main actor.
import Checks
import Dispatch
import FoundationEssentials
import Keepsake

struct Token: Codable, Equatable, Sendable {
  var text: String
  var expires: Date?
}

extension SecureVault.Key<Token> {
  static let accessToken = Self("accessToken", service: .auth)
  /// A key whose name is partly determined at run time.
  static func token(of user: Int) -> Self { Self("token-\(user)", service: .auth) }
}

// A key is `Sendable` even if its values are not.
extension SecureVault.Key<Draft> {
  static let draft = Self("draft")
}

extension SecureVault.Key where Value == [String] {
  static var recoveryCodes: Self { Self("recoveryCodes", access: .userPresence) }
}

extension SecureVault.Service {
  static let auth = SecureVault.Service("com.app.auth")
}

/// A client that reads its token from the vault for each request.
struct Client: Sendable {
  let auth = SecureVault.service(.auth)

  func header() throws(StorageError) -> String? {
    guard let token = try auth.get(.accessToken) else { return nil }
    return "Bearer \(token.text)"
  }

  func signature() throws(StorageError) -> Int? {
    try auth.withSecret("accessToken") { (bytes: RawSpan) in bytes.byteCount }
  }

  func logIn(_ text: String) async throws -> Token {
    if let token = try auth.get(.accessToken) { return token }
    let token = Token(text: text, expires: Date(timeIntervalSinceNow: 60))
    try auth.set(token, for: .accessToken)
    return token
  }
}

actor Keychain {
  private var reads = 0
  private var drafts: [Draft] = []

  func read(_ user: Int) -> Token? {
    reads += 1
    return SecureVault[.token(of: user)]
  }

  /// A value that is not `Sendable` and stays on this actor.
  func keep(_ text: String) throws -> Int {
    drafts.append(Draft(text: text))
    try SecureVault.shared.set(drafts[0], for: .draft)
    if let draft = SecureVault[.draft] { drafts.append(draft) }
    SecureVault.withSecret("draft") { reads += $0.byteCount }
    return drafts.count
  }
}

/// The error of a call as a command-line tool would print it.
func explain(_ body: (SecureVault.Store) throws(StorageError) -> Void) -> String {
  do throws(StorageError) {
    try body(SecureVault.shared)
    return "done"
  } catch {
    switch error.code {
    case .locked: return "unlock first"
    case .wrongPassphrase: return "once more"
    default: return error.description
    }
  }
}

/// Throws the store's errors and the closure's.
func firstByte(_ key: String) throws -> UInt8? {
  try SecureVault.shared.withSecret(key) { bytes in
    guard bytes.byteCount > 0 else { throw Offline() }
    return bytes.unsafeLoad(as: UInt8.self)
  }
}

/// The facade throws only the closure's error type.
func size(_ key: String, atMost limit: Int) throws(Refusal) -> Int? {
  try SecureVault.withSecret(key) { (bytes: RawSpan) throws(Refusal) in
    if bytes.byteCount > limit { throw .full }
    return bytes.byteCount
  }
}

func checkSecrets() throws {
  let token = Token(text: "tok")
  check(SecureVault.set(token, forKey: "t"))
  let read: Token? = SecureVault.model("t")
  check(read, is: token)
  check(SecureVault.model("t", type: Token.self), is: token)
  SecureVault[.accessToken] = token
  SecureVault[.accessToken]?.expires = .distantFuture
  check(SecureVault[.accessToken]?.expires, is: .distantFuture)
  check(SecureVault.contains(.accessToken) && SecureVault.entry(.accessToken) != nil)
  check(SecureVault.services(), is: [.auth, .standard])
  SecureVault.set("text", forKey: "text")
  SecureVault.set(Data(), forKey: "empty")
  check(try firstByte("text"), is: UInt8(ascii: "t"))
  check(try firstByte("missing") == nil)
  do {
    _ = try firstByte("empty")
    check(false)
  } catch is Offline {
    check(true)
  }
  do {
    check(try size("text", atMost: 9), is: 4)
    _ = try size("text", atMost: 3)
    check(false)
  } catch .full {
    check(SecureVault.get("text"), is: "text")
  }
  SecureVault.set(nil, forKey: "text", access: .whenUnlocked)
  SecureVault.remove("empty")
  check(SecureVault.keys(), is: ["t"])
  DispatchQueue.concurrentPerform(iterations: 20) { number in
    SecureVault[.token(of: number % 4)] = Token(text: "\(number)")
    check(SecureVault[.token(of: number % 4)] != nil)
  }
  check(SecureVault.keys(service: .auth).count, is: 5)
  check(SecureVault.removeAll(service: .auth))
  SecureVault.defaultService = .auth
  check(SecureVault.set("x", forKey: "x") && SecureVault.shared.service == .auth)
  SecureVault.defaultService = .standard
  check(!SecureVault.contains("x"))
}

func checkSecretsInTasks() async throws {
  let client = Client()
  try client.auth.removeAll()
  check(try client.header() == nil)
  async let first = client.logIn("a")
  check(try await first.text, is: "a")
  check(try await client.logIn("b").text, is: "a")
  check(try client.header(), is: "Bearer a")
  check(try client.signature() ?? 0 > 0)
  let keychain = Keychain()
  await withTaskGroup(of: Void.self) { group in
    for user in 0..<4 {
      group.addTask {
        SecureVault[.token(of: user)] = Token(text: "\(user)")
        check(await keychain.read(user)?.text, is: "\(user)")
      }
    }
  }
  check(try await keychain.keep("secret"), is: 2)
  check(try client.auth.contains("token-3") && client.auth.entry("token-3") != nil)
  try client.auth.remove(.token(of: 3))
  check(try client.auth.getData("token-3") == nil)
}

/// Slow, because each passphrase takes half a second.
func checkPassphrase() throws {
  let store = SecureVault.shared
  try store.protect(with: .passphrase("open sesame"))
  try store.lock()
  check(explain { store throws(StorageError) in _ = try store.keys() }, is: "unlock first")
  check(
    explain { store throws(StorageError) in try store.unlock(passphrase: "x") }, is: "once more")
  check(
    explain { store throws(StorageError) in try store.unlock(passphrase: "open sesame") },
    is: "done")
  check(try store.isLocked, is: false)
  switch try store.protection {
  case .passphrase: break
  case .keyFile, .credential, .closure, nil: check(false)
  }
  do {
    try store.protect(with: .credential("absent"))
    check(false)
  } catch {
    check(error.code == .misuse)
  }
  try store.protect(with: .keyFile)
  try store.rotateKeys()
  try store.unlock()
  check(SecureVault.protection == .keyFile)
  try store.eraseVault()
  check(try store.protection == nil)
}

/// Types a passphrase in place of a user.
@Sendable func typePassphrase(_ request: SecureVault.PassphraseRequest) throws -> String? {
  if request.reason == "Spy" { throw Offline() }
  return "a passphrase"
}

func checkUserPresence() async throws {
  try await StorageSystem.withTemporary(authenticate: typePassphrase) {
    SecureVault[.recoveryCodes] = ["1", "2"]
    check(SecureVault.get(.recoveryCodes, reason: "Recover"), is: ["1", "2"])
    check(SecureVault.entry(.recoveryCodes)?.access == .userPresence)
    check(SecureVault.contains("recoveryCodes"))
    do {
      _ = try SecureVault.shared.get(.recoveryCodes, reason: "Spy")
      check(false)
    } catch {
      check((error as? StorageError)?.code == .locked)
    }
  }
  let authenticators: [SecureVault.Authenticator] = [SecureVault.askTerminal, typePassphrase]
  check(authenticators.count, is: 2)
  let key = Data((0..<32).map { _ in UInt8.random(in: 0...255) })
  let sources: [SecureVault.KeySource] = [.closure("key server") { key }, .keyFile]
  check(sources.map(\.description), is: ["key source \"key server\"", "key file"])
  try await StorageSystem.withTemporary(keySources: sources) {
    SecureVault[.accessToken] = Token(text: "t")
    check(SecureVault.protection == .closure("key server"))
    SecureVault.lock()
    check(SecureVault.isLocked && SecureVault.unlock())
    check(SecureVault[.accessToken]?.text, is: "t")
  }
}
