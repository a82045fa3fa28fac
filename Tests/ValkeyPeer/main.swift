// A second process for the tests of KeepsakeValkey.
// Usage: keepsake-valkey-peer COMMAND URL [DIRECTORY [ARGUMENT …]]
import Dispatch
import Keepsake
import KeepsakeValkey

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

func printLine(_ text: String) {
  var line = text + "\n"
  line.withUTF8 { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

/// Returns once the condition holds. It depends on a server and on other processes, so nothing here
/// could wake the thread.
func waitUntil(_ condition: () -> Bool) {
  while !condition() { usleep(2_000) }
}

/// How many descriptors of this process are sockets.
func socketCount() -> Int {
  (0..<256).count { descriptor in
    var type: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    return getsockopt(Int32(descriptor), SOL_SOCKET, SO_TYPE, &type, &length) == 0
  }
}

/// Those that this process has inherited.
let inheritedCount = socketCount()

/// Increments `n` and says what it is then, and how many sockets the link has.
func report(_ name: String, _ link: Link, beside otherCount: Int = inheritedCount) {
  do {
    printLine("\(name) \(try link.perform(Command("INCR", "n"))) \(socketCount() - otherCount)")
  } catch {
    printLine("\(name) \(error)")
  }
}

/// Parent and child use the same object, which has a connection of its own in each.
func fork(_ link: Link) {
  report("parent", link)
  waitForOtherThreads()
  let child = fork()
  if child == 0 {
    alarm(300)
    for _ in 0..<3 { report("child", link) }
    exit(0)
  }
  // The link's thread of a child that hangs is ended with it.
  printLine("child ended \(wait(for: child))")
  report("parent", link)
}

/// How a child has ended.
func wait(for child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  return status
}

/// Standard streams that are closed stay closed: no socket takes their numbers.
func closeStreams(_ link: Link) {
  close(STDIN_FILENO)
  close(STDERR_FILENO)
  report("closed", link)
  for stream in [STDIN_FILENO, STDERR_FILENO] {
    printLine(fcntl(stream, F_GETFD) == -1 ? "free" : "taken")
  }
}

/// Writes to a connection that the server has ended, with the default effect of SIGPIPE.
func writeAfterTheEnd(_ link: Link) {
  signal(SIGPIPE, SIG_DFL)
  report("before", link)
  for _ in 0..<20 {
    _ = try? link.perform(Command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"))
  }
  waitUntil { (try? link.perform(Command("PING"))) != nil }
  report("after", link)
}

/// As a daemon does.
func closeDescriptors() {
  for descriptor in 3..<Int32(256) { close(descriptor) }
}

/// Closes all descriptors and opens others, which stay as they are.
func takeOver(_ link: Link) {
  report("before", link)
  closeDescriptors()
  let own = (0..<24).map { _ in open("/dev/null", O_RDWR) }
  let sockets = socketCount()
  for name in ["after", "again"] { report(name, link, beside: sockets) }
  var null = stat()
  stat("/dev/null", &null)
  let isKept = own.allSatisfy { descriptor in
    var status = stat()
    return fstat(descriptor, &status) == 0 && status.st_ino == null.st_ino
  }
  printLine(isKept ? "kept" : "replaced")
}

/// Prints the reply to one command, or what it failed with.
func ping(_ link: Link) {
  do throws(StorageError) {
    printLine("\(try link.perform(Command("PING")))")
  } catch {
    printLine("\(error.code) \(error)")
  }
}

/// Exits while other threads use the connection, and a handler that runs last does.
func exitWhileBusy(_ link: Link) {
  atexit { lastCall?() }
  lastCall = { ping(link) }
  let isBusy = DispatchSemaphore(value: 0)
  for thread in 0..<4 {
    DispatchQueue(label: "\(thread)").async {
      for index in 0... {
        _ = try? link.perform(Command("SET", "k\(thread)", String(repeating: "x", count: 20_000)))
        if index == 5 { isBusy.signal() }
      }
    }
  }
  isBusy.wait()
  exit(0)
}

/// What an `atexit` handler, which cannot capture anything, calls.
nonisolated(unsafe) var lastCall: (() -> Void)?

// No test waits forever for a process that hangs.
alarm(600)
let arguments = CommandLine.arguments
let linkCommands: [String: (Link) -> Void] = [
  "fork": fork, "ping": ping, "exit": exitWhileBusy, "streams": closeStreams,
  "pipe": writeAfterTheEnd, "take-over": takeOver,
]
if arguments.count > 2, let command = linkCommands[arguments[1]] {
  command(Link(try ServerAddress(arguments[2])))
} else if try !runSettingsCommand(arguments) && !runCacheCommand(arguments) {
  exit(64)
}
