// The forks of the peer: each has an end, also where the child hangs.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Written before the alarm is set, and read by its handler alone.
nonisolated(unsafe) private var living: pid_t = 0

/// fork(2); a child that hangs ends with a signal, which ``ended(_:)`` tells.
func forkedChild() -> pid_t {
  // What the library began in the background shall be over: the language's runtime has locks of its
  // own, and one that a thread holds at this moment stays locked in the child for ever.
  usleep(200_000)
  let child = fork()
  if child > 0 {
    // The thread sanitizer's child may hang in fork itself, before it comes to set an alarm.
    living = child
    signal(SIGALRM) { _ in kill(living, SIGKILL) }
    alarm(90)
  } else if child == 0 {
    alarm(60)
  } else {
    say("error fork \(errno)")
    exit(71)
  }
  return child
}

/// Waits for the child to end; its status is as waitpid(2) has it.
func ended(_ child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  signal(SIGALRM, SIG_DFL)
  limitLifetime()
  return status
}
