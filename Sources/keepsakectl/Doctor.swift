import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc
import Synchronization

/// Finds problems in an app's files without changing the files.
///
/// Opening a damaged suite repairs it, and reading a cache entry can extend its life, so the doctor
/// reads copies of both.
struct Doctor: Sendable {
  struct Report: Encodable, Sendable {
    var app: String
    var suites = 0
    var secrets = 0
    var entries = 0
    /// What could not be checked.
    var skipped: [String] = []
    var findings: [Problem] = []
  }

  var report: Report
  /// The directories that exist.
  private(set) var settings: Folder?
  private(set) var vault: Folder?
  private(set) var caches: Folder?

  static func run(_ arguments: Arguments) async throws {
    guard let minimum = Int(arguments.options["--free"] ?? "100000000"), minimum >= 0 else {
      throw Failure.usage("--free takes a number of bytes, such as --free=100000000.")
    }
    if arguments.hasOption("server") { return try ServerDoctor.run(arguments) }
    if arguments.words.isEmpty { return try AllApps.examine(arguments) }
    try arguments.bootstrapApp()
    var doctor = try Doctor(arguments.app)
    try doctor.unlock(arguments)
    let (isPrepared, preparation) = AsyncStream<Void>.makeStream()
    let examination = Task { [doctor] in
      // Before the first copy, or a signal would end the program at once.
      for await _ in isPrepared {}
      return try await doctor.examined(minimumFreeSpace: minimum)
    }
    // These signals end the program once the copies have been removed. On a queue of their own: on
    // one processor, the examination takes the only thread of the global ones.
    let signalQueue = DispatchQueue(label: "signals")
    let signalSources = endingSignals.map { number in
      signal(number, SIG_IGN)
      let source = DispatchSource.makeSignalSource(signal: number, queue: signalQueue)
      source.setEventHandler {
        receivedSignal.store(number, ordering: .relaxed)
        examination.cancel()
      }
      source.activate()
      return source
    }
    defer { for source in signalSources { source.cancel() } }
    preparation.finish()
    do {
      doctor = try await examination.value
    } catch {
      let number = receivedSignal.load(ordering: .relaxed)
      if number == 0 { throw error }
      Diagnostics.status = 128 + number
      return
    }
    // Nothing is left to remove, and the reader of the report may never read it.
    for number in endingSignals { signal(number, SIG_DFL) }
    try doctor.show(asJSON: arguments.hasOption("json"))
    Diagnostics.status = doctor.report.findings.isEmpty ? 0 : 1
  }

  /// Control-C, SIGTERM and the end of the terminal, unless the program was started to ignore them,
  /// as by nohup.
  static let endingSignals = [SIGHUP, SIGINT, SIGTERM].filter { number in
    let action = signal(number, SIG_IGN)
    signal(number, action)
    return unsafeBitCast(action, to: Int.self) != unsafeBitCast(SIG_IGN, to: Int.self)
  }
  static let receivedSignal = Atomic<Int32>(0)

  private init(_ app: String) throws {
    report = Report(app: app)
    func existing(_ url: URL?) -> Folder? {
      guard let url else { return nil }
      // A file where the directory belongs also counts: it is a problem to report.
      let exists = access(url.path(percentEncoded: false), F_OK) == 0 || errno != ENOENT
      return exists ? Folder(url) : nil
    }
    settings = existing(try Defaults.shared.fileURL?.deletingLastPathComponent())
    vault = existing(try SecureVault.shared.folderURL)
    caches = existing(try DiskCache.shared.folderURL?.deletingLastPathComponent())
    if settings == nil, vault == nil, caches == nil {
      throw Failure.nothingStored(by: app, "no settings, secrets or caches")
    }
  }

  /// Asks for a passphrase before there are copies to remove. Other problems with the vault are
  /// found later.
  private mutating func unlock(_ arguments: Arguments) throws {
    let store = SecureVault.shared
    guard (try? store.protection) == .passphrase,
      arguments.hasOption(Prompt.option) || isatty(STDIN_FILENO) == 1
    else { return }
    do {
      try VaultCommands.unlock(store, of: report.app, Prompt(arguments))
    } catch let error as StorageError where [.damaged, .unsupportedVersion].contains(error.code) {
      // Only the right passphrase shows that.
      try note(error)
    }
  }

  private func examined(minimumFreeSpace: Int) async throws -> Doctor {
    var doctor = self
    try await doctor.noteErrors { try await $0.examineSettings() }
    try await doctor.noteErrors { try $0.examineSecrets() }
    try await doctor.noteErrors { try await $0.examineCaches() }
    try await doctor.noteErrors { try $0.examineFreeSpace(minimum: minimumFreeSpace) }
    return doctor
  }

  /// Turns an error of one part of the examination into a finding, so that the next part follows.
  mutating func noteErrors(_ body: (inout Doctor) async throws -> Void) async throws {
    do {
      try await body(&self)
    } catch let error as StorageError {
      try note(error)
    }
  }

  mutating func note(_ path: String, _ problem: String, _ remedy: String) {
    report.findings.append(Problem(path, problem, remedy))
  }

  /// - Throws: A ``Failure`` if the disk is too full for copies, which is no problem of the app's
  ///   files.
  mutating func note(_ error: StorageError, at path: String? = nil) throws {
    if error.code == .diskFull { throw Failure(error) }
    report.findings.append(Problem(error, at: path))
  }

  private func show(asJSON: Bool) throws {
    if asJSON { return try Output.show(json: report) }
    let counts = [
      Output.count(report.suites, "suite"), Output.count(report.secrets, "secret"),
      Output.count(report.entries, "cache entry", "cache entries"),
    ].joined(separator: ", ")
    try Self.show(
      report.findings, skipped: report.skipped, of: report.app, summary: "Checked \(counts).")
  }

  /// Prints findings, and in the last line how many there are.
  static func show(
    _ findings: [Problem], skipped: [String], of subject: String, summary: String
  ) throws {
    for finding in findings {
      try Output.write("\(Output.red("problem"))  \(Output.escaped(finding.finding))")
      try Output.write("         \(Output.escaped(finding.remedy))")
    }
    for part in skipped { try Output.write("skipped  \(Output.escaped(part))") }
    let verdict = findings.isEmpty ? "no problems" : Output.count(findings.count, "problem")
    try Output.write(Output.escaped("\(subject): \(verdict). \(summary)"))
  }
}
