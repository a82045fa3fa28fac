import Checks
import Foundation
import Keepsake
import Observation

/// A view model on the main actor with settings among its properties.
@MainActor @Observable final class Preferences {
  @ObservationIgnored @Default("accent") var accent = "blue"
  @ObservationIgnored @DefaultOptional("birthday") var birthday: Date?
  var isOpen = false

  func reset() {
    $accent.reset()
    birthday = nil
  }
}

/// A user interface that redraws after a change.
@MainActor final class Drawing {
  let preferences: Preferences
  private(set) var frames: [String] = []

  init(_ preferences: Preferences) { self.preferences = preferences }

  func draw() {
    withObservationTracking {
      frames.append("\(preferences.accent) \(preferences.birthday == nil) \(preferences.isOpen)")
    } onChange: {
      Task { @MainActor in self.draw() }
    }
  }

  /// Whether a frame is drawn within half a minute.
  func hasDrawn(_ frame: String) async -> Bool {
    for _ in 0..<6_000 where frames.last != frame {
      try? await Task.sleep(for: .milliseconds(5))
    }
    return frames.last == frame
  }
}

func checkObservation() async {
  let drawing = await Drawing(Preferences())
  await drawing.draw()
  await Task { @MainActor in drawing.preferences.accent = "green" }.value
  check(await drawing.hasDrawn("green true false"))
  Defaults.set(Date(timeIntervalSince1970: 0), forKey: "birthday")
  check(await drawing.hasDrawn("green false false"))
  await Task { @MainActor in drawing.preferences.isOpen = true }.value
  check(await drawing.hasDrawn("green false true"))
  await drawing.preferences.reset()
  check(await drawing.hasDrawn("blue true true"))
}

/// A model with settings, without a global actor.
@Observable final class Counters {
  @ObservationIgnored @Default("opened", defaultValue: 0) var opened: Int
  var selection: String?
}
