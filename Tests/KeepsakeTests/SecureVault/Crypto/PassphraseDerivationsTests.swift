import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Keys that many threads derive from passphrases at the same time.
@Suite struct PassphraseDerivationsTests {
  private struct Call: Hashable {
    let passphrase: String
    let salt: UInt8
    let logN: UInt8
  }

  /// Makes all calls at the same time, and returns those that derived a key, in their order.
  private func derived(_ calls: [Call]) throws -> [Call] {
    let derivations = PassphraseDerivations()
    let derived = Locked<[Call]>([])
    let atWork = Atomic(0)
    let threads = calls.map { call in
      startThread {
        var key = [UInt8](repeating: 0, count: 8)
        let result = Array(call.passphrase.utf8).withUnsafeBytes { passphrase in
          key.withUnsafeMutableBytes { key in
            Result {
              try derivations.derive(
                from: passphrase, salt: [call.salt], logN: call.logN, into: key
              ) { (_, _, _, output) throws(StorageError) in
                #expect(atWork.add(1, ordering: .relaxed).newValue == 1)
                // All others wait by now, unless they have their key.
                let isFirst = derived.withLock { $0.isEmpty }
                waitUntil("all threads wait") {
                  !isFirst || derivations.callers.load(ordering: .relaxed) == calls.count
                }
                output.copyBytes(from: Self.key(of: call))
                derived.withLock { $0.append(call) }
                atWork.subtract(1, ordering: .relaxed)
              }
            }
          }
        }
        #expect(throws: Never.self) { try result.get() }
        #expect(key == Self.key(of: call))
      }
    }
    for thread in threads { thread.wait() }
    #expect(derivations.callers.load(ordering: .relaxed) == 0)
    return derived.withLock { $0 }
  }

  private static func key(of call: Call) -> [UInt8] {
    Array(call.passphrase.utf8.prefix(6)) + [call.salt, call.logN]
  }

  @Test func oneThreadDerivesTheKeyForAllThatWait() throws {
    let call = Call(passphrase: "secret", salt: 1, logN: 17)
    #expect(try derived(Array(repeating: call, count: 50)) == [call])
  }

  /// One after the other, and none has the key of another.
  @Test func otherPassphrasesAndSlotsHaveTheirOwnKeys() throws {
    let calls = [
      Call(passphrase: "secret", salt: 1, logN: 17), Call(passphrase: "secrex", salt: 1, logN: 17),
      Call(passphrase: "secret", salt: 2, logN: 17), Call(passphrase: "secret", salt: 1, logN: 18),
    ]
    #expect(try Set(derived(calls)) == Set(calls))
  }
}
