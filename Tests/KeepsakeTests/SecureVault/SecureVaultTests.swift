import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The facade's calls, without access to internals.
@Suite(.temporaryStorage, .quickPassphrases) struct SecureVaultTests {
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

  @Test func protectsLocksAndUnlocksWithAPassphrase() throws {
    SecureVault.set("v", forKey: "k")
    #expect(SecureVault.protection == .keyFile)
    #expect(SecureVault.protect(with: .passphrase("open sesame")))
    #expect(SecureVault.protection == .passphrase)
    #expect(SecureVault.get("k") == "v" && !SecureVault.isLocked)
    SecureVault.lock()
    #expect(SecureVault.isLocked)
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    #expect(SecureVault.get("k") == nil)
    #expect(SecureVault.unlock(passphrase: "wrong") == false)
    #expect(failures.all.map(\.code) == [.locked, .wrongPassphrase])
    #expect(SecureVault.unlock(passphrase: "open sesame"))
    #expect(SecureVault.get("k") == "v")
    SecureVault.withSecret("k") { (bytes: RawSpan) in
      #expect(bytes.byteCount == 1 && bytes.unsafeLoad(as: UInt8.self) == UInt8(ascii: "v"))
    }
    try SecureVault.shared.rotateKeys()
    #expect(SecureVault.get("k") == "v")
    #expect(SecureVault.protection(service: "other") == .passphrase)
    SecureVault.lock(service: "other")
    #expect(SecureVault.isLocked && SecureVault.isLocked(service: "other"))
  }
}
