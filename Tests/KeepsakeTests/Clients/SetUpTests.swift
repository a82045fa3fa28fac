import Foundation
import Testing

@testable import KeepsakeTestSupport

/// Runs programs without OpenSSL, linked statically, in a minimal container, and as a systemd unit.
/// The client is the package Tests/WithoutVault, or the quickstart for secrets.
@Suite(.slow, .multiprocess, .serialized, .ownThread, .timeLimit(.minutes(20)))
struct SetUpTests {
  @Test func programWithoutVaultBuildsWithoutWarnings() async throws {
    let build = try await Client.build.value
    try #require(build.status == 0, "\(build.output)")
    // The linker warns about Foundation's own code in every static program.
    let warnings = build.output.split(separator: "\n").filter {
      $0.contains("warning:") && !$0.contains("libFoundationEssentials.a")
    }
    #expect(warnings.isEmpty, "\(warnings)")
  }

  @Test(.enabled(if: Namespace.isAllowed, Namespace.isNeeded))
  func programWithoutVaultBuildsWithoutOpenSSL() async throws {
    try #require(try await Client.build.value.status == 0)
    // The script in which `Client.build` ran does hide OpenSSL and pkg-config.
    let check = try await Namespace.run(
      "without-openssl",
      ["sh", "-c", "echo '#include <openssl/evp.h>' | clang -fsyntax-only -x c -"])
    #expect(check.status != 0 && check.output.contains("file not found"), "\(check.output)")
    let tool = try await Namespace.run("without-openssl", ["sh", "-c", "command -v pkg-config"])
    #expect(tool.status != 0 && tool.output.isEmpty, "\(tool.output)")
  }

  @Test func staticProgramLoadsNeitherSwiftNorOpenSSL() async throws {
    try #require(try await Client.build.value.status == 0)
    let libraries = try await Command.run(["ldd", Client.program])
    let names = libraries.output.matches(of: /lib([^\/ ]+)\.so/).map { $0.1 }
    // The C library, and the C++ library of Swift's runtime.
    let systemLibraries = ["c", "m", "pthread", "dl", "rt", "util", "stdc++", "gcc_s"]
    #expect(libraries.status == 0, "\(libraries)")
    #expect(names.allSatisfy { systemLibraries.contains(String($0)) }, "\(libraries)")
    let size = try FileManager.default.attributesOfItem(atPath: Client.program)[.size] as? Int
    print("proof: a static program's size: \(try #require(size)) bytes")
    let directory = try TemporaryDirectory()
    for launch in 1...2 {
      let run = try await Command.run(
        ["env", "-i", "DIRECTORY=\(directory.path)", Client.program, "fetch"])
      #expect(run.status == 0, "\(run.output)")
      #expect(run.output == Client.output(launch: launch, fetches: true))
    }
  }

  @Test(
    .enabled(if: Namespace.isAllowed, Namespace.isNeeded),
    arguments: [
      (["DIRECTORY=/data"], "/data"),
      (["HOME=/data", "TMPDIR=/data"], "/data/.config/program"),
      (
        [
          "XDG_CONFIG_HOME=/data/config", "XDG_DATA_HOME=/data/data",
          "XDG_CACHE_HOME=/data/cache", "TMPDIR=/data",
        ], "/data/config/program"
      ),
      (
        [
          "CONFIGURATION_DIRECTORY=/data/config", "STATE_DIRECTORY=/data/state:/data/other",
          "CACHE_DIRECTORY=/data/cache:/data/other", "TMPDIR=/data", "HOME=/",
        ], "/data/config"
      ),
      (
        ["STATE_DIRECTORY=/data/state", "CACHE_DIRECTORY=/data/cache", "TMPDIR=/data"],
        "/data/state"
      ),
    ])
  func needsOnlyOneWritableDirectory(
    _ environment: [String], settings: String
  ) async throws {
    try #require(try await Client.build.value.status == 0)
    // Only these two variables determine a documents directory.
    let hasDocuments = environment[0] == "DIRECTORY=/data" || environment[0] == "HOME=/data"
    for kind in ["data", "bare"] {
      let fetches = kind == "data"
      let run = try await Namespace.run(
        "container", [kind, Client.program] + environment + (fetches ? ["ARGUMENT=fetch"] : []))
      let lines = run.output.split(separator: "\n")
      var expected: [Substring] = []
      for launch in 1...2 {
        let documents = hasDocuments ? "written" : "nothing"
        expected += Client.output(launch: launch, documents: documents, fetches: fetches)
          .split(separator: "\n")
        expected.append("exit: 0")
      }
      let output = lines.filter { !$0.hasPrefix("keepsake: ") && !$0.hasPrefix("left: ") }
      #expect(output == expected, "\(kind)")
      let reports = lines.filter { $0.hasPrefix("keepsake: ") }
      #expect(reports.count == (hasDocuments ? 0 : 2), "\(reports)")
      #expect(reports.allSatisfy { $0.contains("save failed") && $0.contains("Set HOME") })
      let left = lines.filter { $0.hasPrefix("left: ") }
      // The app is named after the executable even without /proc.
      #expect(left.contains("left: \(settings)/standard.jsonl"), "\(kind): \(left)")
      #expect(left.allSatisfy { $0.hasPrefix("left: /data/") }, "\(left)")
    }
  }

  /// In a read-only container, and in one whose root directory is writable.
  @Test(
    .enabled(if: Namespace.isAllowed, Namespace.isNeeded),
    arguments: ["sealed", "open"])
  func withoutDirectoriesEachFailureNamesTheVariableToSet(_ kind: String) async throws {
    try #require(try await Client.build.value.status == 0)
    let run = try await Namespace.run("container", [kind, Client.program, "ARGUMENT=fetch"])
    let lines = run.output.split(separator: "\n")
    #expect(lines.count { $0 == "exit: 0" } == 2, "\(run.output)")
    #expect(lines.count { $0 == "launches: 0" || $0 == "fetch: fetched" } == 4, "\(run.output)")
    let reports = lines.filter { $0.hasPrefix("keepsake: ") }
    #expect(reports.count >= 10, "\(reports)")
    // The container has no /tmp, and the library does not create that directory.
    let remedies = [" Set HOME", "HOME, the XDG variables", " Set TMPDIR"]
    for report in reports {
      #expect(
        remedies.contains { report.contains($0) } && report.hasSuffix("."), "\(report)")
    }
    #expect(!lines.contains { $0.hasPrefix("left: ") }, "\(lines)")
  }

  @Test(.enabled(if: Namespace.isAllowed, Namespace.isNeeded))
  func readsFromADirectoryThatHasBecomeReadOnly() async throws {
    try #require(try await Client.build.value.status == 0)
    let run = try await Namespace.run(
      "container", ["kept", Client.program, "HOME=/data", "TMPDIR=/data"])
    let lines = run.output.split(separator: "\n")
    let second = try #require(lines.split(separator: "exit: 0").dropFirst().first)
    #expect(second.contains("launches: 1") && second.contains("theme before: dark"), "\(lines)")
    #expect(second.contains("cached: Front page, before: Front page"), "\(lines)")
    let reports = second.filter { $0.hasPrefix("keepsake: ") }
    #expect(!reports.isEmpty && reports.allSatisfy { $0.contains("read-only") })
  }

  @Test(.enabled(if: Namespace.isAllowed, Namespace.isNeeded))
  func systemdUnitFindsItsSettingsAndSecretsAgain() async throws {
    let run = try await unit(
      "STATE_DIRECTORY=/var/lib/notes:/var/lib/other", "CACHE_DIRECTORY=/var/cache/notes")
    #expect(run.count { $0 == "exit: 0" } == 2, "\(run)")
    #expect(run.contains { $0.hasPrefix("Launch 2. ") }, "\(run)")
    let secrets = run.filter { $0.hasPrefix("The token ") }
    try #require(secrets.count == 2, "\(run)")
    #expect(secrets[0] == secrets[1])
    // A token of zeros would show that random numbers depend on /dev/urandom, which is missing.
    #expect(!secrets[0].hasPrefix("The token 0"), "\(run)")
    #expect(secrets[0].hasSuffix("… is sealed in /var/lib/notes/vault"), "\(run)")
    // The vault's key is the credential, so there is no key file.
    #expect(run.contains("left: /var/lib/private/notes/vault/vault.hdr"), "\(run)")
    #expect(!run.contains { $0.hasSuffix("vault.key") }, "\(run)")
    #expect(run.contains("left: /var/lib/private/notes/standard.jsonl"), "\(run)")
    #expect(run.contains { $0.hasPrefix("left: /var/cache/private/notes/caches/") }, "\(run)")
  }

  /// The configuration directory is the only one that systemd does not give to the unit's user.
  @Test(.enabled(if: Namespace.isAllowed, Namespace.isNeeded))
  func reportsAConfigurationDirectoryOwnedByRoot() async throws {
    let run = try await unit(
      "CONFIGURATION_DIRECTORY=/etc/notes", "STATE_DIRECTORY=/var/lib/notes",
      "CACHE_DIRECTORY=/var/cache/notes")
    let report = run.first { $0.hasPrefix("keepsake: Defaults.update failed") }
    #expect(report?.contains("access denied") == true, "\(run)")
    #expect(report?.contains(" at /etc/notes/") == true, "\(run)")
    #expect(!run.contains { $0.hasPrefix("left: /etc") }, "\(run)")
  }

  private func unit(_ environment: String...) async throws -> [Substring] {
    let program = Peer.builtProduct("keepsake-quickstart").path
    // The argument is a file that the program reads and caches.
    let run = try await Namespace.run(
      "container", ["unit", program] + environment + ["ARGUMENT=/started"])
    return run.output.split(separator: "\n")
  }
}

/// The package Tests/WithoutVault.
private enum Client {
  static let path = Repository.file("Tests/WithoutVault").path
  /// Not `.build`, which SwiftPM locks while tests run.
  private static let scratch = Repository.file(".build-without-vault").path
  static let program = scratch + "/release/without-vault"

  /// Builds the program once in a test run, without access to OpenSSL if mounting is allowed.
  static let build = Task {
    let build = [
      "timeout", "900", "swift", "build", "-c", "release", "--static-swift-stdlib",
      "--package-path", path,
      "--scratch-path", scratch,
    ]
    if Namespace.isAllowed { return try await Namespace.run("without-openssl", build) }
    return try await Command.run(build)
  }

  /// The program's output if nothing fails.
  static func output(launch: Int, documents: String = "written", fetches: Bool = false) -> String {
    """
    launches: \(launch)
    theme before: \(launch == 1 ? "none" : "dark")
    cached: Front page, before: \(launch == 1 ? "nothing" : "Front page")
    support: written
    documents: \(documents)
    temporary: written
    \(fetches ? "fetch: fetched\n" : "")
    """
  }
}

/// Runs programs in a mount namespace, so that only they see what is mounted.
private enum Namespace {
  static let isNeeded: Comment = "only root can mount, and not in every container"

  /// Whether this process may create a mount namespace and mount in it.
  static let isAllowed: Bool = {
    guard geteuid() == 0, let directory = try? TemporaryDirectory(),
      let probe = try? Child(
        "unshare",
        [
          "--mount", "--propagation", "private", "sh", "\(Client.path)/without-openssl",
          directory.path, "true",
        ],
        mergesErrors: true)
    else { return false }
    withExtendedLifetime(directory) { _ = probe.finish() }
    return probe.exitStatus == 0
  }()

  /// Runs one of the package's scripts in a new mount namespace, with a temporary directory.
  static func run(
    _ script: String, _ words: [String]
  ) async throws -> (status: Int32, output: String) {
    let directory = try TemporaryDirectory()
    defer { withExtendedLifetime(directory) {} }
    return try await Command.run(
      [
        "unshare", "--mount", "--propagation", "private", "sh", "\(Client.path)/\(script)",
        directory.path,
      ] + words)
  }
}
