import Foundation
import Keepsake
import Observation

/// A model of the user interface: observable, on the main actor, with settings among its properties.
@MainActor @Observable final class Preferences {
  @ObservationIgnored @Default("accent", defaultValue: "blue") var accent: String
  @ObservationIgnored @DefaultOptional("birthday") var birthday: Date?
  var isOpen = false

  func reset() {
    $accent.reset()
    birthday = nil
  }
}

/// The same without a global actor.
@Observable final class Counters {
  @ObservationIgnored @Default("opened", defaultValue: 0) var opened: Int
  var selection: String?
}
