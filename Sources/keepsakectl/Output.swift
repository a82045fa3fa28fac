import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Writes text for users and JSON for programs.
enum Output {
  static let isTerminal = isatty(STDOUT_FILENO) == 1

  static func printError(_ message: String) {
    Progress.clear()
    fputs("keepsakectl: \(escaped(message))\n", stderr)
  }

  /// Prints a remark on standard error, if that is a terminal.
  static func note(_ message: String) {
    if isatty(STDERR_FILENO) == 1 { fputs(escaped(message) + "\n", stderr) }
  }

  static func ask(_ question: String) { fputs(escaped(question), stderr) }

  /// Prints a JSON document. What is escaped can only be in its strings, where the escape sequences
  /// mean the same characters.
  static func show(json: String) {
    let lines = json.split(separator: "\n", omittingEmptySubsequences: false)
    print(lines.map { escaped(String($0)) }.joined(separator: "\n"))
  }

  static func show(json value: some Encodable) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    show(json: String(decoding: try encoder.encode(value), as: UTF8.self))
  }

  /// Local time in ISO 8601.
  static func time(_ date: Date) -> String {
    var seconds = time_t(clamping: Int(max(-1e11, min(date.timeIntervalSince1970, 1e11))))
    var parts = tm()
    guard localtime_r(&seconds, &parts) != nil else { return "?" }
    func twoDigits(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let (year, month) = (Int(parts.tm_year) + 1900, twoDigits(parts.tm_mon + 1))
    return "\(year)-\(month)-\(twoDigits(parts.tm_mday))"
      + "T\(twoDigits(parts.tm_hour)):\(twoDigits(parts.tm_min)):\(twoDigits(parts.tm_sec))"
  }

  static func count(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
    "\(number) \(number == 1 ? noun : plural ?? noun + "s")"
  }

  /// Writes buffered output, so that a full disk shows in the exit code.
  static func flush() throws {
    guard fflush(stdout) == 0 else {
      throw Failure(
        message: "the output cannot be written. Free some disk space, or write it elsewhere.",
        status: 74)
    }
  }

  // MARK: Color

  private static let hasColor =
    isTerminal && variable("NO_COLOR").isEmpty && !["", "dumb"].contains(variable("TERM"))

  static func bold(_ text: String) -> String { hasColor ? "\u{1B}[1m\(text)\u{1B}[0m" : text }
  static func red(_ text: String) -> String { hasColor ? "\u{1B}[31m\(text)\u{1B}[0m" : text }

  private static func variable(_ name: String) -> String {
    getenv(name).map { String(cString: $0) } ?? ""
  }
}
