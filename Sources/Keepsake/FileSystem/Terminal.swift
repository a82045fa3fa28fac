internal import KeepsakeLibc

/// The terminal that a person sits at, whatever the standard streams are.
enum Terminal {
  /// Asks for a line that is not shown while it is typed; nil when the person ends the input
  /// instead.
  ///
  /// Control-C ends the program as it always does, but with the terminal as it was before.
  static func readHidden(_ prompt: String) throws(StorageError) -> String? {
    let path = "/dev/tty"
    let terminal = try File(path, .readWrite)
    var before = termios()
    let result = systemCall(.terminal, path) { Int(tcgetattr(terminal.descriptor, &before)) }
    try result.get(.terminal, path)
    var hidden = before
    // Key by key and without signals, so that nothing leaves the terminal without its echo.
    hidden.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
    try systemCall(.terminal, path) {
      Int(tcsetattr(terminal.descriptor, TCSAFLUSH, &hidden))
    }.get(.terminal, path)
    defer { tcsetattr(terminal.descriptor, TCSAFLUSH, &before) }
    // The file is opened without waiting, which reading keys must do.
    _ = fcntl(terminal.descriptor, F_SETFL, O_RDWR)
    try write(shown(prompt), to: terminal)
    defer { try? write("\n", to: terminal) }

    var line: [UInt8] = []
    while true {
      var key: UInt8 = 0
      let got = try systemCall(.read, path) { read(terminal.descriptor, &key, 1) }.get(.read, path)
      switch key {
      case _ where got == 0: return nil
      case 0x03:  // Control-C
        tcsetattr(terminal.descriptor, TCSAFLUSH, &before)
        // To the process: the thread may be one of Dispatch's, which take no signals.
        kill(getpid(), SIGINT)
        return nil
      case 0x04 where line.isEmpty: return nil  // Control-D
      case 0x0A, 0x0D: return String(decoding: line, as: UTF8.self)
      case 0x08, 0x7F:  // backspace: the whole of a character
        while let last = line.popLast(), last & 0xC0 == 0x80 {}
      case 0x15: line = []  // Control-U
      case 0x00..<0x20: continue
      default: line.append(key)
      }
    }
  }

  /// Without what a terminal would take for a command: names in it may come from anywhere.
  private static func shown(_ prompt: String) -> String {
    let scalars = prompt.unicodeScalars.filter { $0.properties.generalCategory != .control }
    return String(String.UnicodeScalarView(scalars))
  }

  private static func write(_ text: String, to terminal: File) throws(StorageError) {
    try terminal.writeAll(Array(text.utf8))
  }
}
