import Synchronization

@testable import Keepsake

/// Enters the passphrase that the test sets, and records the requests.
final class FakeUser: Sendable {
  private let state = Mutex<(answer: String?, requests: [SecureVault.PassphraseRequest])>(
    ("swordfish", []))
  var answer: String? {
    get { state.withLock { $0.answer } }
    set { state.withLock { $0.answer = newValue } }
  }
  var requests: [SecureVault.PassphraseRequest] { state.withLock { $0.requests } }
  var reasons: [String] { requests.map(\.reason) }
  @Sendable func answer(_ request: SecureVault.PassphraseRequest) -> String? {
    state.withLock { state in
      state.requests.append(request)
      return state.answer
    }
  }
}
