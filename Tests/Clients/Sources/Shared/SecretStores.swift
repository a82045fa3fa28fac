// Services and their stores.
import Checks
import FoundationEssentials
import Keepsake

extension Caller {
  func checkServices() throws {
    SecureVault.defaultService = .auth
    SecureVault.set("t", forKey: "x")
    check(SecureVault.get("x", service: .auth) == "t" && SecureVault.shared.service == .auth)
    SecureVault.defaultService = .standard
    check(SecureVault.get("x") == nil)
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    SecureVault.set("shared", forKey: "x", service: SecureVault.Service("team", in: folder))
    check(SecureVault.get("x", service: .init("team", in: folder)), is: "shared")
    check(try SecureVault.service(.init("team", in: folder)).folderURL.path.hasPrefix(folder.path))
    try FileManager.default.removeItem(at: folder)
  }

  /// The calls of a store throw only `StorageError`.
  func checkSecretStore(_ auth: SecureVault.Store) throws(StorageError) {
    try auth.removeAll()
    try auth.set("tok", forKey: "token")
    try auth.set(Profile(name: "Ada"), forKey: "user", access: .whenUnlocked)
    try auth.set(nil, forKey: "nothing")
    let user: Profile? = try auth.model("user")
    check(try auth.model("user", type: Profile.self), is: user)
    check(try auth.get("token"), is: "tok")
    check(try auth.getData("token")?.count, is: 3)
    check(try auth.entry("token")?.access == .whenUnlocked)
    check(try auth.contains("token"))
    check(try auth.keys(), is: ["token", "user"])
    check(try auth.folderURL, is: try SecureVault.shared.folderURL)
    try auth.set(Profile(name: "Grace"), for: .account)
    check(try auth.get(.account, reason: "Log in"), is: try auth.get(.account))
    check(try auth.contains(.account))
    check(try auth.entry(.account) != nil)
    try auth.remove(.account)
    try auth.remove("token")
  }

  func checkSecretStores() throws {
    let auth = SecureVault.service(.auth)
    do {
      try checkSecretStore(auth)
      try auth.set("text", forKey: "number")
      _ = try auth.model("number", type: Int.self)
      check(false)
    } catch StorageError.Code.wrongType, StorageError.Code.decodingFailed {
      try auth.removeAll()
    }
  }
}
