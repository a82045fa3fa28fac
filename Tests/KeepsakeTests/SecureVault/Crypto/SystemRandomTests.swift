import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Nonces, ids and keys come from the system at the moment when they are needed, so that two copies
/// of a process do not make the same ones.
@Suite(.singleThreaded) struct SystemRandomTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  /// How many times `body` asks the system for random bytes.
  private func requests(_ body: () throws -> Void) rethrows -> Int {
    let count = Locked(0)
    let plan = FaultPlan(decide: {
      if $0.call == .random { count.withLock { $0 += 1 } }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan, operation: body)
    return count.withLock { $0 }
  }

  @Test func everySetAsksTheSystemForItsNonces() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    // That they differ, see `VaultSecrecyTests`.
    for _ in 0..<3 { #expect(try requests { try store.set("v", forKey: "k") } == 1) }
    // The new key and its id, and the nonces of both headers and of the secret.
    #expect(try requests { try store.rotateKeys() } >= 5)
  }

  /// Each number is what that call draws: a draw that comes from elsewhere is missing.
  @Test func everyCallAsksTheSystemForItsKeys() throws {
    let source = SecureVault.KeySource(.passphrase("correct horse", logN: 10))
    let store = directory.secrets(authenticate: { _ in "1234" })
    let calls: [(String, Int, () throws -> Void)] = [
      ("create", 10, { try store.set("v", forKey: "k") }),
      ("presence", 7, { try store.set("v", forKey: "p", access: .userPresence) }),
      ("recovery code", 4, { _ = try store.addRecovery() }),
      ("recovery passphrase", 3, { try store.addRecovery(passphrase: "battery staple") }),
      ("rotate", 6, { try store.rotateKeys() }),
      ("protect", 12, { try store.protect(with: source) }),
      ("key file", 11, { try store.protect(with: .keyFile) }),
    ]
    try KeySlot.$defaultLogN.withValue(10) {
      for (name, count, call) in calls {
        let drawn = try requests(call)
        #expect(drawn == count, "\(name)")
      }
    }
  }

  @Test func aSystemWithoutRandomBytesIsAnError() throws {
    let store = directory.secrets()
    let plan = FaultPlan(decide: { $0.call == .random ? .fail(EIO) : .proceed })
    try store.set("old", forKey: "k")
    for call in [
      { try store.set("new", forKey: "k") }, { try store.rotateKeys() },
      { try store.protect(with: .keyFile) }, { _ = try store.addRecovery() },
    ] {
      expectFailure(.system(EIO), reason: "getrandom") {
        try FaultPlan.$current.withValue(plan, operation: call)
      }
    }
    #expect(try directory.secrets().get("k") == "old" && directory.temporaries() == [])
  }

  @Test func allBytesAreFilled() throws {
    let bytes = try SystemRandom.bytes(1_000)
    #expect(bytes.count == 1_000 && Set(bytes).count > 100)
    #expect(try SystemRandom.bytes(0) == [] && SystemRandom.bytes(1_000) != bytes)
  }
}
