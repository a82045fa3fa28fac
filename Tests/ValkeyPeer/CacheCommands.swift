import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Runs a command that uses ``DiskCache``, after `bootstrap`; returns false if it is another one.
func runCacheCommand(_ arguments: [String]) -> Bool {
  guard arguments.count > 4 else { return false }
  switch arguments[1] {
  case "cache-work":  // NAME KEYS PROCESSES
    fetchKeys(name: arguments[4], Int(arguments[5]) ?? 0, Int(arguments[6]) ?? 0)
  case "cache-fetch":  // KEY
    run { printLine(try await DiskCache.fetch(arguments[4]) { "mine" }) }
  case "cache-hold":  // KEY: produces until it is killed
    startProducer(of: arguments[4])
    printLine("produces")
    while true { pause() }
  case "cache-exit": startProducer(of: arguments[4])  // KEY: and ends at once
  case "cache-fork": forkDuringOutage(key: arguments[4])  // KEY
  default: return false
  }
  return true
}

/// Blocks the thread until the body has ended.
private func run(_ body: @escaping @Sendable () async throws -> Void) {
  let semaphore = DispatchSemaphore(value: 0)
  Task {
    do {
      try await body()
    } catch {
      printLine("\(error)")
    }
    semaphore.signal()
  }
  semaphore.wait()
}

/// Fetches keys at the same time as other processes, and reads its own changes. When all have done
/// so, it prints a digest of the values, and how many it has produced.
private func fetchKeys(name: String, _ keys: Int, _ processes: Int) {
  nonisolated(unsafe) var produced = 0
  run {
    for number in 0..<keys {
      let text = try await DiskCache.fetch("\(number)", expiry: .hours(1)) {
        produced += 1
        return "\(name) \(number)"
      }
      if !text.hasSuffix(" \(number)") { printLine("\(number) is \(text)") }
      DiskCache.set(number, forKey: "own \(name)")
      if DiskCache.model("own \(name)") != number { printLine("own value is missing") }
    }
  }
  Defaults.update("done", default: 0) { $0 += 1 }
  waitUntil { Defaults.int("done") >= processes }
  let values = (0..<keys).map { DiskCache.model("\($0)", type: String.self) ?? "none" }
  printLine("\(digest(values.joined())) \(produced)")
}

/// Returns once the producer runs, which never ends.
private func startProducer(of key: String) {
  let semaphore = DispatchSemaphore(value: 0)
  Task {
    try await DiskCache.fetch(key) {
      semaphore.signal()
      await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
      return "produced"
    }
  }
  semaphore.wait()
}

/// Forks while the server is away. The child uses the key after the parent has changed it again.
private func forkDuringOutage(key: String) {
  func text() -> String { DiskCache.model(key) ?? "none" }
  DiskCache.set("old", forKey: key)
  printLine("ready")
  waitUntil { !DiskCache.remove("probe") }
  // The server is not told.
  DiskCache.set("mine", forKey: key)
  var ends: [Int32] = [0, 0]
  guard pipe(&ends) == 0 else { return printLine("no pipe") }
  waitForOtherThreads()
  let child = fork()
  var byte: UInt8 = 1
  if child == 0 {
    alarm(300)
    _ = read(ends[0], &byte, 1)
    printLine("child \(text())")
    exit(0)
  }
  printLine("forked")
  waitUntil { DiskCache.remove("probe") }
  DiskCache.set("new", forKey: key)
  _ = write(ends[1], &byte, 1)
  let status = wait(for: child)
  printLine("parent \(text()) \(status)")
}
