// Forks the peer. A child that hangs is ended by an alarm.

import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc
import Synchronization

/// Written before the alarm is set, and read only by its handler.
nonisolated(unsafe) private var living: pid_t = 0

/// Forks with fork(2). A child that hangs is ended by a signal; see ``waitForExit(of:)``.
///
/// - Parameter besideThread: Whether another thread runs on purpose, so that there is no moment to
///   wait for.
func forkedChild(besideThread: Bool = false) -> pid_t {
  if besideThread { usleep(2_000) } else { waitForOtherThreads() }
  let child = fork()
  if child > 0 {
    // Under the thread sanitizer the child may hang in fork, before it sets its own alarm.
    living = child
    signal(SIGALRM) { _ in kill(living, SIGKILL) }
    alarm(330)
  } else if child == 0 {
    alarm(300)
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
  let child = forkedChild()
  if child == 0 { _exit(Defaults.set(true, forKey: "child") ? 0 : 1) }
  mayEnd.signal()
  hasEnded.wait()
  let status = waitForExit(of: child)
  return "\(Defaults.int("count")) \(Defaults.bool("child")) \(status)"
}

/// Stores how often it has filled a mirror.
private final class CountingEngine: StorageEngines.MirroredEngine {
  private let fillCount = Atomic(0)

  func fill(_ mirror: StorageEngines.Mirror) {
    let count = fillCount.add(1, ordering: .relaxed).newValue
    mirror.replaceAll(with: [StorageEngines.Entry(key: "count", data: Data("\(count)".utf8))])
  }

  func data(forKey key: String) -> Data? { nil }
  func set(_ data: Data?, forKey key: String) {}
  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool { false }
  func keys() -> [String] { [] }
}

/// What a parent reads from a mirror, what its child reads, and what the parent reads again.
func readMirrorInBothProcesses() async throws -> String {
  try await StorageSystem.withTemporary(engines: ["counting": CountingEngine()]) {
    let store = Defaults.suite("counting")
    let count = try store.int("count")
    let child = forkedChild()
    if child == 0 { _exit(Int32((try? store.int("count")) ?? 0)) }
    let status = waitForExit(of: child)
    return try "\(count) \(status >> 8) \(store.int("count"))"
  }
}

/// Waits for the child; its status in the encoding of waitpid(2).
func waitForExit(of child: pid_t) -> Int32 {
  var status: Int32 = 0
  while waitpid(child, &status, 0) == -1, errno == EINTR {}
  signal(SIGALRM, SIG_DFL)
  limitLifetime()
  return status
}
