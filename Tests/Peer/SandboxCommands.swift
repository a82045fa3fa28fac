// Calls of a process that may not rename or link files across directories.
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Confines this process with landlock(7) to renames within a directory: a ruleset without
/// LANDLOCK_ACCESS_FS_REFER forbids all others.
///
/// - Returns: 0, or the number of an error.
private func forbidRenamesAcrossDirectories() -> Int32 {
  // Swift does not see functions with variable arguments.
  typealias Function = @convention(c) (Int, UnsafeRawPointer?, Int, Int, Int) -> Int
  guard let syscall = dlsym(nil, "syscall").map({ unsafeBitCast($0, to: Function.self) }),
    let prctl = dlsym(nil, "prctl").map({ unsafeBitCast($0, to: Function.self) })
  else { return ENOSYS }
  // A ruleset has to forbid something else too: making a block device.
  var handled = UInt64(1 << 11)
  let rules = withUnsafeBytes(of: &handled) { syscall(444, $0.baseAddress, $0.count, 0, 0) }
  guard rules >= 0 else { return errno }
  defer { close(Int32(rules)) }
  _ = prctl(38, UnsafeRawPointer(bitPattern: 1), 0, 0, 0)  // PR_SET_NO_NEW_PRIVS
  return syscall(446, UnsafeRawPointer(bitPattern: rules), 0, 0, 0) == 0 ? 0 : errno
}

/// Waits until work in the background has had this effect; false after ten minutes.
private func eventually(_ condition: () -> Bool) -> Bool {
  let deadline = ContinuousClock.now + .seconds(600)
  while !condition() {
    if ContinuousClock.now > deadline { return false }
    usleep(2_000)
  }
  return true
}

/// The calls, by their names in failures. Each goes on from those before it.
private func confinedCalls(_ directory: URL) -> [(String, () throws -> Void)] {
  let (secrets, others) = (SecureVault.shared, SecureVault.service("other"))
  let settings = Defaults.shared
  let cache = DiskCache.named(DiskCache.Name("x", in: directory))
  let files = Folder(directory.appending(path: "own"))
  let source = directory.appending(path: "source")
  let (backup, keys) = (directory.path + "/backup", directory.path + "/backup.key")
  func require(_ isTrue: Bool, _ failure: String) throws {
    if !isTrue { throw Unexpected(text: failure) }
  }
  return [
    ("write a file", { try Data(count: 3_000_000).write(to: source) }),
    ("vault set", { try secrets.set("old", forKey: "a") }),
    ("vault replace", { try secrets.set("a", forKey: "a") }),
    ("vault set large", { try others.set(Data(count: 100_000), forKey: "large") }),
    ("vault add", { try require(secrets.add("b", forKey: "b"), "not added") }),
    ("vault remove", { try secrets.remove("b") }),
    ("vault rotateKeys", { try secrets.rotateKeys() }),
    ("vault addRecovery", { _ = try secrets.addRecovery() }),
    ("vault protect", { try secrets.protect(with: .passphrase("horse", logN: 10)) }),
    ("vault protect again", { try secrets.protect(with: .keyFile) }),
    ("vault forgetOldKeys", { try secrets.forgetOldKeys() }),
    ("vault get", { try require(secrets.get("a") == "a", "another value") }),
    ("vault back up", { try secrets.backUp(to: backup, keyFile: keys) }),
    ("vault set later", { try secrets.set("later", forKey: "a") }),
    ("vault restore", { _ = try secrets.prepareRestore(from: backup, keyFile: keys).commit() }),
    ("vault get restored", { try require(secrets.get("a") == "a", "another value") }),
    ("vault set restored", { try secrets.set("b", forKey: "a") }),
    ("vault removeAll", { try others.removeAll() }),
    ("vault eraseVault", { try secrets.eraseVault() }),
    ("settings set", { for index in 0..<2_000 { try settings.set(index, forKey: "k") } }),
    ("settings synchronize", { try settings.synchronize() }),
    ("settings back up", { try settings.backUp(to: backup + ".jsonl") }),
    ("settings removeAll", { try settings.removeAll() }),
    ("settings restore", { _ = try settings.prepareRestore(from: backup + ".jsonl").commit() }),
    ("settings get", { try require(settings.int("k") == 1_999, "another value") }),
    (
      "settings compaction",
      {
        let settings = Defaults.suite(Defaults.Suite("compacted", in: directory))
        let file = directory.appending(path: "compacted.jsonl")
        let text = String(repeating: "x", count: 50_000)
        for _ in 0..<4 { try settings.set(text, forKey: "k") }
        let isCompacted = eventually { (try? Data(contentsOf: file).count) ?? .max < 150_000 }
        try require(isCompacted, "not compacted")
      }
    ),
    ("engine set", { try Defaults.suite("files").set(1, forKey: "k") }),
    ("cache set", { try cache.set("a", forKey: "a", expiry: .days(1)) }),
    ("cache replace", { try cache.set("b", forKey: "a", tags: ["etag": "1"], durable: true) }),
    ("cache get", { try require(cache.model("a") == "b", "another value") }),
    ("cache remove", { try cache.remove("a") }),
    ("cache set again", { try cache.set("c", forKey: "a") }),
    ("cache set file", { try cache.set(contentsOf: source, forKey: "file") }),
    ("cache replace file", { try cache.set(contentsOf: source, forKey: "file") }),
    ("cache get file", { try require(cache.get("file")?.count == 3_000_000, "another value") }),
    (
      "cache eviction",
      {
        cache.sizeLimit = 40_000
        for index in 0..<20 { try cache.set(Data(count: 100), forKey: "\(index)") }
        let isEvicted = eventually { (try? cache.totalSize) ?? .max <= 40_000 }
        try require(isEvicted, "not evicted")
      }
    ),
    ("cache removeExpired", { _ = try cache.removeExpired() }),
    ("cache removeAll", { try cache.removeAll() }),
    ("cache get removed", { try require(cache.get("a") == nil, "still there") }),
    ("folder save", { try files.save("a", as: "a/a") }),
    ("folder replace", { try files.save("b", as: "a/a") }),
    ("folder copy", { try files.copy("a/a", to: "b/a") }),
    ("folder copy directory", { try files.copy("a", to: "c") }),
    ("folder move", { try files.move("a/a", to: "d/a") }),
    ("folder move directory", { try files.move("d", to: "e/d") }),
    ("folder adopt", { try files.adopt(files.url("e/d/a"), as: "f/a") }),
    ("folder adopt from outside", { try files.adopt(source, as: "g/source") }),
    (
      "folder save chunks",
      {
        try blocking {
          let chunks = AsyncStream { continuation in
            for byte in [1, 2] as [UInt8] { continuation.yield([byte]) }
            continuation.finish()
          }
          try await files.save(chunks: chunks, as: "h/chunks")
        }
      }
    ),
    ("folder load", { try require(files.load("f/a") == "b", "another value") }),
    ("folder delete", { try files.delete("b") }),
    ("folder clear", { try files.clear() }),
    // Last, because a write waits until a file that has just been made is settled.
    (
      "settings repair",
      {
        let damaged = Defaults.suite(Defaults.Suite("damaged", in: directory))
        try damaged.set(3, forKey: "c")
        try require(damaged.int("b") == 2, "another value")
      }
    ),
    (
      "settings fill",
      {
        let alone = Defaults.suite(Defaults.Suite("alone", in: directory))
        try alone.set(1, forKey: "a")
        try alone.removeAll()
        try alone.set(2, forKey: "b")
      }
    ),
  ]
}

private struct Unexpected: Error {
  let text: String
}

/// Runs a command of a confined process; false if it is another command.
func runSandboxCommand(_ words: [String], in directory: URL) -> Bool {
  guard ["confined", "confined-run"].contains(words[0]) else { return false }
  // Threads that start later are confined as well.
  let code = forbidRenamesAcrossDirectories()
  if code != 0 {
    printLine("unavailable \(code)")
  } else if words[0] == "confined" {
    printFailingCalls(directory)
  } else {  // PROGRAM [ARGUMENT …]: becomes another program
    var arguments: [UnsafeMutablePointer<CChar>?] = words.dropFirst().map { strdup($0) } + [nil]
    execv(words[1], &arguments)
    exit(1)
  }
  return true
}

private func printFailingCalls(_ directory: URL) {
  mkdir(directory.path + "/from", 0o700)
  mkdir(directory.path + "/to", 0o700)
  let isRefused = rename(directory.path + "/from", directory.path + "/to/x") != 0
  printLine(isRefused && errno == EXDEV ? "confined" : "not confined")
  StorageSystem.onFailure = { printLine("report \($0)") }
  for (name, call) in confinedCalls(directory) {
    do { try call() } catch { printLine("\(name): \(error)") }
  }
  printLine("done")
}
