import Testing

@testable import Keepsake

@Suite struct ObserversTests {
  /// Whether a signal has left something to look at.
  private func isTold(by signal: (Observers) -> Void) async -> Bool {
    let observers = Observers()
    let changes = observers.changes { $0 == "wanted" }
    signal(observers)
    let waiting = Task {
      for await _ in changes { return true }
      return false
    }
    // Nothing else could end it: a cancelled wait takes what is pending first.
    try? await Task.sleep(for: .milliseconds(20))
    waiting.cancel()
    return await waiting.value
  }

  @Test func onlyThoseWhoWantAKeyAreWokenForIt() async {
    #expect(await isTold { $0.signal("wanted") })
    #expect(await !isTold { $0.signal("another") })
    #expect(await isTold { $0.signal() })
    #expect(
      await isTold {
        $0.signal("another")
        $0.signal("wanted")
      })
  }
}
