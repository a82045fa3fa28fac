import Dispatch
import FoundationEssentials
import Keepsake
import Synchronization

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Says what is wrong with an app's files and what to do, and leaves them as they are: to open a
/// damaged suite mends it, and to read a cache makes its entries last longer, so both are looked at
/// as copies.
struct Doctor: Sendable {
  private struct Report: Encodable, Sendable {
    var app: String
    var suites = 0
    var secrets = 0
    var entries = 0
    /// What could not be looked at.
    var skipped: [String] = []
    var findings: [Problem] = []
  }

  private var report: Report
  /// The folders that the app has, by what is in them.
  private var settings: Folder?
  private var vault: Folder?
  private var caches: Folder?

  static func examine(_ arguments: Arguments) async throws -> Int32 {
    guard let least = Int(arguments.options["--free"] ?? "100000000"), least >= 0 else {
      throw Failure.usage("--free takes a number of bytes, such as --free=100000000.")
    }
    try arguments.enterApp()
    let doctor = try Doctor(arguments.app)
    try doctor.unlock()
    let work = Task { try await doctor.examined(least: least) }
    // Control-C ends it as it does any program, but after the copies are gone.
    let sources = [SIGINT, SIGTERM].map { number in
      signal(number, SIG_IGN)
      let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
      source.setEventHandler {
        received.store(number, ordering: .relaxed)
        work.cancel()
      }
      source.activate()
      return source
    }
    defer { for source in sources { source.cancel() } }
    do {
      let doctor = try await work.value
      try doctor.show(asJSON: arguments.has("json"))
      return doctor.report.findings.isEmpty ? 0 : 1
    } catch {
      let number = received.load(ordering: .relaxed)
      if number == 0 { throw error }
      return 128 + number
    }
  }

  private static let received = Atomic<Int32>(0)

  /// Asks before there are any copies. What is wrong with the vault is found later.
  private func unlock() throws {
    let store = SecureVault.shared
    guard (try? store.protection) == .passphrase, isatty(STDIN_FILENO) == 1 else { return }
    try Vault.unlock(store, of: report.app)
  }

  private func examined(least: Int) async throws -> Doctor {
    var doctor = self
    try await doctor.noting { try await $0.lookAtSettings() }
    try await doctor.noting { try $0.lookAtSecrets() }
    try await doctor.noting { try await $0.lookAtCaches() }
    try await doctor.noting { try $0.lookAtSpace(least: least) }
    return doctor
  }

  /// What cannot be looked at keeps nothing else from it.
  private mutating func noting(_ body: (inout Doctor) async throws -> Void) async throws {
    do {
      try await body(&self)
    } catch let error as StorageError {
      try note(error)
    }
  }

  private init(_ app: String) throws {
    report = Report(app: app)
    func folder(_ url: URL?) throws -> Folder? {
      guard let url else { return nil }
      // What is there and is no folder will be found to be wrong.
      let isThere = access(url.path(percentEncoded: false), F_OK) == 0 || errno != ENOENT
      return isThere ? Folder(url) : nil
    }
    settings = try folder(try Defaults.shared.fileURL?.deletingLastPathComponent())
    vault = try folder(try SecureVault.shared.folderURL)
    caches = try folder(try DiskCache.shared.folderURL?.deletingLastPathComponent())
    if settings == nil, vault == nil, caches == nil { throw Failure.nothing(of: app) }
  }

  private mutating func note(_ path: String, _ problem: String, _ remedy: String) {
    report.findings.append(Problem(path, problem, remedy))
  }

  private mutating func note(_ error: StorageError, at path: String? = nil) throws {
    // It writes nothing but copies: a full disk says nothing of what they are made of.
    if error.code == .diskFull { throw Failure(error) }
    report.findings.append(Problem(error, at: path))
  }

  // MARK: Settings

  private mutating func lookAtSettings() async throws {
    guard let settings else { return }
    // The app may have files of its own there.
    let names = try settings.list(includingHidden: true)
    try lookAtModes(of: settings, names.filter { $0.contains(".jsonl") || $0.hasSuffix(".lock") })
    for name in names where name.contains(".jsonl.damaged-") {
      note(
        try path(name, in: settings), "a damaged file was kept aside",
        "Take from it what is missed, then delete it.")
    }
    for suite in try Reports.strictly({ Defaults.suites() }) {
      try Task.checkCancellation()
      guard let file = try Defaults.suite(suite).fileURL else { continue }
      let (count, errors) = try await Self.openCopy(of: file, in: settings)
      report.suites += count == nil ? 0 : 1
      for error in errors {
        let path = file.path(percentEncoded: false)
        if error.code == .damaged, count != nil {
          // A copy was mended; what it says of itself is not true of the file.
          note(
            path, error.failureReason ?? "",
            "Put a backup back, or go on: whoever opens it next keeps a copy of it and all intact values."
          )
        } else {
          try note(error, at: path)
        }
      }
    }
  }

  /// How many keys a suite has, if it can be read, and what opening it reports.
  private static func openCopy(
    of file: URL, in folder: Folder
  ) async throws -> (Int?, [StorageError]) {
    try await StorageSystem.withTemporary {
      Reports.start()
      let (outcome, errors) = Reports.collecting { () -> Result<Int, StorageError> in
        do throws(StorageError) {
          try folder.copy(file.lastPathComponent, to: "copy.jsonl", in: .temporary)
          let copy = Defaults.suite(Defaults.Suite("copy", in: try Folder.temporary.url()))
          return .success(try copy.keys().count)
        } catch {
          return .failure(error)
        }
      }
      switch outcome {
      case .success(let count): return (count, errors)
      case .failure(let error): return (nil, errors + [error])
      }
    }
  }

  // MARK: Secrets

  private mutating func lookAtSecrets() throws {
    guard let vault else { return }
    try lookAtModes(of: vault, try vault.list(recursively: true, includingHidden: true))
    let store = SecureVault.shared
    if let protection = try store.protection, try store.isLocked {
      report.skipped.append("the secrets, which are under a \(protection)")
      return
    }
    let (services, errors) = Reports.collecting { SecureVault.services() }
    for error in errors { try note(error) }
    for service in services { try lookAtSecrets(of: SecureVault.service(service)) }
  }

  private mutating func lookAtSecrets(of service: SecureVault.Store) throws {
    let (keys, errors) = try Reports.collecting { try service.keys() }
    let known = Set(report.findings.map(\.path))
    for error in errors where error.path.map(known.contains) != true { try note(error) }
    try Progress.each("Opening secrets of \(service.service)", keys) { key in
      try Task.checkCancellation()
      report.secrets += 1
      do throws(StorageError) {
        if try service.entry(key)?.access == .userPresence { return }
        try service.withSecret(key) { _ in }
      } catch {
        try note(error)
      }
    }
  }

  // MARK: Caches

  private mutating func lookAtCaches() async throws {
    guard let caches else { return }
    try noteLeftovers(try caches.list(includingHidden: true), in: caches)
    for name in try Reports.strictly({ DiskCache.caches() }) {
      guard let url = try DiskCache.named(name).folderURL else { continue }
      try await noting { try await $0.lookAtCache(name, in: Folder(url)) }
    }
  }

  private mutating func lookAtCache(_ name: DiskCache.Name, in folder: Folder) async throws {
    defer { Progress.clear() }
    // What is in it is as safe as the folder itself, and may be a million files.
    try lookAtModes(of: folder, [])
    try noteLeftovers(try folder.list(recursively: true, includingHidden: true), in: folder)
    let subfolders = try folder.list().filter { $0.count == 3 && $0.hasSuffix("/") }
    var progress = Progress("Looking at cache \(name)", of: subfolders.count)
    for subfolder in subfolders.map({ String($0.dropLast()) }) {
      try Task.checkCancellation()
      progress.step()
      var result = try await Self.readCopy(of: subfolder, in: folder)
      // The copy may have come between a writer's two files.
      if result.damaged > 0 { result = try await Self.readCopy(of: subfolder, in: folder) }
      report.entries += result.entries
      let place = try path(subfolder, in: folder)
      for error in result.errors { try note(error, at: place) }
      if result.damaged > 0 {
        note(
          place, "\(Output.count(result.damaged, "entry is", "entries are")) damaged",
          "Nothing has to be done: the app finds none there and makes it again.")
      }
    }
  }

  private struct CacheResult {
    var entries = 0
    var damaged = 0
    var errors: [StorageError] = []
  }

  /// Reads all entries of one of a cache's subfolders, so that no more than that is copied at a
  /// time.
  private static func readCopy(of subfolder: String, in folder: Folder) async throws -> CacheResult
  {
    try await StorageSystem.withTemporary {
      var result = CacheResult()
      do throws(StorageError) {
        let copy = DiskCache.named(DiskCache.Name("copy", in: try Folder.temporary.create()))
        // Damage is counted where it could be removed.
        try copy.set(true, forKey: subfolder)
        try copy.remove(subfolder)
        try folder.copy(subfolder, to: "copy/" + subfolder, in: .temporary)
        try copyTimes(of: subfolder, in: folder)
        for key in try copy.keys() {
          do throws(StorageError) {
            if try copy.get(key) != nil { result.entries += 1 }
          } catch {
            result.errors.append(error)
          }
        }
        result.damaged = copy.statistics.damaged
      } catch  where error.code == .notFound && !isThere(subfolder, in: folder) {
        // The app has emptied its cache meanwhile.
      } catch {
        result.errors.append(error)
      }
      return result
    }
  }

  private static func isThere(_ name: String, in folder: Folder) -> Bool {
    (try? folder.exists(name)) ?? false
  }

  /// An entry's files are tied to each other by their times.
  private static func copyTimes(of subfolder: String, in folder: Folder) throws(StorageError) {
    for name in try Folder.temporary.list("copy/" + subfolder) {
      let original = try folder.url(subfolder + "/" + name).path(percentEncoded: false)
      let copy = try Folder.temporary.url("copy/\(subfolder)/\(name)").path(percentEncoded: false)
      guard let status = status(of: original) else { continue }
      utimensat(AT_FDCWD, copy, [status.st_atim, status.st_mtim], 0)
    }
  }

  // MARK: Space, modes and leftovers

  private mutating func lookAtSpace(least: Int) throws {
    var devices: Set<dev_t> = []
    for folder in [settings, vault, caches].compactMap({ $0 }) {
      let root = try path("", in: folder)
      let free = try folder.freeSpace
      guard free < least, let own = Self.status(of: root) else { continue }
      if !devices.insert(own.st_dev).inserted { continue }
      note(
        root, "only \(ByteCount(free)) are free",
        "Free some space, or what is set there will fail.")
    }
  }

  /// Whether nobody else can open what is in a folder, or change the folder.
  private mutating func lookAtModes(of folder: Folder, _ names: [String]) throws {
    let root = try path("", in: folder)
    guard let own = Self.status(of: root) else { return }
    if own.st_mode & 0o022 != 0 {
      note(root, "other users can write to it", "Run: chmod go-w \(Self.quoted(root))")
    }
    if access(root, W_OK) != 0 {
      note(
        root, "it cannot be written: \(String(cString: strerror(errno)))",
        "Check its owner, its mode and the file system, or what is set there will fail.")
    }
    for name in names {
      let place = try path(name, in: folder)
      guard let status = Self.status(of: place) else { continue }
      if status.st_uid != own.st_uid {
        let command = "chown --reference=\(Self.quoted(root)) \(Self.quoted(place))"
        note(place, "it belongs to another user than its folder", "Run as root: \(command)")
      } else if status.st_mode & S_IFMT != S_IFLNK, status.st_mode & 0o077 != 0 {
        note(place, "other users can open it", "Run: chmod go= \(Self.quoted(place))")
      }
    }
    try noteLeftovers(names, in: folder)
  }

  /// What killed programs left; a young file may be a living one's, and a sweep takes a day to
  /// come.
  private mutating func noteLeftovers(_ names: [String], in folder: Folder) throws {
    for name in names where name.hasSuffix(".tmp") || name.hasSuffix(".trash/") {
      let place = try path(name, in: folder)
      guard let status = Self.status(of: place), time(nil) - status.st_mtim.tv_sec > 86_400
      else { continue }
      note(place, "a program that was killed left it", "Delete it: nobody reads it.")
    }
  }

  private static func status(of path: String) -> stat? {
    var status = stat()
    return lstat(path, &status) == 0 ? status : nil
  }

  private func path(_ name: String, in folder: Folder) throws -> String {
    let root = try folder.url().path(percentEncoded: false)
    let path = name.isEmpty ? root : root + "/" + name
    return path.hasSuffix("/") ? String(path.dropLast()) : path
  }

  private static func quoted(_ path: String) -> String {
    "'" + path.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
      + "'"
  }

  // MARK: The report

  private func show(asJSON: Bool) throws {
    if asJSON { return try Output.show(json: report) }
    for finding in report.findings {
      print("\(Output.red("wrong"))    \(Output.visible(finding.finding))")
      print("         \(Output.visible(finding.remedy))")
    }
    for part in report.skipped { print("skipped  \(Output.visible(part))") }
    let counts = [
      Output.count(report.suites, "suite"), Output.count(report.secrets, "secret"),
      Output.count(report.entries, "cache entry", "cache entries"),
    ].joined(separator: ", ")
    let verdict =
      report.findings.isEmpty ? "nothing is wrong" : Output.count(report.findings.count, "problem")
    print("\(Output.visible(report.app)): \(verdict). Looked at \(counts).")
  }
}
