// Forks the peer. A child that hangs is ended by an alarm.

import Dispatch
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Written before the alarm is set, and read only by its handler.
nonisolated(unsafe) private var living: pid_t = 0

/// Forks with fork(2). A child that hangs is ended by a signal; see ``waitForExit(of:)``.
///
/// - Parameter pause: For how many microseconds to let work in the background end first: a lock of
///   the Swift runtime that another thread holds during the fork stays locked in the child.
func forkedChild(after pause: UInt32 = 200_000) -> pid_t {
  usleep(pause)
  let child = fork()
  if child > 0 {
    // Under the thread sanitizer the child may hang in fork, before it sets its own alarm.
    living = child
    signal(SIGALRM) { _ in kill(living, SIGKILL) }
    alarm(90)
  } else if child == 0 {
    alarm(60)
  } else {
    printLine("error fork \(errno)")
    exit(71)
  }
  return child
}

/// Starts a thread that reads or writes settings until the process ends, and waits for its first
/// calls.
func startWork(isWriting: Bool) {
  let hasBegun = DispatchSemaphore(value: 0)
  DispatchQueue(label: "work").async {
    for index in 0... {
      if isWriting { Defaults.set(index, forKey: "other") } else { _ = Defaults.int("count") }
      if index == 100 { hasBegun.signal() }
    }
  }
  hasBegun.wait()
}

/// Waits for the child; its status in the encoding of waitpid(2).
func waitForExit(of child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  signal(SIGALRM, SIG_DFL)
  limitLifetime()
  return status
}
