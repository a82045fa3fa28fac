// Forks the peer. A child that hangs is ended by an alarm.

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
func forkedChild() -> pid_t {
  // Let work in the background end first: a lock of the Swift runtime that another thread holds
  // during the fork stays locked in the child.
  usleep(200_000)
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

/// Waits for the child; its status in the encoding of waitpid(2).
func waitForExit(of child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  signal(SIGALRM, SIG_DFL)
  limitLifetime()
  return status
}
