import Checks
import Keepsake
import Observation

@Observable final class Toolbar {
  @ObservationIgnored @Default("toolbar.size") var size = 24
  @ObservationIgnored @DefaultOptional("toolbar.title") var title: String?
  var isOpen = false
  @ObservationIgnored var notifications = 0

  var text: String { "\(title ?? "none") \(size)" }
}

/// Whether observers of the toolbar's text are notified of a change.
func notifies(_ toolbar: Toolbar, _ change: () -> Void) -> Bool {
  let before = toolbar.notifications
  withObservationTracking {
    _ = toolbar.text
  } onChange: {
    toolbar.notifications += 1
  }
  change()
  return toolbar.notifications == before + 1
}

func checkObservation() {
  let toolbar = Toolbar()
  check(notifies(toolbar) { toolbar.size = 32 })
  check(notifies(toolbar) { Defaults.set("Edit", forKey: "toolbar.title") })
  check(notifies(toolbar) { toolbar.$size.update { $0 += 1 } })
  check(notifies(toolbar) { toolbar.isOpen = true }, is: false)
  check(toolbar.text, is: "Edit 33")
}

/// The names of changed keys as a stream.
func changedNames() -> AsyncStream<Set<String>> {
  AsyncStream { continuation in
    let task = Task {
      for await names in Defaults.changes(suite: "named") { continuation.yield(names) }
    }
    continuation.onTermination = { _ in task.cancel() }
  }
}
