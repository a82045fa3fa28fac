import Keepsake
import KeepsakeValkey

/// Finds problems of a server that keeps the settings and secrets of an app.
struct ServerDoctor {
  private struct Report: Encodable {
    var app: String
    var server: String
    /// The program and its version.
    @Nullable var version: String?
    @Nullable var replicas: Int?
    var suites = 0
    /// What could not be checked.
    var skipped: [String] = []
    var findings: [Problem] = []
  }

  private let facts: ServerFacts
  private var report: Report

  static func run(_ arguments: Arguments) throws {
    if arguments.words.isEmpty {
      throw Failure.usage("with --server, doctor needs the name of an app. Name one.")
    }
    if arguments.hasOption("free") {
      throw Failure.usage("--free is about files. Leave it out with --server.")
    }
    let server = try arguments.bootstrapServer(warns: false)
    var doctor = ServerDoctor(arguments.app, server.address, try server.serverFacts())
    doctor.examineVersionAndRole()
    doctor.examineMemory()
    doctor.examinePersistence()
    doctor.examineSubscriptions()
    doctor.examineAccess()
    doctor.examineClock()
    try doctor.examineContents(of: server)
    try doctor.show(asJSON: arguments.hasOption("json"))
    if !doctor.report.findings.isEmpty { Diagnostics.status = 1 }
  }

  private init(_ app: String, _ address: String, _ facts: ServerFacts) {
    self.facts = facts
    let name = facts.information["valkey_version"] == nil ? "Redis" : "Valkey"
    let version = facts.information["valkey_version"] ?? facts.information["redis_version"]
    report = Report(
      app: app, server: address, version: version.map { "\(name) \($0)" },
      replicas: facts.information["connected_slaves"].flatMap { Int($0) })
    if facts.information.isEmpty {
      report.skipped.append(
        "version, memory and persistence: the server does not allow INFO. Give the user +info.")
    }
    if facts.settings.isEmpty {
      report.skipped.append(
        "appendfsync and client-output-buffer-limit: the server does not allow CONFIG GET. Log in "
          + "as a user for the doctor who has +config|get. It shows the server's passwords, so the "
          + "app's user should not have it.")
    }
    if facts.clockDifference == nil {
      report.skipped.append("the clock: the server does not allow TIME. Give the user +time.")
    }
  }

  private mutating func note(_ problem: String, _ remedy: String) {
    report.findings.append(Problem(report.server, problem, remedy))
  }

  // MARK: The server

  private mutating func examineVersionAndRole() {
    let version = facts.information["redis_version"] ?? ""
    let parts = version.split(separator: ".").compactMap { Int($0) }
    if parts.count >= 2, (parts[0], parts[1]) < (6, 2) {
      note("its version \(version) is too old", "Use Valkey, or Redis 6.2 or newer.")
    }
    if facts.information["role"] == "slave" {
      note("it is a replica and refuses writes", "Use the address of the primary.")
    }
  }

  private mutating func examineMemory() {
    func bytes(_ field: String) -> Int { facts.information[field].flatMap { Int($0) } ?? 0 }
    let (limit, used) = (bytes("maxmemory"), bytes("used_memory"))
    let policy = facts.information["maxmemory_policy"] ?? ""
    guard limit > 0 else { return }
    if policy.hasPrefix("allkeys-") {
      note(
        "it deletes settings when its memory is full (maxmemory-policy \(policy)), so the library "
          + "refuses it", "Set maxmemory-policy to noeviction or volatile-lru.")
    }
    // With the other policies, a full memory is usual: the server deletes what expires.
    if ["noeviction", ""].contains(policy), Double(used) > 0.9 * Double(limit) {
      note(
        "it uses \(ByteCount(used)) of the \(ByteCount(limit)) that it may use (maxmemory)",
        "Raise maxmemory or remove values, or writes may fail.")
    }
  }

  private mutating func examinePersistence() {
    if facts.information["aof_enabled"] == "0" {
      note(
        "it does not log changes (appendonly no), so a restart loses some or all settings",
        "Set appendonly to yes.")
    } else if facts.settings["appendfsync"] == "no" {
      note(
        "it leaves the time of writing to the disk to the system (appendfsync no), so a power cut "
          + "may lose half a minute of changes", "Set appendfsync to everysec or always.")
    }
    for (field, action) in [
      ("aof_last_write_status", "write its log of changes"),
      ("aof_last_bgrewrite_status", "rewrite its log of changes"),
      ("rdb_last_bgsave_status", "save its data"),
    ] {
      if let status = facts.information[field], status != "ok" {
        note(
          "it could not \(action) the last time (\(field): \(status))",
          "See the log of the server and the space on its disk.")
      }
    }
  }

  /// Messages are smaller than this.
  private static let minimumBufferSize = 1 << 20

  private mutating func examineSubscriptions() {
    let words = (facts.settings["client-output-buffer-limit"] ?? "").split(separator: " ")
    guard let start = words.firstIndex(of: "pubsub"), words.count > start + 2 else { return }
    let limits = words[(start + 1)...(start + 2)].compactMap { Int($0) }.filter { $0 > 0 }
    if let limit = limits.min(), limit < Self.minimumBufferSize {
      note(
        "it disconnects processes that are \(ByteCount(limit)) of messages behind "
          + "(client-output-buffer-limit pubsub)",
        "Set client-output-buffer-limit to \"pubsub 32mb 8mb 60\".")
    }
  }

  // MARK: The way to the server

  private mutating func examineAccess() {
    if facts.isOnThisMachine { return }
    if !facts.isEncrypted {
      note(
        "the connection is not encrypted, so others may read settings and passwords on the network",
        "Set up TLS on the server, and begin the URL with valkeys://.")
    }
    if !facts.usesPassword {
      note(
        "it asks for no password, so anyone who reaches it can read and change settings",
        "Make a user with ACL SETUSER, and switch off the user default.")
    } else if facts.answersWithoutPassword {
      note(
        "it also answers without a password, with the rights of the user default",
        "Switch that user off with ACL SETUSER default off.")
    }
  }

  /// More than clocks differ that are kept right over the network.
  private static let maximumClockDifference = 2.0

  private mutating func examineClock() {
    guard let difference = facts.clockDifference,
      abs(difference) > Self.maximumClockDifference
    else { return }
    let seconds = Int(exactly: min(abs(difference), 1e15).rounded()) ?? 0
    note(
      "its clock is \(Output.count(seconds, "second")) \(difference > 0 ? "ahead of" : "behind") "
        + "this machine's", "Keep both clocks right with NTP.")
  }

  // MARK: Settings and secrets

  private mutating func examineContents(of server: ValkeyBacking) throws {
    do {
      if try server.hasVault(app: report.app) { examineDurabilityOfSecrets() }
      if try server.hasLostVault(app: report.app) {
        note(
          "it has lost the secrets that were last known on this machine",
          "Run `keepsakectl push \(report.app) --vault` with the same --server to store them "
            + "again, or `keepsakectl adopt \(report.app) --vault` to give them up.")
      }
      report.suites = try server.suites(app: report.app).count
      for suite in try server.lostSuites(app: report.app) {
        let store = "\(report.app)/\(suite.name)"
        note(
          "it has lost the settings of suite \(suite.name) that were last known on this machine",
          "Run `keepsakectl push \(store)` with the same --server to store them again, or "
            + "`keepsakectl adopt \(store)` to give them up.")
      }
    } catch let error as StorageError where error.code == .accessDenied {
      report.skipped.append(
        "suites and secrets: \(error.failureReason ?? ""). \(error.remedy)")
    }
  }

  /// A setting may be lost with the last second before a power cut. A secret should not be.
  private mutating func examineDurabilityOfSecrets() {
    guard facts.settings["appendfsync"] == "everysec", facts.information["aof_enabled"] != "0",
      (report.replicas ?? 0) == 0
    else { return }
    note(
      "it writes secrets to its disk up to a second late (appendfsync everysec) and has no "
        + "replica, so a power cut may lose some",
      "Set appendfsync to always, or add a replica and let the app use confirm: .replicas(1).")
  }

  private func show(asJSON: Bool) throws {
    if asJSON { return try Output.show(json: report) }
    var summary = "Checked \(Output.count(report.suites, "suite"))"
    if let version = report.version { summary += " on \(version)" }
    if let count = report.replicas { summary += " with \(Output.count(count, "replica"))" }
    try Doctor.show(
      report.findings, skipped: report.skipped, of: report.server, summary: summary + ".")
  }
}
