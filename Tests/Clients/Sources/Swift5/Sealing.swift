// SecureVault in Swift 5 mode without any isolation.
import Checks
import Foundation
import Keepsake

extension SecureVault.Key<User> {
  static let account = Self("account", service: "com.app.auth")
}

extension SecureVault.Key<String> {
  static let accessToken = SecureVault.Key<String>("accessToken", service: .auth)
  static let refreshToken = Self("refreshToken", access: .whenUnlocked)
  static let pin = Self("pin", access: .userPresence)
}

extension SecureVault.Key<Session> {
  static let session = SecureVault.Key<Session>("session")
}

extension SecureVault.Key<[String: Data]> {
  static let certificates = Self("certificates")
}

extension SecureVault.Service {
  static let auth: SecureVault.Service = "com.app.auth"
}

struct Unsigned: Error {}

/// A function that takes bytes.
func checksum(_ bytes: RawSpan) -> Int {
  bytes.withUnsafeBytes { $0.reduce(0) { $0 + Int($1) } }
}

func checkSecrets() {
  SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
  let token = SecureVault.get("accessToken", service: "com.app.auth")
  check(token, is: "tok")
  check(SecureVault.get("accessToken") == nil)
  check(SecureVault.get("accessToken", service: .auth) ?? "none", is: "tok")
  if let token = SecureVault.get("missing") { check(token.isEmpty) }
  guard SecureVault.set(Data([0, 255]), forKey: "key") else { return check(false) }
  check(SecureVault.getData("key"), is: Data([0, 255]))
  check(SecureVault.getData("accessToken", service: .auth), is: Data("tok".utf8))
  SecureVault.set(User(name: "Ada"), forKey: "user")
  let user: User? = SecureVault.model("user")
  check(user, is: User(name: "Ada"))
  check(SecureVault.model("user", type: User.self)?.name, is: "Ada")
  check((SecureVault.model("missing") ?? User(name: "new")).name, is: "new")
  SecureVault.set(Session(token: "t"), forKey: "session", access: .whenUnlocked)
  let session: Session? = SecureVault.model("session")
  check(session?.token, is: "t")
  SecureVault.set(Theme.dark, forKey: "theme")
  check(SecureVault.model("theme") == Theme.dark)
  SecureVault.set(1234, forKey: "pin")
  check(SecureVault.model("pin"), is: 1234)
  SecureVault.set([1, 2, 3], forKey: "list")
  check(SecureVault.model("list") ?? [Int](), is: [1, 2, 3])
  SecureVault.set(["a": 1.5], forKey: "table")
  check(SecureVault.model("table") as [String: Double]?, is: ["a": 1.5])
  let anything: any Codable = true
  SecureVault.set(anything, forKey: "any")
  check(SecureVault.model("any", type: Bool.self) == true)

  var name: String? = "Ada"
  SecureVault.set(name, forKey: "name")
  check(SecureVault.contains("name"))
  name = nil
  SecureVault.set(name, forKey: "name")
  check(!SecureVault.contains("name"))
  SecureVault.set(nil, forKey: "list")
  SecureVault.set(nil, forKey: "list", service: "user-\(user?.name ?? "")")
  SecureVault.remove("any")
  check(SecureVault.remove("accessToken", service: .auth))
  check(SecureVault.keys(), is: ["key", "pin", "session", "table", "theme", "user"])
  check(SecureVault.keys(service: .auth), is: [])
  check(SecureVault.services().map(\.name), is: ["standard"])
  if let entry = SecureVault.entry("user") {
    check(entry.created <= entry.modified && entry.modified <= Date())
    check(entry.access == .whenUnlocked)
  } else {
    check(false)
  }

  check(SecureVault.withSecret("key") { $0.byteCount }, is: 2)
  let sum = SecureVault.withSecret("key") { bytes in checksum(bytes) }
  check(sum, is: 255)
  check(SecureVault.withSecret("missing", checksum) == nil)
  var seen = 0
  SecureVault.withSecret("user", reason: "Sign") { bytes in
    let digits = checksum(bytes)
    seen += digits
  }
  check(seen > 0)
  do {
    try SecureVault.withSecret("key") { _ in throw Unsigned() }
    check(false)
  } catch {
    check(error is Unsigned)
  }
  SecureVault.removeAll()
  SecureVault.removeAll(service: .auth)
  check(SecureVault.services(), is: [])
}

func checkSecretKeys() {
  check(SecureVault[.account] == nil)
  SecureVault[.account] = User(name: "Ada")
  check(SecureVault[.account]?.name, is: "Ada")
  SecureVault[.account]?.name = "Grace"
  SecureVault[.account]?.tags.append("x")
  check(SecureVault.get(.account), is: User(name: "Grace", tags: ["x"]))
  check(SecureVault.get(.account, reason: "Log in")?.name, is: "Grace")
  check(SecureVault.contains(.account) && !SecureVault.contains("account"))
  check(SecureVault.entry(.account)?.access == .whenUnlocked)
  check(SecureVault.set("r", for: .refreshToken))
  check(SecureVault.get("refreshToken"), is: "r")
  SecureVault[.session] = Session(token: "a")
  check(SecureVault[.session]?.token, is: "a")
  SecureVault[.certificates] = ["root": Data([1])]
  check(SecureVault[.certificates]?["root"], is: Data([1]))
  SecureVault[.certificates]?["leaf"] = Data([2])
  check(SecureVault[.certificates]?.count, is: 2)
  SecureVault[.account] = nil
  SecureVault.remove(.session)
  check(SecureVault[.session] == nil && !SecureVault.contains(.account))
}

func checkServices() throws {
  SecureVault.defaultService = .auth
  SecureVault.set("t", forKey: "x")
  check(SecureVault.get("x", service: .auth), is: "t")
  check(SecureVault.shared.service, is: .auth)
  SecureVault.defaultService = .standard
  check(SecureVault.get("x") == nil)
  let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  SecureVault.set("shared", forKey: "x", service: SecureVault.Service("team", in: folder))
  check(SecureVault.get("x", service: .init("team", in: folder)), is: "shared")
  check(try SecureVault.service(.init("team", in: folder)).folderURL.path.hasPrefix(folder.path))
  try FileManager.default.removeItem(at: folder)
}

func checkVaultStore() throws {
  let auth = SecureVault.service(.auth)
  do {
    try auth.set("tok", forKey: "token")
    try auth.set(User(name: "Ada"), forKey: "user", access: .whenUnlocked)
    try auth.set(nil, forKey: "nothing")
    let user: User? = try auth.model("user")
    check(user?.name, is: "Ada")
    check(try auth.model("user", type: User.self)?.name, is: "Ada")
    check(try auth.get("token"), is: "tok")
    check(try auth.getData("token")?.count, is: 3)
    check(try auth.entry("token")?.access == .whenUnlocked)
    check(try auth.contains("token"))
    check(try auth.keys(), is: ["token", "user", "x"])
    try auth.withSecret("token") { bytes in check(bytes.byteCount, is: 3) }
    check(try auth.withSecret("token", checksum) ?? 0 > 0)
    let count = try auth.withSecret("token") { bytes -> Int in
      if bytes.isEmpty { throw Unsigned() }
      return bytes.byteCount
    }
    check(count, is: 3)
    try auth.set(User(name: "Grace"), for: .account)
    check(try auth.get(.account)?.name, is: "Grace")
    check(try auth.contains(.account) && auth.entry(.account) != nil)
    try auth.remove(.account)
    try auth.remove("token")
    try auth.removeAll()
  } catch StorageError.Code.diskFull {
    return check(false)
  } catch {
    print(error)
    throw error
  }
  do {
    try auth.set("text", forKey: "number")
    _ = try auth.model("number", type: Int.self)
    check(false)
  } catch StorageError.Code.wrongType, StorageError.Code.decodingFailed {
    check(true)
  } catch {
    // Without this clause the Swift 6.3 compiler crashes because the function contains a `??`.
    throw error
  }
}

/// Slow, because each passphrase takes half a second.
func checkPassphrase() throws {
  SecureVault.set("v", forKey: "k")
  check(SecureVault.protection == .keyFile && !SecureVault.isLocked)
  guard SecureVault.protect(with: .passphrase("open sesame")) else { return check(false) }
  check(SecureVault.protection == .passphrase)
  check(SecureVault.get("k"), is: "v")
  SecureVault.lock()
  check(SecureVault.isLocked)
  let store = SecureVault.shared
  do {
    _ = try store.get("k")
    check(false)
  } catch StorageError.Code.locked {
    check(SecureVault.isLocked)
  } catch {
    // Without this clause the Swift 6.3 compiler crashes because the function contains a `&&`.
    throw error
  }
  do {
    try store.unlock(passphrase: "open barley")
    check(false)
  } catch StorageError.Code.wrongPassphrase {
    if !SecureVault.unlock(passphrase: "open sesame") { check(false) }
  } catch {
    throw error
  }
  check(SecureVault.get("k"), is: "v")
  check(SecureVault.rotateKeys())
  if SecureVault.protect(with: .keyFile, service: .standard) {
    check(try store.protection == .keyFile)
  }
  SecureVault.lock(service: .standard)
  check(SecureVault.unlock())
  check(SecureVault.get("k"), is: "v")
  check(SecureVault.eraseVault())
  check(SecureVault.protection == nil && SecureVault.get("k") == nil)
}

func checkSecretsInTasks() async throws {
  let user: SecureVault.Authenticator = { request in
    request.isNew || !request.reason.isEmpty ? "a passphrase" : nil
  }
  try await StorageSystem.withTemporary(authenticate: user) {
    SecureVault[.pin] = "1234"
    check(SecureVault[.pin], is: "1234")
    check(SecureVault.entry(.pin)?.access == .userPresence)
    check(SecureVault.get(.pin, reason: "Unlock notes"), is: "1234")
  }
  let server = SecureVault.KeySource.closure("key server") { Data(repeating: 7, count: 32) }
  try await StorageSystem.withTemporary(keySources: [.credential(), server]) {
    SecureVault.set("v", forKey: "k")
    check(SecureVault.protection == .closure("key server"))
    let token = await Task { SecureVault.get("k") }.value
    check(token, is: "v")
  }
}
