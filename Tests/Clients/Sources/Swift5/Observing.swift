import Checks
import Keepsake
import Observation

@Observable final class Toolbar {
  @ObservationIgnored @Default("toolbar.size", defaultValue: 24) var size: Int
  @ObservationIgnored @DefaultOptional("toolbar.title") var title: String?
  var isOpen = false
  @ObservationIgnored var notices = 0

  var text: String { "\(title ?? "none") \(size)" }
}

/// Draws, and says whether the toolbar has been told of what `change` does.
func isTold(_ toolbar: Toolbar, _ change: () -> Void) -> Bool {
  let before = toolbar.notices
  withObservationTracking {
    _ = toolbar.text
  } onChange: {
    toolbar.notices += 1
  }
  change()
  return toolbar.notices == before + 1
}

func observeSettings() {
  let toolbar = Toolbar()
  check(isTold(toolbar) { toolbar.size = 32 })
  check(isTold(toolbar) { Defaults.set("Edit", forKey: "toolbar.title") })
  check(isTold(toolbar) { toolbar.$size.update { $0 += 1 } })
  check(isTold(toolbar) { toolbar.isOpen = true }, is: false)
  check(toolbar.text, is: "Edit 33")
}

/// The names of the keys that change, as they come.
func changedNames() -> AsyncStream<Set<String>> {
  AsyncStream { continuation in
    let task = Task {
      for await names in Defaults.changes(suite: "named") { continuation.yield(names) }
    }
    continuation.onTermination = { _ in task.cancel() }
  }
}
