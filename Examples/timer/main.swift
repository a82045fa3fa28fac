// A command-line tool with settings: a timer that follows them while it runs, whoever sets them.
//
//   swift run keepsake-timer                    counts down; Control-C ends it
//
// And meanwhile, in a second terminal:
//
//   swift run keepsake-timer set length 4:30    the running one takes it, counted from its start
//   swift run keepsake-timer more 1             a minute more; two terminals that add at once add
//   both swift run keepsake-timer set style bar      clock, bar or words
//   swift run keepsake-timer reset              all as it was at first
//   swift run keepsake-timer settings           what is set, and where

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// How the time left is shown. A setting can be of any Codable type.
enum Style: String, Codable, CaseIterable {
  case clock, bar, words
}

/// Typed keys: the name, type and default of each setting are said once.
extension Defaults.Key<Int> {
  /// In seconds.
  static let length = Self("length", default: 240)
  static let rings = Self("rings", default: 0)
}
extension Defaults.Key<Style> {
  static let style = Self("style", default: .clock)
}

/// Any number can stand in the file, which is its user's: what is no length counts as the nearest
/// one.
func sensible(_ length: Int) -> Int { min(max(0, length), 86_400) }

/// Settings as properties. To read one is to look in memory, and gives what any process set last.
struct Settings: Sendable {
  @Default(.length) var length: Int
  @Default(.style) var style: Style
  @DefaultOptional("lastRing") var lastRing: Date?
}

// MARK: Counting down

func countDown() async throws {
  let settings = Settings()
  let start = ContinuousClock.now
  @Sendable func length() -> Int { sensible(settings.length) }
  @Sendable func left() -> Duration { start + .seconds(length()) - .now }
  @Sendable func picture() -> String { settings.style.picture(left(), of: length()) }

  // Made before the first line: no change after it is missed, however late the tasks begin.
  let (lengths, styles) = (settings.$length.changes, settings.$style.changes)
  let followers = [
    Task { for await _ in lengths { Screen.say("Now \(minutes(length())): \(picture())") } },
    Task { for await style in styles { Screen.say("Now as \(style): \(picture())") } },
  ]

  Screen.say("A timer of \(minutes(length())): \(picture())")
  while left() > .zero {
    Screen.draw(picture())
    try await Task.sleep(for: min(left(), .seconds(1)))
  }
  for follower in followers {
    follower.cancel()
    await follower.value  // what follows is the last line
  }
  settings.lastRing = Date.now
  Defaults.update(.rings) { $0 += 1 }  // in one step: several timers may end at once
  Screen.draw("\u{7}")
  Screen.say("Time is up.")
}

extension Style {
  func picture(_ left: Duration, of length: Int) -> String {
    let seconds = max(0, Int((left / .seconds(1)).rounded(.up)))
    switch self {
    case .clock: return minutes(seconds)
    case .bar:
      let filled = min(20, 20 * seconds / max(1, length))
      return String(repeating: "#", count: filled) + String(repeating: ".", count: 20 - filled)
    case .words: return seconds < 60 ? "\(seconds) s left" : "\((seconds + 59) / 60) min left"
    }
  }
}

/// As in 4:30.
func minutes(_ seconds: Int) -> String {
  "\(seconds / 60):\(seconds % 60 < 10 ? "0" : "")\(seconds % 60)"
}

enum Screen {
  private static let isTerminal = isatty(STDOUT_FILENO) == 1

  /// A line that stays.
  static func say(_ text: String) {
    print(isTerminal ? "\r\u{1B}[K\(text)" : text)
    fflush(stdout)
  }

  /// One that the next one takes the place of; for terminals only.
  static func draw(_ text: String) {
    guard isTerminal else { return }
    print("\r\u{1B}[K\(text)", terminator: "")
    fflush(stdout)
  }
}

// MARK: The command line

/// What ends the program: a line on standard error, and an exit code of sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-timer                               count down
         keepsake-timer set length MINUTES[:SECONDS]
         keepsake-timer set style clock|bar|words
         keepsake-timer more MINUTES[:SECONDS]        make it longer
         keepsake-timer reset                         all as it was at first
         keepsake-timer settings                      show what is set
  """

func run(_ arguments: [String]) async throws {
  let settings = Settings()
  // A tool has to say whether it did what it was told. The store behind the facade throws.
  let store = Defaults.shared
  switch (arguments.first, arguments.dropFirst().first, arguments.count) {
  case (nil, _, _): try await countDown()
  case ("set", "length", 3): try store.set(try seconds(arguments[2]), for: .length)
  case ("set", "style", 3): try store.set(try style(arguments[2]), for: .style)
  case ("more", let text?, 2):
    let more = try seconds(text)
    print("Now \(minutes(try store.update(.length) { $0 = sensible(sensible($0) + more) })).")
  case ("reset", nil, _):
    guard settings.$length.reset(), settings.$style.reset() else {
      throw Exit(message: "Not all of it is as it was: see above.", status: 73)
    }
  case ("settings", nil, _):
    print("length \(minutes(sensible(settings.length))), style \(settings.style)")
    let last = settings.lastRing.map { "the last at \($0.ISO8601Format())" } ?? "none yet"
    print("rings: \(Defaults[.rings]), \(last)")
    if let file = try store.fileURL { print("in \(file.path(percentEncoded: false))") }
  case ("--help", _, _), ("-h", _, _): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

/// Those of `4`, which are minutes, or `4:30`.
func seconds(_ text: String) throws -> Int {
  let parts = text.split(separator: ":", omittingEmptySubsequences: false).map { Int($0) ?? -1 }
  let seconds = parts.count == 2 ? parts[1] : 0
  guard parts.count <= 2, 0..<1_440 ~= parts[0], 0..<60 ~= seconds, parts[0] + seconds > 0 else {
    throw Exit(message: "\"\(text)\" is no length under a day, such as 4 or 4:30", status: 64)
  }
  return 60 * parts[0] + seconds
}

func style(_ text: String) throws -> Style {
  if let style = Style(rawValue: text) { return style }
  let styles = Style.allCases.map(\.rawValue).joined(separator: ", ")
  throw Exit(message: "\"\(text)\" is no style: there are \(styles)", status: 64)
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
