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

/// Starts a thread that reads settings until the process ends, and waits for its first read.
func startReading() {
  let hasRead = DispatchSemaphore(value: 0)
  DispatchQueue(label: "reader").async {
    _ = Defaults.int("count")
    hasRead.signal()
    while true { _ = Defaults.int("count") }
  }
  hasRead.wait()
}

/// Forks while another thread is inside an update, which ends after the fork.
///
/// - Returns: What parent and child have set, and how the child ended.
func forkWhileUpdating() -> String {
  Defaults.set(0, forKey: "count")
  let (isInside, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
  let hasEnded = DispatchSemaphore(value: 0)
  DispatchQueue(label: "update").async {
    Defaults.update("count", default: 0) { count in
      isInside.signal()
      mayEnd.wait()
      count += 1
    }
    hasEnded.signal()
  }
  isInside.wait()
  let child = forkedChild(after: 0)
  if child == 0 { _exit(Defaults.set(true, forKey: "child") ? 0 : 1) }
  mayEnd.signal()
  hasEnded.wait()
  let status = waitForExit(of: child)
  return "\(Defaults.int("count")) \(Defaults.bool("child")) \(status)"
}

/// Waits for the child; its status in the encoding of waitpid(2).
func waitForExit(of child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  signal(SIGALRM, SIG_DFL)
  limitLifetime()
  return status
}
