import FoundationEssentials
import Keepsake
import KeepsakeLibc

#if canImport(Glibc)
/// Installs the program's own handler for SIGBUS, before the library has one.
private func installHandler(_ kind: String) {
  var action = sigaction()
  switch kind {
  case "own", "once":
    action.sa_flags = SA_SIGINFO | SA_ONSTACK
    if kind == "once" { action.sa_flags |= Int32(bitPattern: UInt32(SA_RESETHAND)) }
    action.__sigaction_handler.sa_sigaction = { _, information, _ in
      printLine("handled \(information?.pointee.si_code ?? 0)")
      // Otherwise the fault happens again, and ends the process because of SA_RESETHAND.
      if !returns { _exit(3) }
    }
  case "plain":
    action.__sigaction_handler.sa_handler = { _ in
      printLine("handled")
      _exit(3)
    }
  case "ignored": action.__sigaction_handler.sa_handler = SIG_IGN
  default: action.__sigaction_handler.sa_handler = SIG_DFL
  }
  returns = kind == "once"
  _ = sigaction(SIGBUS, &action, nil)
}

/// Whether the handler returns.
nonisolated(unsafe) private var returns = false

/// Reads a page of a file after the file was truncated.
private func readTruncatedFile(_ path: String) {
  let descriptor = open(path, O_RDWR | O_CREAT, 0o600)
  _ = ftruncate(descriptor, 4_096)
  guard let page = mmap(nil, 4_096, PROT_READ, MAP_SHARED, descriptor, 0) else { exit(1) }
  _ = ftruncate(descriptor, 0)
  if page.load(as: UInt8.self) == 1 { exit(1) }
}
#endif

/// Runs a command about faults in mapped files; false if it is another command.
func runFaultCommand(_ words: [String], in directory: URL) -> Bool {
  guard words[0] == "bus-error" else { return false }
  #if canImport(Glibc)
  _ = setLimit(RLIMIT_CORE, 0)
  installHandler(words[1])
  Defaults.set(1, forKey: "k")
  switch words.count > 2 ? words[2] : "" {
  case "foreign": readTruncatedFile(directory.path + "/foreign")
  case "sent": kill(getpid(), SIGBUS)
  default:
    printLine(String(Defaults.int("k")))
    _ = truncate(directory.path + "/standard.jsonl", 0)
    printLine(String(Defaults.int("k")))
    Defaults.set(2, forKey: "k")
    printLine(String(Defaults.int("k")))
  }
  printLine("ok")
  #endif
  return true
}
