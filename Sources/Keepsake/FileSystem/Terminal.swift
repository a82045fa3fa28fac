internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// The controlling terminal, even if the standard streams are redirected.
enum Terminal {
  /// Two prompts at a time would take each other's keys, and restore each other's settings.
  private static let prompt = Locked(())

  /// Asks for a line that is not shown while it is typed; nil if the user ends the input instead.
  ///
  /// Control-C ends the program as usual, after the terminal's settings have been restored. They
  /// are also restored if the program exits, or a signal ends it, during the prompt.
  static func readHidden(_ prompt: String) throws(StorageError) -> String? {
    try Self.prompt.withLock { _ throws(StorageError) in try readHiddenAlone(prompt) }
  }

  private static func readHiddenAlone(_ prompt: String) throws(StorageError) -> String? {
    let path = "/dev/tty"
    let terminal = try File(path, .readWrite)
    var settings = termios()
    let result = systemCall(.terminal, path) { Int(tcgetattr(terminal.descriptor, &settings)) }
    try result.get(.terminal, path)
    SavedSettings.save(settings, of: terminal.descriptor)
    defer { SavedSettings.restore() }
    // Reads single keys and handles their signals itself, so that the echo is always restored.
    settings.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
    try systemCall(.terminal, path) {
      Int(tcsetattr(terminal.descriptor, TCSAFLUSH, &settings))
    }.get(.terminal, path)
    // `File` opens with O_NONBLOCK, but reading keys must block.
    _ = fcntl(terminal.descriptor, F_SETFL, O_RDWR)
    let visiblePrompt = removingControlCharacters(prompt)
    try terminal.writeAll(Array(visiblePrompt.utf8))
    defer { try? terminal.writeAll(Array("\n".utf8)) }

    var line: [UInt8] = []
    while true {
      var key: UInt8 = 0
      let count = try systemCall(.read, path) { read(terminal.descriptor, &key, 1) }
        .get(.read, path)
      switch key {
      case _ where count == 0: return nil
      case 0x03:  // Control-C
        SavedSettings.restore()
        // To the process, because this may be a thread that blocks signals.
        kill(getpid(), SIGINT)
        return nil
      case 0x04 where line.isEmpty: return nil  // Control-D
      case 0x0A, 0x0D:
        // Repairing invalid UTF-8 would make different passphrases equal.
        if let text = line.withUnsafeBytes({ String(utf8: $0) }) { return text }
        line = []
        try terminal.writeAll(Array("\nThat is not valid UTF-8. \(visiblePrompt)".utf8))
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

/// The terminal's settings from before a prompt. They are restored once: by the prompt, by the
/// handler of a signal that ends the program, or when the program exits.
private struct SavedSettings {
  var settings: termios
  let descriptor: Int32
  /// A child after fork inherits the handlers, but the prompt is its parent's.
  let process = getpid()

  /// The address of the settings of the current prompt; 0 if there is none.
  private static let current = Atomic<UInt>(0)
  /// The signals that a terminal, a shell or a service manager sends to end a program. If the
  /// program ignores or handles one, it keeps that.
  private static let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
  private static let exitHook: Void = ProcessEnvironment.atExit { SavedSettings.apply() }

  static func save(_ settings: termios, of descriptor: Int32) {
    _ = exitHook
    let saved = UnsafeMutablePointer<SavedSettings>.allocate(capacity: 1)
    saved.initialize(to: SavedSettings(settings: settings, descriptor: descriptor))
    current.store(UInt(bitPattern: saved), ordering: .releasing)
    for signal in signals { _ = keepsake_replace_signal_handler(signal, nil, restoreAndEnd) }
  }

  static func restore() {
    apply()?.deallocate()
    for signal in signals { _ = keepsake_replace_signal_handler(signal, restoreAndEnd, nil) }
  }

  /// Makes only calls that a signal handler may make. The result, nil after the first call, is the
  /// caller's.
  @discardableResult
  static func apply() -> UnsafeMutablePointer<SavedSettings>? {
    let address = current.exchange(0, ordering: .acquiringAndReleasing)
    guard let saved = UnsafeMutablePointer<SavedSettings>(bitPattern: address) else { return nil }
    if saved.pointee.process == getpid() {
      tcsetattr(saved.pointee.descriptor, TCSAFLUSH, &saved.pointee.settings)
    }
    return saved
  }
}

/// Restores the terminal, and ends the program as the signal would have done.
private func restoreAndEnd(_ signal: Int32) {
  SavedSettings.apply()
  _ = keepsake_replace_signal_handler(signal, restoreAndEnd, nil)
  raise(signal)
}
