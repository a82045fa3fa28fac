import Checks
import Keepsake
import Observation
import Synchronization

/// A model on any one thread, whose observers are told on whatever thread a setting is set.
@Observable final class Thermometer {
  @ObservationIgnored @Default("degrees", defaultValue: 20) var degrees: Double
  @ObservationIgnored @DefaultOptional("place") var place: String?
  var isOn = true
}

func observeSettings() async throws {
  let thermometer = Thermometer()
  let notices = Atomic(0)
  func isTold(_ change: () -> Void) -> Bool {
    let counter = Counter()
    withObservationTracking {
      _ = "\(thermometer.place ?? "") \(thermometer.degrees) \(thermometer.isOn)"
    } onChange: {
      counter.count.add(1, ordering: .relaxed)
    }
    change()
    notices.add(counter.count.load(ordering: .relaxed), ordering: .relaxed)
    return counter.count.load(ordering: .relaxed) == 1
  }
  check(isTold { thermometer.degrees += 1 })
  check(isTold { Defaults.set("Oslo", forKey: "place") })
  check(isTold { thermometer.isOn = false })
  check(isTold {}, is: false)
  check(notices.load(ordering: .relaxed), is: 3)

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
