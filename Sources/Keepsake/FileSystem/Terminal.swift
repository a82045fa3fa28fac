internal import KeepsakeLibc

/// The controlling terminal, even if the standard streams are redirected.
enum Terminal {
  /// Asks for a line that is not shown while it is typed; nil if the user ends the input instead.
  ///
  /// Control-C ends the program as usual, after the terminal's settings have been restored.
  static func readHidden(_ prompt: String) throws(StorageError) -> String? {
    let path = "/dev/tty"
    let terminal = try File(path, .readWrite)
    var savedSettings = termios()
    let result = systemCall(.terminal, path) { Int(tcgetattr(terminal.descriptor, &savedSettings)) }
    try result.get(.terminal, path)
    var settings = savedSettings
    // Reads single keys and handles signals itself, so that the echo is always restored.
    settings.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
    try systemCall(.terminal, path) {
      Int(tcsetattr(terminal.descriptor, TCSAFLUSH, &settings))
    }.get(.terminal, path)
    defer { tcsetattr(terminal.descriptor, TCSAFLUSH, &savedSettings) }
    // `File` opens with O_NONBLOCK, but reading keys must block.
    _ = fcntl(terminal.descriptor, F_SETFL, O_RDWR)
    try terminal.writeAll(Array(removingControlCharacters(prompt).utf8))
    defer { try? terminal.writeAll(Array("\n".utf8)) }

    var line: [UInt8] = []
    while true {
      var key: UInt8 = 0
      let count = try systemCall(.read, path) { read(terminal.descriptor, &key, 1) }
        .get(.read, path)
      switch key {
      case _ where count == 0: return nil
      case 0x03:  // Control-C
        tcsetattr(terminal.descriptor, TCSAFLUSH, &savedSettings)
        // To the process, because this may be a Dispatch thread, which blocks signals.
        kill(getpid(), SIGINT)
        return nil
      case 0x04 where line.isEmpty: return nil  // Control-D
      case 0x0A, 0x0D: return String(decoding: line, as: UTF8.self)
      case 0x08, 0x7F:  // backspace removes all bytes of a character
        while let last = line.popLast(), last & 0xC0 == 0x80 {}
      case 0x15: line = []  // Control-U
      case 0x00..<0x20: continue
      default: line.append(key)
      }
    }
  }

  /// A prompt may contain names from anywhere, which must not send commands to the terminal.
  private static func removingControlCharacters(_ prompt: String) -> String {
    let scalars = prompt.unicodeScalars.filter { $0.properties.generalCategory != .control }
    return String(String.UnicodeScalarView(scalars))
  }
}
