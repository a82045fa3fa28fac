import Checks
import Keepsake
import Observation
import Synchronization

/// A model without an actor. Observers are notified on the thread that sets a setting.
@Observable final class Thermometer {
  @ObservationIgnored @Default("degrees") var degrees = 20.0
  @ObservationIgnored @DefaultOptional("city") var city: String?
  var isOn = true
}

func checkObservation() async throws {
  let thermometer = Thermometer()
  let notifications = Atomic(0)
  func notifies(_ change: () -> Void) -> Bool {
    let counter = Counter()
    withObservationTracking {
      _ = "\(thermometer.city ?? "") \(thermometer.degrees) \(thermometer.isOn)"
    } onChange: {
      counter.count.add(1, ordering: .relaxed)
    }
    change()
    notifications.add(counter.count.load(ordering: .relaxed), ordering: .relaxed)
    return counter.count.load(ordering: .relaxed) == 1
  }
  check(notifies { thermometer.degrees += 1 })
  check(notifies { Defaults.set("Oslo", forKey: "city") })
  check(notifies { thermometer.isOn = false })
  check(notifies {}, is: false)
  check(notifications.load(ordering: .relaxed), is: 3)

  let names = Defaults.changes(suite: "named")
  let waiting = Task { await names.first { !$0.isEmpty } }
  Defaults.set(1, forKey: "k", suite: "named")
  check(await waiting.value, is: ["k"])
  var storeNames = Defaults.shared.changes().makeAsyncIterator()
  Defaults.removeAll()
  check(await storeNames.next()?.contains("degrees") == true)
  Defaults.removeAll(suite: "named")
}

final class Counter: Sendable {
  let count = Atomic(0)
}
