import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Says what is wrong with an app's files and what to do, and leaves them as they are: to open a damaged
/// suite mends it, and to read a cache makes its entries last longer, so both are looked at as copies.
struct Doctor {
  struct Finding: Encodable {
    var path: String
    var problem: String
    var remedy: String
  }

  private struct Report: Encodable {
    var app: String
    var suites = 0
    var secrets = 0
    var entries = 0
    /// What could not be looked at.
    var skipped: [String] = []
    var findings: [Finding] = []
  }

  private var report: Report
  /// The folders that the app has, by what is in them.
  private var settings: Folder?
  private var vault: Folder?
  private var caches: Folder?

  static func examine(_ arguments: Arguments) async throws -> Int32 {
    guard arguments.place == nil else {
      throw Failure.usage("doctor looks at all of an app: name the app alone.")
    }
    guard let least = Int(arguments.options["--free"] ?? "100000000") else {
      throw Failure.usage("--free takes a number of bytes, such as --free=100000000.")
    }
    try arguments.enterApp()
    let work = Task { try await examine(arguments, least: least) }
    // Control-C ends it as it does any program, but after the copies are gone.
    signal(SIGINT, SIG_IGN)
    let interrupt = DispatchSource.makeSignalSource(signal: SIGINT, queue: .global())
    interrupt.setEventHandler { work.cancel() }
    interrupt.activate()
    defer { interrupt.cancel() }
    do {
      return try await work.value
    } catch is CancellationError {
      return 128 + SIGINT
    }
  }

  private static func examine(_ arguments: Arguments, least: Int) async throws -> Int32 {
    var doctor = try Doctor(arguments.app)
    try await doctor.lookAtSettings()
    try doctor.lookAtSecrets()
    try await doctor.lookAtCaches()
    try doctor.lookAtSpace(least: least)
    Progress.clear()
    try doctor.show(asJSON: arguments.has("json"))
    return doctor.report.findings.isEmpty ? 0 : 1
  }

  private init(_ app: String) throws {
    report = Report(app: app)
    func folder(_ url: URL?) throws -> Folder? {
      guard let url, access(url.path(percentEncoded: false), F_OK) == 0 else { return nil }
      return Folder(url)
    }
    settings = try folder(try Defaults.shared.fileURL?.deletingLastPathComponent())
    vault = try folder(try SecureVault.shared.folderURL)
    caches = try folder(try DiskCache.shared.folderURL?.deletingLastPathComponent())
    if settings == nil, vault == nil, caches == nil { throw Failure.nothing(of: app) }
  }

  private mutating func note(_ path: String, _ problem: String, _ remedy: String) {
    report.findings.append(Finding(path: path, problem: problem, remedy: remedy))
  }

  private mutating func note(_ error: StorageError, at path: String? = nil) {
    let place = path ?? error.path ?? ""
    note(error.key.map { "\(place), key \($0)" } ?? place, error.failureReason ?? "", error.remedy)
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
        // A copy was mended; what it says of itself is not true of the file.
        let remedy =
          error.code == .damaged && count != nil
          ? "Put a backup back, or go on: whoever opens it next keeps a copy of it and all intact values."
          : error.remedy
        note(file.path(percentEncoded: false), error.failureReason ?? "", remedy)
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
    do {
      if try store.protection == .passphrase, try store.isLocked {
        guard isatty(STDIN_FILENO) == 1 else {
          report.skipped.append("the secrets, which are under a passphrase")
          return
        }
        try Vault.unlock(store, of: report.app)
      }
      let (services, errors) = Reports.collecting { SecureVault.services() }
      for error in errors { note(error) }
      for service in services { try lookAtSecrets(of: SecureVault.service(service)) }
    } catch let error as StorageError {
      note(error)
    }
  }

  private mutating func lookAtSecrets(of service: SecureVault.Store) throws {
    let (keys, errors) = try Reports.collecting { try service.keys() }
    let known = Set(report.findings.map(\.path))
    for error in errors where error.path.map(known.contains) != true { note(error) }
    var progress = Progress("Opening secrets of \(service.service)", of: keys.count)
    for key in keys {
      progress.step()
      try Task.checkCancellation()
      do throws(StorageError) {
        report.secrets += 1
        if try service.entry(key)?.access == .userPresence { continue }
        try service.withSecret(key) { _ in }
      } catch {
        note(error)
      }
    }
  }

  // MARK: Caches

  private mutating func lookAtCaches() async throws {
    guard let caches else { return }
    try noteLeftovers(try caches.list(includingHidden: true), in: caches)
    for name in try Reports.strictly({ DiskCache.caches() }) {
      guard let url = try DiskCache.named(name).folderURL else { continue }
      let folder = Folder(url)
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
        for error in result.errors { note(error, at: place) }
        if result.damaged > 0 {
          note(
            place, "\(Output.count(result.damaged, "entry is", "entries are")) damaged",
            "Nothing has to be done: the app finds none there and makes it again.")
        }
      }
    }
  }

  private struct CacheResult {
    var entries = 0
    var damaged = 0
    var errors: [StorageError] = []
  }

  /// Reads all entries of one of a cache's subfolders, so that no more than that is copied at a time.
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
    for folder in [settings, vault, caches].compactMap({ $0 }) {
      let free = try folder.freeSpace
      guard free < least else { continue }
      note(
        try path("", in: folder), "only \(ByteCount(free)) are free",
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

  /// What killed programs left; a young file may be a living one's, and a sweep takes a day to come.
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
      let lines = ["\(finding.path): \(finding.problem)", finding.remedy].map(Output.visible)
      print(Output.red("wrong") + "  \(lines[0])\n       \(lines[1])")
    }
    for part in report.skipped { Output.note("\(part), were not looked at.") }
    let counts = [
      Output.count(report.suites, "suite"), Output.count(report.secrets, "secret"),
      Output.count(report.entries, "cache entry", "cache entries"),
    ].joined(separator: ", ")
    let verdict =
      report.findings.isEmpty ? "nothing is wrong" : Output.count(report.findings.count, "problem")
    print("\(Output.visible(report.app)): \(verdict). Looked at \(counts).")
  }
}
