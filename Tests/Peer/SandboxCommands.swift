// Calls of a process that may not rename or link files across directories.
import FoundationEssentials
import Keepsake
import KeepsakeLibc

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

/// Makes calls on all stores, each of which goes on from those before it, and prints what fails.
private func printFailingCalls(_ directory: URL) {
  mkdir(directory.path + "/from", 0o700)
  mkdir(directory.path + "/to", 0o700)
  let isRefused = rename(directory.path + "/from", directory.path + "/to/x") != 0
  printLine(isRefused && errno == EXDEV ? "confined" : "not confined")
  StorageSystem.onFailure = { printLine("report \($0)") }

  func attempt<Store: StoreUnderTest>(_ store: Store, _ calls: [Store.Call]) {
    for call in calls {
      let answer = store.answer(call)
      if answer.hasPrefix("error") { printLine("\(call): \(answer)") }
    }
  }
  func expect(_ name: String, _ value: Sample?, in store: some StoreUnderTest) {
    printingErrors {
      let found = try store.value(named: name)
      if found != value?.summary { printLine("\(name) is \(found ?? "nothing") in \(store)") }
    }
  }
  let backup = directory.appending(path: "backup")
  var secrets = VaultUnderTest(in: directory)
  secrets.keySource = { .passphrase($0, logN: 10) }
  attempt(
    secrets,
    [
      .set(0, in: 0, .text(8)), .set(0, in: 0, .text(9)), .set(1, in: 1, .bytes(100_000)),
      .add(2, in: 0, .text(10)), .rotateKeys, .addRecovery, .protectWithPassphrase(0),
      .protectWithKeyFile, .forgetOldKeys, .backUp, .set(0, in: 0, .text(11)), .restore,
    ])
  expect("0/0", .text(9), in: secrets)
  expect("0/2", .text(10), in: secrets)
  attempt(secrets, [.remove(2, in: 0), .set(0, in: 0, .text(12)), .removeAll(in: 1), .eraseVault])

  func settings(_ suite: Defaults.Suite) -> SettingsUnderTest {
    SettingsUnderTest(
      store: Defaults.suite(suite), backup: backup.appendingPathExtension("jsonl"))
  }
  let standard = settings(.standard)
  attempt(standard, (0..<2_000).map { .set(0, .int($0)) })
  attempt(standard, [.synchronize, .backUp, .removeAll, .restore])
  expect("0", .int(1_999), in: standard)
  attempt(settings("files"), [.set(0, .int(1))])
  let compacted = directory.appending(path: "compacted.jsonl")
  attempt(
    settings(Defaults.Suite("compacted", in: directory)),
    (0..<4).map { _ in .set(0, .text(50_000)) })
  if !eventually({ (try? Data(contentsOf: compacted).count) ?? .max < 150_000 }) {
    printLine("not compacted")
  }

  let incoming = directory.appending(path: "incoming")
  let cache = CacheUnderTest(
    store: DiskCache.named(DiskCache.Name("x", in: directory)), incoming: incoming)
  attempt(cache, [.set(0, .text(8), .day, durable: false), .setTagged(0, .text(9), durable: true)])
  expect("0", .text(9), in: cache)
  attempt(
    cache,
    [
      .remove(0), .set(0, .text(10), .endless, durable: false),
      .setFile(1, 100_000, durable: false), .setFile(1, 3_000_000, durable: false),
    ])
  expect("1", .bytes(3_000_000), in: cache)
  cache.store.sizeLimit = 40_000
  attempt(cache, (0..<16).map { .set($0, .bytes(100), .endless, durable: false) })
  if !eventually({ (try? cache.store.totalSize) ?? .max <= 40_000 }) { printLine("not evicted") }
  attempt(cache, [.removeExpired, .removeAll])
  expect("0", nil, in: cache)

  let files = FilesUnderTest(
    directory: Folder(directory.appending(path: "own")), incoming: incoming)
  attempt(
    files,
    [
      .save("a/a", .bytes(8)), .save("a/a", .bytes(9)), .copy("a/a", to: "b/a"),
      .copy("a", to: "c"), .move("a/a", to: "d/a"), .move("d", to: "e/d"),
      .adopt(3_000_000, as: "g/source"), .saveChunks("h/chunks", 40), .delete("b"),
    ])
  printingErrors { try files.directory.adopt(files.directory.url("e/d/a"), as: "f/a") }
  expect("f/a", .bytes(9), in: files)
  attempt(files, [.clear])

  // Last, because a write waits until a file that has just been made is settled.
  let damaged = settings(Defaults.Suite("damaged", in: directory)).store
  printingErrors {
    try damaged.set(3, forKey: "c")
    if try damaged.int("b") != 2 { printLine("damaged: another value") }
  }
  // A file that cannot be replaced is filled.
  attempt(
    settings(Defaults.Suite("alone", in: directory)),
    [.set(0, .int(1)), .removeAll, .set(1, .int(2))])
  printLine("done")
}
