// Settings of an app that has several processes.
// Usage: keepsake-valkey-peer COMMAND URL DIRECTORY [ARGUMENT …]
import FoundationEssentials
import Keepsake
import KeepsakeValkey
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

nonisolated(unsafe) private var backing: ValkeyBacking?
private let reportCount = Atomic(0)

/// Runs a command that uses ``Defaults`` or ``SecureVault``; returns false if it is another one.
func runSettingsCommand(_ arguments: [String]) throws -> Bool {
  guard arguments.count > 3 else { return false }
  let directory = URL(filePath: arguments[3])
  let valkey = try ValkeyBacking.valkey(arguments[2], local: ["local"])
  backing = valkey
  try StorageSystem.bootstrap(
    app: "shop", on: valkey,
    directories: .init(
      configuration: directory, data: directory, state: directory, cache: directory),
    keySources: [.closure("test") { Data(repeating: 7, count: 32) }])
  StorageSystem.onFailure = { error in
    printLine("report \(error.code)")
    reportCount.add(1, ordering: .relaxed)
  }
  switch arguments[1] {
  case "work":  // NAME INCREMENTS KEYS PROCESSES
    work(name: arguments[4], Int(arguments[5]) ?? 0, Int(arguments[6]) ?? 0, Int(arguments[7]) ?? 0)
  case "get":  // KEY: and ends at once
    printLine("\(Defaults.int(arguments[4]))")
  case "fork-settings": forkSettings()
  case "fork-report": forkAndReport(arguments[4])  // KEY
  case "take-over-settings": followAfterTakeOver()
  case "outage": try failWrites(count: Int(arguments[4]) ?? 0)
  case "local":
    Defaults.set(1, forKey: "a", suite: "local")
    printLine("\(Defaults.int("a", suite: "local")) \(Defaults.keys(suite: "local").count)")
  case "set-secret":  // KEY VALUE [REPORTS]: and waits for so many
    printLine("\(SecureVault.set(arguments[5], forKey: arguments[4]))")
    let count = arguments.count > 6 ? Int(arguments[6]) ?? 0 : 0
    waitUntil { reportCount.load(ordering: .relaxed) >= count }
  case "get-secret":  // KEY
    printLine(SecureVault.get(arguments[4]) ?? "none")
  case "work-secrets":  // NAME KEYS PROCESSES
    workWithSecrets(name: arguments[4], Int(arguments[5]) ?? 0, Int(arguments[6]) ?? 0)
  case "fork-secrets": forkSecrets()
  default: return false
  }
  return true
}

/// Changes settings at the same time as other processes, waits until it has the changes of all, and
/// prints a digest of what it has then.
private func work(name: String, _ increments: Int, _ keys: Int, _ processes: Int) {
  var last = 0
  for number in 0..<max(increments, keys) {
    if number < increments {
      let count = Defaults.update("count", default: 0) { $0 += 1 }
      if count <= last { printLine("\(count) after \(last)") }
      last = count
    }
    if number < keys {
      Defaults.set(number, forKey: "\(name) \(number)")
      if Defaults.int("\(name) \(number)") != number { printLine("own value is missing") }
    }
  }
  waitUntil {
    Defaults.int("count") >= processes * increments
      && Defaults.keys().count >= processes * keys + 1
  }
  var text = ""
  for key in Defaults.keys().sorted() { text += "\(key)=\(Defaults.int(key)) " }
  printLine("\(Defaults.int("count")) \(Defaults.keys().count) \(digest(text))")
}

func digest(_ text: String) -> UInt64 {
  text.utf8.reduce(UInt64(5_381)) { $0 &* 33 &+ UInt64($1) }
}

/// Stores secrets and replaces the keys at the same time as other processes, waits until it has the
/// secrets of all, and prints a digest of what it has then.
private func workWithSecrets(name: String, _ count: Int, _ processes: Int) {
  for number in 0..<count {
    let key = "\(name) \(number)"
    if !SecureVault.set("\(number)", forKey: key) { printLine("\(key) is not stored") }
    if SecureVault.get(key) != "\(number)" { printLine("own secret is missing") }
    if number == count / 2, !rotateKeys() { printLine("not rotated") }
  }
  waitUntil { SecureVault.keys().count >= processes * count }
  let keys = SecureVault.keys()
  let text = keys.map { "\($0)=\(SecureVault.get($0) ?? "none") " }.joined()
  printLine("\(keys.count) \(digest(text))")
}

/// Parent and child use the same suite, and see each other's changes.
private func forkSettings() {
  Defaults.set(1, forKey: "parent")
  printLine("parent \(Defaults.int("parent"))")
  waitForOtherThreads()
  let child = fork()
  if child == 0 {
    alarm(300)
    Defaults.set(2, forKey: "child")
    printLine("child \(Defaults.int("parent")) \(Defaults.int("child"))")
    Defaults.update("count", default: 0) { $0 += 1 }
    waitUntil { Defaults.int("parent") == 3 }
    printLine("child \(Defaults.int("parent")) \(Defaults.int("count"))")
    exit(0)
  }
  waitUntil { Defaults.int("count") == 1 }
  Defaults.set(3, forKey: "parent")
  let status = wait(for: child)
  printLine("parent \(Defaults.int("child")) \(Defaults.int("count")) \(status)")
}

/// A handler in a forked child reads the settings that the report is about.
private func forkAndReport(_ key: String) {
  waitForOtherThreads()
  let child = fork()
  if child == 0 {
    alarm(300)
    StorageSystem.onFailure = { _ in
      printLine("report \(Defaults.int(key))")
      reportCount.add(1, ordering: .relaxed)
    }
    printLine("child \(Defaults.int(key))")
    waitUntil { reportCount.load(ordering: .relaxed) > 0 }
    exit(0)
  }
  printLine("parent \(wait(for: child))")
}

/// Closes all descriptors, and follows the changes of another process.
private func followAfterTakeOver() {
  for number in 0...5 {
    waitUntil { Defaults.int("n") == number }
    if number == 0 { closeDescriptors() }
    printLine("\(number)")
  }
}

private func rotateKeys() -> Bool {
  do {
    try SecureVault.shared.rotateKeys()
    return true
  } catch {
    printLine("\(error)")
    return false
  }
}

/// The keys are wiped in the child, which opens the vault again.
private func forkSecrets() {
  SecureVault.set("1", forKey: "parent")
  printLine("parent \(SecureVault.get("parent") ?? "none")")
  waitForOtherThreads()
  let child = fork()
  if child == 0 {
    alarm(300)
    printLine("child \(SecureVault.get("parent") ?? "none")")
    SecureVault.set("2", forKey: "child")
    exit(rotateKeys() ? 0 : 1)
  }
  let status = wait(for: child)
  waitUntil { SecureVault.get("child") != nil }
  printLine("parent \(SecureVault.get("child") ?? "none") \(status)")
}

/// Makes changes while the server is away, and prints by how many kilobytes the memory of the
/// process has grown.
private func failWrites(count: Int) throws {
  let store = Defaults.suite(.standard)
  // The time limit may be short for a busy machine.
  waitUntil { (try? store.set(1, forKey: "a")) != nil }
  // It then knows the settings, so that it notices if the server loses them.
  waitUntil { Defaults.int("a") == 1 }
  printLine("ready")
  waitUntil { (try? store.set(1, forKey: "a")) == nil }
  func fail(_ count: Int) {
    var failures = 0
    while failures < count {
      if (try? store.set("some text \(failures)", forKey: "b\(failures)")) == nil { failures += 1 }
    }
  }
  // What is allocated once.
  fail(count / 5)
  let before = peakMemory()
  fail(count)
  printLine("grown \(peakMemory() - before)")
  waitUntil {
    if Defaults.int("a") != 1 || (try? store.set(2, forKey: "a")) != nil { return true }
    // A server that was restarted has nothing.
    try? backing?.push()
    return false
  }
  printLine("end")
}

/// The most memory that the process has had, in kilobytes.
private func peakMemory() -> Int {
  var usage = rusage()
  #if canImport(Glibc)
  getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
  #else
  getrusage(RUSAGE_SELF, &usage)
  #endif
  #if canImport(Darwin)
  return usage.ru_maxrss / 1_024
  #else
  return usage.ru_maxrss
  #endif
}
