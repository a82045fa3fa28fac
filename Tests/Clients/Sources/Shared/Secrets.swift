// Secrets by name and by typed key.
import Checks
import FoundationEssentials
import Keepsake

extension SecureVault.Key<Profile> {
  static let account = Self("account", service: "com.app.auth")
}

extension SecureVault.Key<String> {
  static let accessToken = SecureVault.Key<String>("accessToken", service: .auth)
  static let refreshToken = Self("refreshToken", access: .whenUnlocked)
  static let pin = Self("pin", access: .userPresence)
  /// A key whose name is partly determined at run time.
  static func token(of user: Int) -> Self { Self("token-\(user)", service: .auth) }
}

// A key is `Sendable` even if its values are not.
extension SecureVault.Key<Draft> {
  static let draft = SecureVault.Key<Draft>("draft")
}

extension SecureVault.Key where Value == [String: Data] {
  static var certificates: Self { Self("certificates") }
}

extension SecureVault.Service {
  static let auth: SecureVault.Service = "com.app.auth"
}

extension Caller {
  func checkSecrets() {
    SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
    let token = SecureVault.get("accessToken", service: "com.app.auth")
    check(token, is: "tok")
    check(SecureVault.get("accessToken") ?? "none", is: "none")
    if let token = SecureVault.get("missing") { check(token.isEmpty) }
    guard SecureVault.set(Data([0, 255]), forKey: "key") else { return check(false) }
    check(SecureVault.getData("key"), is: Data([0, 255]))
    check(SecureVault.getData("accessToken", service: .auth), is: Data("tok".utf8))
    SecureVault.set(Profile(name: "Ada"), forKey: "user")
    let user: Profile? = SecureVault.model("user")
    check(user, is: Profile(name: "Ada"))
    check((SecureVault.model("missing") ?? Profile(name: "new")).name, is: "new")
    SecureVault.set(Draft(text: "d"), forKey: "plain", access: .whenUnlocked, service: "drafts")
    check(SecureVault.model("plain", type: Draft.self, service: "drafts")?.text, is: "d")
    SecureVault.set(nil, forKey: "plain", service: "draft\(user == nil ? "" : "s")")
    SecureVault.set(["a": 1.5], forKey: "table", access: .whenUnlocked)
    check(SecureVault.model("table") as [String: Double]?, is: ["a": 1.5])
    let anything: any Codable = 7
    SecureVault.set(anything, forKey: "any")
    check(SecureVault.model("any"), is: 7)

    SecureVault.set(token?.first.map(String.init), forKey: "name")
    check(SecureVault.contains("name"))
    SecureVault.set(Optional<String>.none, forKey: "name")
    SecureVault.set(nil, forKey: "table", access: .whenUnlocked)
    SecureVault.remove("any")
    check(SecureVault.remove("accessToken", service: .auth))
    check(SecureVault.keys() == ["key", "user"] && SecureVault.keys(service: .auth) == [])
    check(SecureVault.services().map(\.name), is: ["standard"])
    guard let entry = try? SecureVault.shared.entry("user") else { return check(false) }
    check(entry.created <= entry.modified && entry.modified <= Date())
    check(entry.access == .whenUnlocked)
    SecureVault.removeAll()
    SecureVault.removeAll(service: .auth)
    check(SecureVault.services(), is: [])
  }

  func checkSecretKeys() {
    check(SecureVault[.account] == nil)
    SecureVault[.account] = Profile(name: "Ada")
    SecureVault[.account]?.name = "Grace"
    SecureVault[.account]?.tags.append("x")
    check(SecureVault.get(.account), is: Profile(name: "Grace", tags: ["x"]))
    check(SecureVault.get(.account, reason: "Log in")?.name, is: "Grace")
    check(SecureVault.contains(.account) && !SecureVault.contains("account"))
    check((try? SecureVault.service(.auth).entry(.account))?.access == .whenUnlocked)
    check(SecureVault.set("r", for: .refreshToken))
    check(SecureVault.set(Draft(text: "other"), for: .draft))
    check(SecureVault[.draft]?.text, is: "other")
    SecureVault[.certificates] = ["root": Data([1])]
    SecureVault[.token(of: 3)] = "t"
    check(SecureVault[.certificates]?.count == 1 && SecureVault[.token(of: 3)] == "t")
    SecureVault[.account] = nil
    SecureVault.remove(.draft)
    check(SecureVault[.draft] == nil && !SecureVault.contains(.account))
    check(SecureVault.removeAll(service: .auth))
  }
}
