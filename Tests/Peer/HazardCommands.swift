// Commands of a process that reaches its limits, or is forked.
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc
import Synchronization

/// The stores by their names in requests.
private struct NamedStores {
  let cache: DiskCache.Store
  let files: Folder

  init(_ directory: URL) {
    cache = DiskCache.named(DiskCache.Name("x", in: directory))
    files = Folder(directory.appending(path: "own"))
  }

  static let names = ["settings", "engine", "secrets", "cache", "file"]

  func set(_ value: String, _ key: String, _ name: String) throws {
    switch name {
    case "settings": try Defaults.shared.set(value, forKey: key)
    case "engine": try Defaults.suite("files").set(value, forKey: key)
    case "secrets": try SecureVault.shared.set(value, forKey: key)
    case "cache": try cache.set(value, forKey: key)
    default: try files.save(value, as: key)
    }
  }

  func get(_ key: String, _ name: String) throws -> String? {
    switch name {
    case "settings": try Defaults.shared.string(key)
    case "engine": try Defaults.suite("files").string(key)
    case "secrets": try SecureVault.shared.get(key)
    case "cache": try cache.model(key)
    default: try files.load(key)
    }
  }

  /// Answers one request: set STORE KEY VALUE, fill STORE KEY COUNT, or get STORE KEY.
  func answer(_ words: [String]) -> String {
    do {
      switch words[0] {
      case "set": try set(words[3], words[2], words[1])
      case "fill":
        try set(String(repeating: "x", count: Int(words[3]) ?? 0), words[2], words[1])
      case "get": return try get(words[2], words[1]) ?? "nil"
      default: return "unknown \(words[0])"
      }
      return "ok"
    } catch {
      return "error \(error)"
    }
  }
}

/// Sets a value in each of many suites or caches, and then reads them all.
private func useMany(_ kind: String, _ count: Int, in directory: URL) -> String {
  do {
    for isReading in [false, true] {
      for number in 0..<count {
        let value = "value \(number)"
        var found: String?
        if kind == "caches" {
          // Opening a cache lists the directory in which it lies.
          let parent = directory.appending(path: "caches\(number / 100)")
          try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
          let cache = DiskCache.named(DiskCache.Name("cache\(number)", in: parent))
          if !isReading { try cache.set(value, forKey: "k") }
          found = try cache.model("k")
        } else {
          let suite = Defaults.suite(Defaults.Suite("suite\(number)", in: directory))
          if !isReading { try suite.set(value, forKey: "k") }
          found = try suite.get("k")
        }
        if found != value { return "number \(number) has \(found ?? "nothing")" }
      }
    }
    return "ok"
  } catch {
    return "error \(error)"
  }
}

func setLimit(_ kind: __rlimit_resource, _ number: Int) -> Bool {
  var limit = rlimit()
  getrlimit(__rlimit_resource_t(kind.rawValue), &limit)
  limit.rlim_cur = rlim_t(number)
  return setrlimit(__rlimit_resource_t(kind.rawValue), &limit) == 0
}

private func takeDescriptors(leaving count: Int) -> [Int32] {
  _ = setLimit(RLIMIT_NOFILE, 100)
  var taken: [Int32] = []
  while true {
    let descriptor = dup(STDIN_FILENO)
    if descriptor < 0 { break }
    taken.append(descriptor)
  }
  for descriptor in taken.suffix(count) { close(descriptor) }
  return taken.dropLast(count)
}

/// What a program opens after it has closed all descriptors, also those of its libraries.
private struct OwnDescriptors {
  private var files: [(descriptor: Int32, path: String)] = []
  private var directories: [(descriptor: Int32, path: String)] = []
  private var pipes: [(reader: Int32, writer: Int32)] = []
  private var watchers: [Int32] = []
  private var lastWatch: Int32 = 0
  private var statuses: [stat] = []

  private var all: [Int32] {
    files.map(\.descriptor) + directories.map(\.descriptor)
      + pipes.flatMap { [$0.reader, $0.writer] }
  }

  mutating func takeOver(in directory: URL, count: Int) -> String {
    for descriptor in 3..<Int32(1_024) { close(descriptor) }
    // Mixed, so that each number of the library becomes one of each kind in some run.
    for number in 0..<count {
      let path = directory.appending(path: "own-\(number)").path
      switch number % 4 {
      case 0:
        let file = open(path, O_RDWR | O_CREAT, 0o600)
        guard file >= 0, write(file, path, path.utf8.count) == path.utf8.count,
          flock(file, LOCK_EX | LOCK_NB) == 0
        else { return "errno \(errno)" }
        files.append((file, path))
      case 1:
        guard mkdir(path, 0o700) == 0 else { return "errno \(errno)" }
        directories.append((open(path, O_RDONLY | O_DIRECTORY), path))
      case 2: watchers.append(inotify_init1(Int32(IN_NONBLOCK)))
      default:
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0, write(ends[1], "x", 1) == 1 else { return "errno \(errno)" }
        pipes.append((ends[0], ends[1]))
      }
    }
    statuses = all.map(Self.status)
    return "ok"
  }

  private static func status(_ descriptor: Int32) -> stat {
    var status = stat()
    fstat(descriptor, &status)
    return status
  }

  mutating func difference() -> String {
    for (descriptor, before) in zip(all, statuses) {
      let after = Self.status(descriptor)
      guard after.st_ino == before.st_ino, after.st_size == before.st_size else {
        return "descriptor \(descriptor) is another file, or was written to"
      }
    }
    for (_, path) in files {
      let other = open(path, O_RDWR)
      defer { close(other) }
      if flock(other, LOCK_EX | LOCK_NB) == 0 { return "\(path) has lost its lock" }
      var text = [UInt8](repeating: 0, count: path.utf8.count + 1)
      guard read(other, &text, text.count) == path.utf8.count, text.starts(with: path.utf8) else {
        return "\(path) was written to"
      }
    }
    for (_, path) in directories {
      if let names = try? FileManager.default.contentsOfDirectory(atPath: path), names.isEmpty {
        continue
      }
      return "\(path) is not empty"
    }
    lastWatch += 1
    for watcher in watchers {
      let watch = inotify_add_watch(watcher, "/", UInt32(IN_CREATE))
      guard watch == lastWatch, inotify_rm_watch(watcher, watch) == 0 else {
        return "something else is watched too, or the descriptor is no inotify descriptor"
      }
    }
    for (reader, writer) in pipes {
      var text: [UInt8] = [0, 0]
      guard read(reader, &text, 2) == 1, text[0] == UInt8(ascii: "x"), write(writer, "x", 1) == 1
      else { return "a pipe was read or written" }
    }
    return "ok"
  }
}

/// Answers requests if the command is "hazards"; false otherwise.
func runHazardCommand(_ words: [String], in folder: URL) -> Bool {
  guard words[0] == "hazards" else { return false }
  let stores = NamedStores(directory)
  StorageSystem.onFailure = { printLine("report \($0)") }
  // The parent process may have blocked it.
  var signals = sigset_t()
  sigemptyset(&signals)
  sigaddset(&signals, SIGXFSZ)
  sigprocmask(SIG_UNBLOCK, &signals, nil)
  var taken: [Int32] = []
  var own = OwnDescriptors()
  var watching: [Defaults.Changes<String>.Iterator] = []
  while let line = readLine() {
    let words = line.split(separator: " ").map(String.init)
    let number = Int(words.last ?? "") ?? 0
    var answer = "ok"
    switch words[0] {
    case "limit":  // KIND NUMBER
      let kinds = ["files": RLIMIT_NOFILE, "memory": __RLIMIT_MEMLOCK, "size": RLIMIT_FSIZE]
      guard let kind = kinds[words[1]] else { exit(64) }
      // SIGXFSZ would write a core dump.
      if words[1] == "size" { _ = setLimit(RLIMIT_CORE, 0) }
      if !setLimit(kind, number) { answer = "errno \(errno)" }
    case "leave":  // COUNT: leaves that many descriptors free
      taken = takeDescriptors(leaving: number)
    case "give-back":
      for descriptor in taken { close(descriptor) }
      taken = []
    case "many":  // KIND COUNT: uses that many stores, twice
      answer = useMany(words[1], number, in: directory)
    case "watch":  // KEY
      watching.append(Defaults.shared.changes(words[1], default: "").makeAsyncIterator())
    case "ignore-size":
      signal(SIGXFSZ, SIG_IGN)
    case "umask":  // MODE in decimal digits
      umask(mode_t(number))
    case "become":  // USER
      if setgid(gid_t(number)) != 0 || setuid(uid_t(number)) != 0 { answer = "errno \(errno)" }
    case "follow":  // KEY: prints each value that is set from now on
      let changes = Defaults.shared.changes(words[1], default: "")
      Task.detached {
        var changes = changes.makeAsyncIterator()
        while let value = await changes.next() { printLine("changed \(value)") }
      }
    case "take-over":  // KIND COUNT: closes all descriptors, as a daemon does, and opens others
      if words[1] == "fork" {
        let child = forkedChild()
        if child > 0 { exit(waitForExit(of: child) == 0 ? 0 : 1) }
      }
      answer = own.takeOver(in: directory, count: number)
    case "own":  // whether the descriptors of the program are as it left them
      answer = own.difference()
    case "fork":  // COUNT: a child and its parent write with the stores that the parent opened
      answer = writeForked(stores, number)
    default: answer = stores.answer(words)
    }
    printLine(answer)
  }
  return true
}

/// How often ``BlockingWork`` has run.
private let workCount = Atomic(0)

private func writeForked(_ stores: NamedStores, _ count: Int) -> String {
  // Makes a thread that the child does not have.
  let hasRun = DispatchSemaphore(value: 0)
  BlockingWork.start {
    workCount.add(1, ordering: .relaxed)
    hasRun.signal()
  }
  hasRun.wait()
  let child = forkedChild()
  let writer = child == 0 ? "child" : "parent"
  var failure = "ok"
  if child == 0 {
    BlockingWork.start { workCount.add(1, ordering: .relaxed) }
    if workCount.load(ordering: .relaxed) != 2 { failure = "the child left work to no thread" }
  }
  do {
    for index in 0..<count {
      try Defaults.shared.update("count", default: 0) { $0 += 1 }
      try Defaults.suite("files").update("count", default: 0) { $0 += 1 }
      for name in NamedStores.names {
        try stores.set("\(writer)\(index)", "\(writer)\(index % 10)", name)
      }
    }
  } catch {
    failure = "error \(error)"
  }
  if child == 0 {
    if failure != "ok" { printLine(failure) }
    _exit(failure == "ok" ? 0 : 1)
  }
  let status = waitForExit(of: child)
  return status == 0 ? failure : "the child ended with \(status)"
}
