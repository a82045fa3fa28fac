// Commands of a process that changes its standard streams or its environment.
import CKeepsake
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// What a process stores while it prints to streams that are closed. The tests also use this file.
enum PrintingProcess {
  static let count = 20
  static let text = "printed text\n"

  static func value(_ number: Int) -> Data { Data("\(number) of \(count)".utf8) }
}

private func storeAll(_ stores: MixedStores) -> Bool {
  do {
    for number in 0..<PrintingProcess.count {
      for kind in MixedStores.Kind.allCases {
        try stores[kind].set(PrintingProcess.value(number), "\(number)")
      }
    }
    try stores.settings.store.synchronize()
    return true
  } catch {
    return false
  }
}

/// Stores values of all kinds while two threads print.
private func storeWhilePrinting(_ stores: MixedStores, closesStreams: Bool) -> Bool {
  let (isRunning, mayPrint) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
  for stream in [STDOUT_FILENO, STDERR_FILENO] {
    DispatchQueue.global().async {
      isRunning.signal()
      mayPrint.wait()
      while true { _ = write(stream, PrintingProcess.text, PrintingProcess.text.utf8.count) }
    }
  }
  // Dispatch opens descriptors of its own first, which otherwise would get the numbers.
  for _ in 1...2 { isRunning.wait() }
  if closesStreams { for stream in 0...2 { close(Int32(stream)) } }
  for _ in 1...2 { mayPrint.signal() }
  return storeAll(stores) && (!closesStreams || watchesWithoutStreams(stores.settings.store))
}

/// Stores values of all kinds without a standard output, to which another thread prints. All that
/// it prints is on its way until the values are stored.
private func storeBeforePrintedTextArrives(_ stores: MixedStores) -> Bool {
  let semaphores = (0..<3).map { _ in DispatchSemaphore(value: 0) }
  let (isRunning, isStored, hasArrived) = (semaphores[0], semaphores[1], semaphores[2])
  DispatchQueue.global().async {
    isRunning.signal()
    // Like a write that has begun, a copy of a descriptor has the file.
    var copies: [Int32] = []
    while copies.count < 500, isStored.wait(timeout: .now()) == .timedOut {
      let copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
      if copy != -1 { copies.append(copy) }
    }
    for copy in copies {
      _ = write(copy, PrintingProcess.text, PrintingProcess.text.utf8.count)
    }
    hasArrived.signal()
  }
  isRunning.wait()
  close(STDOUT_FILENO)
  defer {
    isStored.signal()
    hasArrived.wait()
  }
  return storeAll(stores)
}

/// Whether files are watched by a descriptor that does not have the number of a standard stream.
private func watchesWithoutStreams(_ settings: Defaults.Store) -> Bool {
  let iterator = settings.changes("0", default: Data()).makeAsyncIterator()
  defer { withExtendedLifetime(iterator) {} }
  let watching = (0..<64).filter { number in
    var text = [UInt8](repeating: 0, count: 64)
    let count = text.withUnsafeMutableBytes { bytes in
      bytes.withMemoryRebound(to: CChar.self) { text in
        text.baseAddress.map { readlink("/proc/self/fd/\(number)", $0, text.count) } ?? -1
      }
    }
    return String(decoding: text.prefix(max(0, count)), as: UTF8.self).contains("inotify")
  }
  return !watching.isEmpty && watching.allSatisfy { $0 > 2 }
}

/// Runs a program in a new session keyring with two keys of a vault that is somewhere else, one of
/// them in the user's keyring, which is linked there as in many logins.
///
/// - Returns: How the program ended, and whether the keys are gone.
private func runWithRememberedKey(_ program: [String]) -> String {
  let (join, link, session, user): (Int32, Int32, Int32, Int32) = (1, 8, -3, -5)
  let name = "keepsake:vault:0123456789abcdef:00"
  let nested = "keepsake:vault:0123456789abcdef:\(getpid())"
  guard keepsake_control_key(join, 0, 0) >= 0, keepsake_add_key(name, name, 32, session) >= 0,
    keepsake_control_key(link, user, UInt32(bitPattern: session)) >= 0,
    keepsake_add_key(nested, name, 32, user) >= 0, keepsake_find_key(nested, session) >= 0
  else { return "error \(errno)" }
  var words = program.map { strdup($0) } + [nil]
  defer { for word in words { free(word) } }
  var child: pid_t = 0
  guard posix_spawn(&child, program[0], nil, nil, &words, environ) == 0 else { return "no child" }
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  let isThere = [name, nested].contains { (name: String) in keepsake_find_key(name, session) >= 0 }
  return "status \(status >> 8), \(isThere ? "remembered" : "forgotten")"
}

/// Runs the command if it is one of these; false otherwise.
func runProcessCommand(_ words: [String]) -> Bool {
  switch words[0] {
  case "print":  // exits with 0 if everything was stored; "closing" first closes the streams
    let isDone = storeWhilePrinting(MixedStores(in: directory), closesStreams: words.count > 1)
    exit(isDone ? 0 : 1)
  case "print-late":  // the same, but what is printed to the closed output arrives in the end
    exit(storeBeforePrintedTextArrives(MixedStores(in: directory)) ? 0 : 1)
  case "report":  // reports a failure; with a PATH, after that file has taken the place of stream 2
    if words.count > 1 {
      close(STDERR_FILENO)
      if open(words[1], O_WRONLY | O_CREAT, 0o600) != STDERR_FILENO { exit(1) }
    }
    Defaults.set(1, forKey: "k", suite: Defaults.Suite(String(repeating: "x", count: 300)))
  case "with-remembered-key":  // PROGRAM [ARGUMENT …]
    printLine(runWithRememberedKey(Array(words.dropFirst())))
  case "change-home":  // FIRST SECOND: uses stores before and after HOME changes
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
      unsetenv(name)
    }
    setenv("HOME", words[1], 1)
    Defaults.set(1, forKey: "k")
    setenv("HOME", words[2], 1)
    let isDone = [
      Defaults.set(1, forKey: "k", suite: "other"), SecureVault.set("v", forKey: "k"),
      DiskCache.set("v", forKey: "k"),
    ]
    printLine(isDone.allSatisfy { $0 } ? "ok" : "failed")
  default: return false
  }
  return true
}
