// Settings as properties.
import Checks
import FoundationEssentials
import Keepsake
import Observation
import Synchronization

/// Not `Sendable`, because its drafts are not.
struct Preferences {
  @Default("size") var size = 16
  @Default("style", defaultValue: .light) var style: Theme
  @Default("recent") var recent: [String] = []
  @Default("weights", defaultValue: [:]) var weights: [String: Double]
  @Default("guest", defaultValue: Profile(name: "guest")) var guest: Profile
  @Default("letter") var letter = Draft(text: "untitled")
  @Default("size", defaultValue: 12, suite: "shared") var sharedSize: Int
  @Default(.retries) var retries
  @Default(.fontSize) var fontSize: Int
  @DefaultOptional("lastLogin") var lastLogin: Date?
  @DefaultOptional("guest", suite: "guests") var other: Profile?
  @DefaultOptional("sketch") var sketch: Draft?
  @DefaultOptional(.nickname) var nickname: String?
}

/// A view model with settings among its properties.
@Observable final class Toolbar {
  @ObservationIgnored @Default("toolbar.size") var size = 24
  @ObservationIgnored @Default("opened", defaultValue: 0) var opened: Int
  @ObservationIgnored @Default(.launches) var launches
  @ObservationIgnored @DefaultOptional("toolbar.title") var title: String?
  var isOpen = false

  func reset() {
    $size.reset()
    title = nil
  }
}

extension Caller {
  func checkWrappers() {
    let preferences = Preferences()
    preferences.size = 18
    preferences.size += 1
    preferences.$size.update { $0 += 1 }
    check(preferences.$size.update { $0 += 1 }, is: 21)
    check(Defaults.int(preferences.$size.key.name), is: 21)
    check(preferences.$size.key.suite == .standard && preferences.$size.key.defaultValue == 16)
    preferences.$size.reset()
    preferences.style = .dark
    check(preferences.style == .dark && Defaults.string("style") == "dark")
    preferences.recent += ["two.txt"]
    preferences.weights["a"] = 0.25
    check(preferences.recent.count == 1 && Defaults.get("weights", default: [:]) == ["a": 0.25])
    preferences.guest.tags.append("x")
    check(preferences.guest, is: Profile(name: "guest", tags: ["x"]))
    preferences.letter = Draft(text: "letter")
    check(preferences.letter.text, is: "letter")
    preferences.sharedSize = 30
    check(Defaults.int("size", suite: "shared"), is: 30)
    preferences.retries = 5
    check(Defaults[.retries] == 5 && preferences.fontSize == Defaults[.fontSize])
    preferences.lastLogin = Date(timeIntervalSince1970: 0)
    preferences.$lastLogin.update { $0 = $0?.addingTimeInterval(1) }
    check(preferences.lastLogin, is: Date(timeIntervalSince1970: 1))
    preferences.lastLogin = nil
    check(!Defaults.contains(preferences.$lastLogin.key))
    preferences.other = preferences.guest
    check(preferences.other, is: preferences.guest)
    preferences.sketch = Draft(text: "s")
    preferences.$sketch.update { $0?.text += "!" }
    check(preferences.sketch?.text, is: "s!")
    preferences.nickname = "Al"
    preferences.$nickname.reset()
    check(preferences.nickname == nil)
  }

  /// Whether observers of the toolbar are notified of a change.
  func notifies(_ toolbar: Toolbar, _ change: () -> Void) -> Bool {
    let notifications = Atomic(0)
    withObservationTracking {
      _ = "\(toolbar.title ?? "none") \(toolbar.size) \(toolbar.isOpen)"
    } onChange: {
      notifications.add(1, ordering: .relaxed)
    }
    change()
    return notifications.load(ordering: .relaxed) == 1
  }

  func checkObservation() {
    let toolbar = Toolbar()
    check(notifies(toolbar) { toolbar.size += 1 })
    check(notifies(toolbar) { toolbar.$size.update { $0 += 1 } })
    check(notifies(toolbar) { Defaults.set("Edit", forKey: "toolbar.title") })
    check(notifies(toolbar) { toolbar.isOpen = true })
    check(notifies(toolbar) { toolbar.opened += 1 }, is: false)
    check("\(toolbar.title ?? "") \(toolbar.size) \(toolbar.opened)", is: "Edit 26 1")
    toolbar.reset()
    check(toolbar.title == nil && toolbar.launches == Defaults[.launches])
  }
}
