import Foundation
import Testing

/// A terminal for a child process, at which the test reads and types.
final class PseudoTerminal {
  /// The path of the end that the child opens.
  let path: String
  private let descriptor: Int32
  /// Everything shown so far.
  private(set) var screen = ""
  private var unread = ""

  init(columns: UInt16 = 80) throws {
    // The ioctls behind posix_openpt(3), which Swift does not import.
    descriptor = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    try #require(descriptor >= 0, "no pseudo-terminals here")
    var (unlocked, number): (Int32, Int32) = (0, 0)
    let isReady =
      ioctl(descriptor, 0x4004_5431, &unlocked) == 0  // TIOCSPTLCK
      && ioctl(descriptor, 0x8004_5430, &number) == 0  // TIOCGPTN
    var size = winsize(ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0)
    path = "/dev/pts/\(number)"
    try #require(isReady && ioctl(descriptor, 0x5414, &size) == 0)  // TIOCSWINSZ
  }

  deinit { close(descriptor) }

  /// Whether it shows what is typed.
  var isEchoing: Bool {
    var settings = termios()
    return tcgetattr(descriptor, &settings) == 0 && settings.c_lflag & tcflag_t(ECHO) != 0
  }

  /// Shows what is typed, as a shell does once it has stopped a program.
  func showInput() {
    var settings = termios()
    guard tcgetattr(descriptor, &settings) == 0 else { return }
    settings.c_lflag |= tcflag_t(ECHO | ICANON | ISIG)
    tcsetattr(descriptor, TCSANOW, &settings)
  }

  /// Waits for the next occurrence of `prompt` and types a line.
  func answer(_ prompt: String, _ line: String) throws {
    try expect(prompt)
    try type(line + "\n")
  }

  func type(_ keys: String) throws { try type(bytes: Array(keys.utf8)) }

  func type(bytes: [UInt8]) throws {
    try #require(write(descriptor, bytes, bytes.count) == bytes.count)
  }

  func expect(_ text: String) throws {
    let end = ContinuousClock.now + .seconds(600)
    while ContinuousClock.now < end {
      if let found = unread.range(of: text) {
        unread.removeSubrange(..<found.upperBound)
        return
      }
      var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      // End of file: the child, which had its end open from the start, has ended.
      if poll(&ready, 1, 1_000) > 0, !readMore() { break }
    }
    Issue.record("\"\(text)\" was not shown: \(screen)")
    throw CancellationError()
  }

  /// Reads until the child closes its end; everything that was shown.
  func finish() -> String {
    while readMore() {}
    return screen
  }

  private func readMore() -> Bool {
    var bytes = [UInt8](repeating: 0, count: 4_096)
    let count = read(descriptor, &bytes, bytes.count)
    guard count > 0 else { return false }
    let text = String(decoding: bytes.prefix(count), as: UTF8.self)
    screen += text
    unread += text
    return true
  }
}
