import FoundationEssentials
import Keepsake
import Synchronization

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Text for people and JSON for programs.
enum Output {
  static let isTerminal = isatty(STDOUT_FILENO) == 1

  static func complain(_ message: String) {
    Progress.clear()
    fputs("keepsakectl: \(visible(message))\n", stderr)
  }

  /// A word to whoever sits there, beside what is put out.
  static func note(_ message: String) {
    if isatty(STDERR_FILENO) == 1 { fputs(visible(message) + "\n", stderr) }
  }

  static func ask(_ question: String) { fputs(visible(question), stderr) }

  /// Without what a terminal would take for a command, or would show elsewhere than where it
  /// stands: names and values come from anywhere. The escapes are those of JSON.
  static func visible(_ text: String) -> String {
    var shown = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      if isVisible(scalar) {
        shown.append(scalar)
      } else {
        for unit in String(scalar).utf16 { shown.append(contentsOf: escape(unit).unicodeScalars) }
      }
    }
    return String(shown)
  }

  private static func isVisible(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator: false
    // But for those that join the parts of a letter or of a picture.
    case .format: scalar == "\u{200C}" || scalar == "\u{200D}"
    default: true
    }
  }

  private static func escape(_ unit: UInt16) -> String {
    let digits = String(unit, radix: 16)
    return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
  }

  /// A document that is JSON already; what a terminal must not see can only be in its texts, where
  /// the escapes mean the same.
  static func show(json: String) {
    let lines = json.split(separator: "\n", omittingEmptySubsequences: false)
    print(lines.map { visible(String($0)) }.joined(separator: "\n"))
  }

  static func show(json value: some Encodable) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    show(json: String(decoding: try encoder.encode(value), as: UTF8.self))
  }

  /// Local time, in ISO 8601.
  static func time(_ date: Date) -> String {
    var seconds = time_t(clamping: Int(max(-1e11, min(date.timeIntervalSince1970, 1e11))))
    var parts = tm()
    guard localtime_r(&seconds, &parts) != nil else { return "?" }
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let day = "\(Int(parts.tm_year) + 1900)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday))"
    return "\(day)T\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec))"
  }

  static func count(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
    "\(number) \(number == 1 ? noun : plural ?? noun + "s")"
  }

  /// What did not get out by now never will: nobody is to take it for written.
  static func flush() throws {
    guard fflush(stdout) == 0 else {
      throw Failure(
        message: "the output cannot be written. Free some space, or write it elsewhere.", status: 74
      )
    }
  }

  // MARK: Colour

  private static let hasColour =
    isTerminal && variable("NO_COLOR").isEmpty && !["", "dumb"].contains(variable("TERM"))

  static func bold(_ text: String) -> String { hasColour ? "\u{1B}[1m\(text)\u{1B}[0m" : text }
  static func red(_ text: String) -> String { hasColour ? "\u{1B}[31m\(text)\u{1B}[0m" : text }

  private static func variable(_ name: String) -> String {
    getenv(name).map { String(cString: $0) } ?? ""
  }
}

/// How far long work has come, on standard error if that is a terminal.
struct Progress {
  private let title: String
  private let total: Int
  private var done = 0
  private var last = ContinuousClock.now

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

  /// Work that is over at once is not worth a line.
  mutating func step() {
    done += 1
    guard Self.isShown, ContinuousClock.now - last > .milliseconds(100) else { return }
    last = .now
    Self.clear()
    let shown = Output.visible("\(title) \(done)/\(total)")
    Self.line.withLock { $0 = shown }
    fputs(shown, stderr)
  }

  /// With blanks: not every terminal knows how to clear a line.
  static func clear() {
    let width = line.withLock { line in
      defer { line = "" }
      return line.utf8.count
    }
    if width > 0 { fputs("\r" + String(repeating: " ", count: width) + "\r", stderr) }
  }
}

/// A member that is there in each JSON object of its kind, as null where there is no value.
struct Nullable<Value: Encodable & Sendable>: Encodable, Sendable {
  var value: Value?

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    if let value { try container.encode(value) } else { try container.encodeNil() }
  }
}
