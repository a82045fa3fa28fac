internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// The controlling terminal, even if the standard streams are redirected.
enum Terminal {
  /// Two prompts at a time would steal each other's keystrokes, and restore each other's settings.
  private static let prompt = Locked(())

  /// Asks for a line that is not shown while it is typed; nil if the user ends the input instead.
  ///
  /// Control-C ends the program as usual, after the terminal's settings have been restored. They
  /// are also restored if the program exits, or a signal ends it, during the prompt. If it is
  /// stopped and continued, nothing is shown as before.
  ///
  /// A Tab belongs to the line. A line with another control key in it, such as Escape or an arrow
  /// key, is refused and asked for again.
  static func readHidden(_ prompt: String) throws(StorageError) -> String? {
    try Self.prompt.withLock { _ throws(StorageError) in
      // Where they are blocked, the terminal refuses a program in the background, instead of
      // stopping it until it is in the foreground.
      var (stops, before) = (sigset_t(), sigset_t())
      sigemptyset(&stops)
      for signal in [SIGTTIN, SIGTTOU] { sigaddset(&stops, signal) }
      pthread_sigmask(SIG_UNBLOCK, &stops, &before)
      defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
      return try readHiddenAlone(prompt)
    }
  }

  private static func readHiddenAlone(_ prompt: String) throws(StorageError) -> String? {
    let path = "/dev/tty"
    let terminal = try File(path, .readWrite)
    var settings = termios()
    let result = systemCall(.terminal, path) { Int(tcgetattr(terminal.descriptor, &settings)) }
    try result.get(.terminal, path)
    let visible = settings
    // Reads single keys and handles their signals itself, so that the echo is always restored.
    settings.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
    SavedSettings.save(visible, hidden: settings, of: terminal.descriptor)
    defer { SavedSettings.restore() }
    try systemCall(.terminal, path) {
      Int(tcsetattr(terminal.descriptor, TCSAFLUSH, &settings))
    }.get(.terminal, path)
    // `File` opens with O_NONBLOCK, but reading keys must block.
    _ = fcntl(terminal.descriptor, F_SETFL, O_RDWR)
    let visiblePrompt = removingControlCharacters(prompt)
    try terminal.writeAll(Array(visiblePrompt.utf8))
    defer { try? terminal.writeAll(Array("\n".utf8)) }

    var line: [UInt8] = []
    // Other keys are collected until the line ends: they may be the rest of an arrow key.
    var isRefused = false
    func askAgain(_ reason: String) throws(StorageError) {
      (line, isRefused) = ([], false)
      try terminal.writeAll(Array("\n\(reason) \(visiblePrompt)".utf8))
    }
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
        if isRefused {
          try askAgain("That has a control key in it, such as Escape or an arrow key.")
          continue
        }
        // Repairing invalid UTF-8 would make different passphrases equal.
        if let text = line.withUnsafeBytes({ String(utf8: $0) }) { return text }
        try askAgain("That is not valid UTF-8.")
      case 0x08, 0x7F:  // backspace removes all bytes of a character
        while let last = line.popLast(), last & 0xC0 == 0x80 {}
      case 0x15: (line, isRefused) = ([], false)  // Control-U
      case 0x09: line.append(key)
      case 0x00..<0x20: isRefused = true
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
  var hidden: termios
  let descriptor: Int32
  /// A child after fork inherits the handlers, but the prompt is its parent's.
  let process = getpid()

  /// The address of the settings of the current prompt; there is one prompt at a time. It is never
  /// freed: the handler of a signal may still use it when the prompt has ended.
  private static let address = UInt(
    bitPattern: UnsafeMutablePointer<SavedSettings>.allocate(capacity: 1))
  private static let isCurrent = Atomic(false)
  /// The signals that a terminal, a shell or a service manager sends to end a program. If the
  /// program ignores or handles one, it keeps that.
  private static let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
  private static let exitHook: Void = ProcessEnvironment.atExit { SavedSettings.apply() }

  static func save(_ settings: termios, hidden: termios, of descriptor: Int32) {
    _ = exitHook
    UnsafeMutablePointer<SavedSettings>(bitPattern: address)?.initialize(
      to: SavedSettings(settings: settings, hidden: hidden, descriptor: descriptor))
    isCurrent.store(true, ordering: .releasing)
    for signal in signals { _ = keepsake_replace_signal_handler(signal, nil, restoreAndEnd) }
    keepsake_set_continue_handler(hideAgain)
  }

  static func restore() {
    apply()
    for signal in signals { _ = keepsake_replace_signal_handler(signal, restoreAndEnd, nil) }
    keepsake_set_continue_handler(nil)
  }

  /// Makes only calls that a signal handler may make, as does ``hide()``.
  static func apply() {
    guard isCurrent.exchange(false, ordering: .acquiringAndReleasing) else { return }
    withSaved { tcsetattr($0.descriptor, TCSAFLUSH, &$0.settings) }
  }

  /// A shell that has stopped the program has used the terminal with its own settings.
  static func hide() {
    guard isCurrent.load(ordering: .acquiring) else { return }
    withSaved { tcsetattr($0.descriptor, TCSADRAIN, &$0.hidden) }
    // The prompt may have ended on another thread in the meantime.
    if isCurrent.load(ordering: .acquiring) { return }
    withSaved { tcsetattr($0.descriptor, TCSADRAIN, &$0.settings) }
  }

  private static func withSaved(_ body: (inout SavedSettings) -> Int32) {
    guard let saved = UnsafeMutablePointer<SavedSettings>(bitPattern: address),
      saved.pointee.process == getpid()
    else { return }
    _ = body(&saved.pointee)
  }
}

/// Hides what is typed again after the program was continued.
private func hideAgain() { SavedSettings.hide() }

/// Restores the terminal, and ends the program as the signal would have done.
private func restoreAndEnd(_ signal: Int32) {
  SavedSettings.apply()
  _ = keepsake_replace_signal_handler(signal, restoreAndEnd, nil)
  raise(signal)
}
