import Testing

@testable import Keepsake

@Suite struct ObserversTests {
  /// Whether a stream of the key "wanted" has an element after a signal.
  private func isWoken(by signal: (Observers) -> Void) async -> Bool {
    let observers = Observers()
    let changes = observers.changes { $0 == "wanted" }
    signal(observers)
    let waiting = Task {
      for await _ in changes { return true }
      return false
    }
    // Ends the wait if there is no element. A pending element is taken first.
    waiting.cancel()
    return await waiting.value
  }

  @Test func signalWakesOnlyStreamsOfTheKey() async {
    #expect(await isWoken { $0.signal("wanted") })
    #expect(await !isWoken { $0.signal("another") })
    #expect(await isWoken { $0.signal() })
    #expect(
      await isWoken {
        $0.signal("another")
        $0.signal("wanted")
      })
  }
}
