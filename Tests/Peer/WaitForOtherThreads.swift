// Also part of keepsake-valkey-peer.
import FoundationEssentials

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Returns once no other thread of the process runs: a lock of the Swift runtime that one of them
/// holds at a fork stays locked in the child.
func waitForOtherThreads() {
  /// The fields of a thread; its name, in parentheses, is the second one.
  func status(_ thread: String) -> String? {
    try? String(contentsOfFile: "/proc/\(thread)/stat", encoding: .utf8)
  }
  let own = status("thread-self")?.split(separator: " ").first.map(String.init)
  func isRunning(_ id: String) -> Bool {
    if id == own { return false }
    return status("self/task/\(id)")?.split(separator: ")").last?.hasPrefix(" R") == true
  }
  while true {
    let ids = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
    if !ids.contains(where: isRunning) { return }
    // There is no event for threads of the runtime that have released their locks.
    usleep(2_000)
  }
}
