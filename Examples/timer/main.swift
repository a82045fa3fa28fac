// Settings that a running program follows: a timer that can be changed from another terminal.
//
//   swift run keepsake-timer                    counts down until Control-C
//
// Meanwhile, in a second terminal:
//
//   swift run keepsake-timer set length 4:30    changes the length of the running timer
//   swift run keepsake-timer more 1             adds a minute, atomically
//   swift run keepsake-timer set style bar      shows a bar; the other styles are clock and words
//   swift run keepsake-timer reset              restores the defaults
//   swift run keepsake-timer settings           shows the settings and their file

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// How the remaining time is shown. A setting can have any Codable type.
enum Style: String, Codable, CaseIterable {
  case clock, bar, words
}

/// Typed keys give the name, type and default of each setting once.
extension Defaults.Key<Int> {
  /// In seconds.
  static let length = Self("length", default: 240)
  static let rings = Self("rings", default: 0)
}
extension Defaults.Key<Style> {
  static let style = Self("style", default: .clock)
}

/// Clamps a length to 0 s ... 24 h: users can edit the settings, so the file may hold any number.
func clamped(_ length: Int) -> Int { min(max(0, length), 86_400) }

/// Settings as properties. Reading one is a look-up in memory that finds every process's changes.
struct Settings: Sendable {
  @Default(.length) var length: Int
  @Default(.style) var style: Style
  @DefaultOptional("lastRing") var lastRing: Date?
}

// MARK: Counting down

func countDown() async throws {
  let settings = Settings()
  let start = ContinuousClock.now
  @Sendable func length() -> Int { clamped(settings.length) }
  @Sendable func remaining() -> Duration { start + .seconds(length()) - .now }
  @Sendable func display() -> String { settings.style.display(remaining(), of: length()) }

  // The sequences see every change from here on, even before the tasks start iterating.
  let (lengths, styles) = (settings.$length.changes, settings.$style.changes)
  let followers = [
    Task { for await _ in lengths { Screen.show("Now \(minutes(length())): \(display())") } },
    Task { for await style in styles { Screen.show("Now as \(style): \(display())") } },
  ]

  Screen.show("A timer of \(minutes(length())): \(display())")
  while remaining() > .zero {
    Screen.showBriefly(display())
    try await Task.sleep(for: min(remaining(), .seconds(1)))
  }
  for follower in followers {
    follower.cancel()
    await follower.value  // so that no follower prints after the last line
  }
  settings.lastRing = Date.now
  Defaults.update(.rings) { $0 += 1 }  // atomic: several timers may end at the same time
  Screen.showBriefly("\u{7}")
  Screen.show("Time is up.")
}

extension Style {
  func display(_ remaining: Duration, of length: Int) -> String {
    let seconds = max(0, Int((remaining / .seconds(1)).rounded(.up)))
    switch self {
    case .clock: return minutes(seconds)
    case .bar:
      let filled = min(20, 20 * seconds / max(1, length))
      return String(repeating: "#", count: filled) + String(repeating: ".", count: 20 - filled)
    case .words: return seconds < 60 ? "\(seconds) s left" : "\((seconds + 59) / 60) min left"
    }
  }
}

/// Minutes and seconds, such as 4:30.
func minutes(_ seconds: Int) -> String {
  "\(seconds / 60):\(seconds % 60 < 10 ? "0" : "")\(seconds % 60)"
}

enum Screen {
  private static let isTerminal = isatty(STDOUT_FILENO) == 1

  /// Prints a line.
  static func show(_ text: String) {
    print(isTerminal ? "\r\u{1B}[K\(text)" : text)
    fflush(stdout)
  }

  /// Prints a line that the next one replaces. Only on a terminal.
  static func showBriefly(_ text: String) {
    guard isTerminal else { return }
    print("\r\u{1B}[K\(text)", terminator: "")
    fflush(stdout)
  }
}

// MARK: The command line

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-timer                               count down
         keepsake-timer set length MINUTES[:SECONDS]
         keepsake-timer set style clock|bar|words
         keepsake-timer more MINUTES[:SECONDS]        make it longer
         keepsake-timer reset                         restore the defaults
         keepsake-timer settings                      show the settings and their file
  """

func run(_ arguments: [String]) async throws {
  let settings = Settings()
  // A command must report failure in its exit code, so it uses the store, which throws.
  let store = Defaults.shared
  switch (arguments.first, arguments.dropFirst().first, arguments.count) {
  case (nil, _, _): try await countDown()
  case ("set", "length", 3): try store.set(try seconds(arguments[2]), for: .length)
  case ("set", "style", 3): try store.set(try style(arguments[2]), for: .style)
  case ("more", let text?, 2):
    let more = try seconds(text)
    print("Now \(minutes(try store.update(.length) { $0 = clamped(clamped($0) + more) })).")
  case ("reset", nil, _):
    guard settings.$length.reset(), settings.$style.reset() else {
      throw Exit(message: "Not all settings could be reset.", status: 73)
    }
  case ("settings", nil, _):
    print("length \(minutes(clamped(settings.length))), style \(settings.style)")
    let last = settings.lastRing.map { "last at \($0.ISO8601Format())" } ?? "none yet"
    print("rings: \(Defaults[.rings]), \(last)")
    if let file = try store.fileURL { print("in \(file.path(percentEncoded: false))") }
  case ("--help", _, _), ("-h", _, _): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

/// The seconds in `4`, which means minutes, or in `4:30`.
func seconds(_ text: String) throws -> Int {
  let parts = text.split(separator: ":", omittingEmptySubsequences: false).map { Int($0) ?? -1 }
  let seconds = parts.count == 2 ? parts[1] : 0
  guard parts.count <= 2, 0..<1_440 ~= parts[0], 0..<60 ~= seconds, parts[0] + seconds > 0 else {
    throw Exit(message: "\"\(text)\" is not a length below a day, such as 4 or 4:30.", status: 64)
  }
  return 60 * parts[0] + seconds
}

func style(_ text: String) throws -> Style {
  if let style = Style(rawValue: text) { return style }
  let styles = Style.allCases.map(\.rawValue).joined(separator: ", ")
  throw Exit(message: "\"\(text)\" is not a style. Use one of: \(styles).", status: 64)
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  try StorageSystem.bootstrap(app: "keepsake-timer")
  try await run(Array(CommandLine.arguments.dropFirst()))
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch {
  fail("\(error)", status: 73)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
