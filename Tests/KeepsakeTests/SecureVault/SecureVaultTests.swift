import Foundation
import Keepsake
import KeepsakeTesting
import Synchronization
import Testing

/// The facade's calls, without access to internals.
@Suite(.temporaryStorage, .quickPassphrases) struct SecureVaultTests {
  struct Credentials: Codable, Equatable {
    var user: String
    var password: String
    var scopes: [String] = ["a", "b"]
  }

  @Test func storesTextDataAndModels() {
    #expect(SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth"))
    #expect(SecureVault.get("accessToken", service: "com.app.auth") == "tok")
    #expect(SecureVault.get("accessToken") == nil)
    let bytes = Data([0, 255, 1, 2])
    SecureVault.set(bytes, forKey: "avatar")
    #expect(SecureVault.getData("avatar") == bytes)
    let credentials = Credentials(user: "u", password: "p")
    SecureVault.set(credentials, forKey: "credentials")
    #expect(SecureVault.model("credentials") == credentials)
    let read: Credentials? = SecureVault.model("credentials")
    #expect(read == credentials)
    let date = Date(timeIntervalSince1970: 1_234_567.891)
    SecureVault.set(date, forKey: "date")
    #expect(SecureVault.model("date") == date)
    SecureVault.set(42, forKey: "number")
    #expect(SecureVault.model("number") == 42)
    #expect(SecureVault.contains("avatar"))
    #expect(SecureVault.keys() == ["avatar", "credentials", "date", "number"])
    #expect(SecureVault.services() == ["com.app.auth", "standard"])
    #expect(SecureVault.remove("avatar") && !SecureVault.contains("avatar"))
    #expect(SecureVault.remove("avatar"))
    SecureVault.set(nil, forKey: "number")
    #expect(SecureVault.getData("number") == nil)
    #expect(SecureVault.removeAll())
    #expect(SecureVault.keys() == [])
    #expect(SecureVault.get("accessToken", service: "com.app.auth") == "tok")
  }

  /// The example in the article on testing.
  @Test(.temporaryStorage(authenticate: { _ in "swordfish" })) func storesAPINWithUserPresence()
    throws
  {
    try SecureVault.shared.set("1234", forKey: "pin", access: .userPresence)
    #expect(SecureVault.get("pin", reason: "Unlock notes") == "1234")
    let error = #expect(throws: StorageError.self) {
      try SecureVault.shared.unlock(passphrase: "x")
    }
    #expect(error?.code == .misuse)
  }

  @Test func protectsLocksAndUnlocksWithAPassphrase() {
    SecureVault.set("v", forKey: "k")
    #expect(SecureVault.protection == .keyFile)
    #expect(SecureVault.protect(with: .passphrase("open sesame")))
    #expect(SecureVault.protection == .passphrase)
    #expect(SecureVault.get("k") == "v" && !SecureVault.isLocked)
    SecureVault.lock()
    #expect(SecureVault.isLocked)
    let failures = ReportedCodes()
    StorageSystem.onFailure = failures.append
    #expect(SecureVault.get("k") == nil)
    #expect(SecureVault.unlock(passphrase: "wrong") == false)
    #expect(failures.codes == [.locked, .wrongPassphrase])
    #expect(SecureVault.unlock(passphrase: "open sesame"))
    #expect(SecureVault.get("k") == "v")
    SecureVault.withSecret("k") { (bytes: RawSpan) in
      #expect(bytes.byteCount == 1 && bytes.unsafeLoad(as: UInt8.self) == UInt8(ascii: "v"))
    }
    #expect(SecureVault.rotateKeys() && SecureVault.get("k") == "v")
  }
}

/// The codes of reported failures.
final class ReportedCodes: Sendable {
  private let list = Mutex<[StorageError.Code]>([])
  var codes: [StorageError.Code] { list.withLock { $0 } }
  @Sendable func append(_ error: StorageError) { list.withLock { $0.append(error.code) } }
}
