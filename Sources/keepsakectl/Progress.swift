@preconcurrency import KeepsakeLibc
import Synchronization

/// Shows the progress of long work on standard error, if that is a terminal.
struct Progress {
  private let title: String
  private let total: Int
  private var finished = 0
  private var lastUpdate = ContinuousClock.now

  init(_ title: String, of total: Int) {
    self.title = title
    self.total = total
  }

  static func each<Item>(
    _ title: String, _ items: [Item], _ body: (Item) throws -> Void
  ) rethrows {
    var progress = Progress(title, of: items.count)
    defer { clear() }
    for item in items {
      progress.step()
      try body(item)
    }
  }

  private static let isShown = isatty(STDERR_FILENO) == 1
  private static let line = Mutex("")

  /// Counts an item. Nothing is shown of work that takes less than a tenth of a second.
  mutating func step() {
    finished += 1
    guard Self.isShown, ContinuousClock.now - lastUpdate > .milliseconds(100) else { return }
    lastUpdate = .now
    Self.clear()
    let shown = Output.escaped("\(title) \(finished)/\(total)")
    Self.line.withLock { $0 = shown }
    fputs(shown, stderr)
  }

  /// Overwrites the line with spaces, as not every terminal can erase a line.
  static func clear() {
    let width = line.withLock { line in
      defer { line = "" }
      return line.utf8.count
    }
    if width > 0 { fputs("\r" + String(repeating: " ", count: width) + "\r", stderr) }
  }
}
