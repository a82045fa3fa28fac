// A user interface on the main actor, in the programs whose main thread does not wait.
import Checks
import FoundationEssentials
import Keepsake
import Observation

/// A view model that redraws after a change.
@MainActor @Observable final class Drawing {
  @ObservationIgnored @Default("accent") var accent = "blue"
  @ObservationIgnored @Default(.volume) var volume
  @ObservationIgnored @DefaultOptional("birthday") var birthday: Date?
  @ObservationIgnored private var frames: [String] = []
  var count = 0

  func draw() {
    withObservationTracking {
      frames.append("\(accent) \(volume) \(birthday == nil) \(count)")
    } onChange: {
      Task { @MainActor in self.draw() }
    }
  }

  /// Waits half a minute for a frame.
  func expect(_ frame: String) async {
    for _ in 0..<6_000 where frames.last != frame {
      try? await Task.sleep(for: .milliseconds(5))
    }
    check(frames.last, is: frame)
  }

  func checkFrames() async {
    draw()
    accent = "red"
    await expect("red 0.5 true 0")
    await Task.detached { Defaults[.volume] = 1 }.value
    await expect("red 1.0 true 0")
    Defaults.set(Date(timeIntervalSince1970: 0), forKey: "birthday")
    await expect("red 1.0 false 0")
    count += 1
    await expect("red 1.0 false 1")
    $accent.reset()
    await expect("blue 1.0 false 1")
  }
}
