import FoundationEssentials
import Keepsake
@preconcurrency import KeepsakeLibc
import Synchronization

/// Writes text for users and JSON for programs.
enum Output {
  static let isTerminal = isatty(STDOUT_FILENO) == 1

  // MARK: Standard output

  /// What has not been written yet. A terminal shows each text at once.
  private static let buffer = Mutex<[UInt8]>([])
  private static let bufferSize = 65_536

  static func write(_ text: String, terminator: String = "\n") throws {
    try write(Array((text + terminator).utf8).span.bytes)
  }

  static func write(_ bytes: RawSpan) throws {
    let isFull = buffer.withLock { buffer in
      bytes.withUnsafeBytes { buffer.append(contentsOf: $0) }
      return buffer.count >= bufferSize
    }
    if isTerminal || isFull { try flush() }
  }

  /// Writes the buffered output.
  ///
  /// - Throws: A ``Failure`` if a part of it is lost, such as on a full disk. Nothing is written
  ///   after that part.
  static func flush() throws {
    let lost: Int32? = buffer.withLock { buffer in
      defer { buffer = [] }
      return buffer.withUnsafeBytes { writeAll($0) }
    }
    guard let lost else { return }
    throw Failure(
      message: "the output cannot be written: \(String(cString: strerror(lost))). "
        + "Free some disk space, or write it elsewhere.", status: 74)
  }

  // MARK: Standard error

  static func printError(_ message: String) {
    Progress.clear()
    fputs("keepsakectl: \(escaped(message))\n", stderr)
  }

  /// Prints a remark on standard error, if that is a terminal.
  static func note(_ message: String) {
    if isatty(STDERR_FILENO) == 1 { fputs(escaped(message) + "\n", stderr) }
  }

  static func ask(_ question: String) { fputs(escaped(question), stderr) }

  // MARK: Formats

  /// Prints a JSON document. What is escaped can only be in its strings, where the escape sequences
  /// mean the same characters.
  static func show(json: String) throws {
    let lines = json.split(separator: "\n", omittingEmptySubsequences: false)
    try write(lines.map { escaped(String($0)) }.joined(separator: "\n"))
  }

  static func show(json value: some Encodable) throws {
    try show(json: String(decoding: try json(value), as: UTF8.self))
  }

  static func json(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .iso8601
    return try encoder.encode(value)
  }

  /// Local time in ISO 8601, with its zone.
  static func time(_ date: Date) -> String {
    var seconds = time_t(clamping: Int(max(-1e11, min(date.timeIntervalSince1970, 1e11))))
    var parts = tm()
    guard localtime_r(&seconds, &parts) != nil else { return "?" }
    func twoDigits(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    func zone(_ seconds: Int32) -> String {
      let minutes = abs(seconds) / 60
      let offset = "\(twoDigits(minutes / 60)):\(twoDigits(minutes % 60))"
      return seconds == 0 ? "Z" : (seconds < 0 ? "-" : "+") + offset
    }
    let (year, month) = (Int(parts.tm_year) + 1900, twoDigits(parts.tm_mon + 1))
    return "\(year)-\(month)-\(twoDigits(parts.tm_mday))"
      + "T\(twoDigits(parts.tm_hour)):\(twoDigits(parts.tm_min)):\(twoDigits(parts.tm_sec))"
      + zone(Int32(clamping: parts.tm_gmtoff))
  }

  static func count(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
    "\(number) \(number == 1 ? noun : plural ?? noun + "s")"
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

/// Writes all bytes to standard output; the error's `errno` if it cannot.
private func writeAll(_ bytes: UnsafeRawBufferPointer) -> Int32? {
  var position = 0
  while position < bytes.count {
    let rest = UnsafeRawBufferPointer(rebasing: bytes[position...])
    let count = write(STDOUT_FILENO, rest.baseAddress, rest.count)
    if count >= 0 {
      position += count
    } else if errno == EAGAIN {
      // Another program has made the pipe non-blocking: wait for its reader.
      var event = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
      poll(&event, 1, -1)
    } else if errno != EINTR {
      return errno
    }
  }
  return nil
}

@available(*, unavailable, message: "Use Output.write, which throws if the output is lost.")
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {}
