import Foundation
import Testing

/// The library where it is set up otherwise: without OpenSSL, linked statically, in a small
/// container, under systemd. The client is the package Tests/WithoutVault.
extension OneAtATime {
  @Suite struct SetUpTests {
    @Test(.timeLimit(.minutes(20)))
    func withoutTheVaultNothingOfOpenSSLIsLoaded() async throws {
      let build = try await Client.build.value
      try #require(build.status == 0, "\(build.output)")
      // The one that the linker has for Foundation's own code, whoever uses it.
      let complaints = build.output.split(separator: "\n").filter {
        $0.contains("warning:") && !$0.contains("libFoundationEssentials.a")
      }
      #expect(complaints.isEmpty, "\(complaints)")
      let libraries = try await Command.run(["ldd", Client.program])
      #expect(libraries.status == 0 && !libraries.output.contains("libcrypto"))
    }

    @Test(.timeLimit(.minutes(20)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded))
    func withoutTheVaultOpenSSLNeedNotBeInstalled() async throws {
      try #require(try await Client.build.value.status == 0)
      // The build was in there: see Client.
      let check = try await Namespace.run(
        "without-openssl",
        ["sh", "-c", "echo '#include <openssl/evp.h>' | clang -fsyntax-only -x c -"])
      #expect(check.status != 0 && check.output.contains("file not found"), "\(check.output)")
      let tool = try await Namespace.run("without-openssl", ["sh", "-c", "command -v pkg-config"])
      #expect(tool.status != 0 && tool.output.isEmpty, "\(tool.output)")
    }

    @Test(.timeLimit(.minutes(20)))
    func aStaticProgramLoadsNoLibraryOfSwift() async throws {
      try #require(try await Client.build.value.status == 0)
      let libraries = try await Command.run(["ldd", Client.program]).output
      let names = libraries.matches(of: /lib([^\/ ]+)\.so/).map { $0.1 }
      // Of the system, and of C++, in which Swift's runtime is written.
      let systems = ["c", "m", "pthread", "dl", "rt", "util", "stdc++", "gcc_s"]
      #expect(names.allSatisfy { systems.contains(String($0)) }, "\(libraries)")
      let size = try FileManager.default.attributesOfItem(atPath: Client.program)[.size] as? Int
      print("proof: a static program's size: \(try #require(size)) bytes")
      let folder = try TemporaryDirectory()
      for launch in 1...2 {
        let run = try await Command.run(
          ["env", "-i", "FOLDER=\(folder.path)", Client.program, "fetch"])
        #expect(run.status == 0, "\(run.output)")
        #expect(run.output == Client.output(launch: launch, fetches: true))
      }
    }

    @Test(
      .timeLimit(.minutes(20)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded),
      arguments: [
        (["FOLDER=/data"], "/data"),
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
    func oneWritableFolderIsEnough(_ environment: [String], settings: String) async throws {
      try #require(try await Client.build.value.status == 0)
      // Only these two lead to documents.
      let hasDocuments = environment[0] == "FOLDER=/data" || environment[0] == "HOME=/data"
      for kind in ["data", "bare"] {
        let fetches = kind == "data"
        let run = try await Namespace.run(
          "container", [kind, Client.program] + environment + (fetches ? ["ARGUMENT=fetch"] : []))
        let said = run.output.split(separator: "\n").filter { !$0.hasPrefix("left: ") }
        var expected: [Substring] = []
        for launch in 1...2 {
          if !hasDocuments {
            expected.append(
              """
              keepsake: save failed: not found (this user has no home folder). \
              Set HOME, or give StorageSystem.bootstrap a folder for documents.
              """)
          }
          let output = Client.output(
            launch: launch, documents: hasDocuments ? "written" : "nothing", fetches: fetches)
          expected += output.split(separator: "\n") + ["exit: 0"]
        }
        #expect(said == expected, "\(kind)")
        let left = run.output.split(separator: "\n").filter { $0.hasPrefix("left: ") }
        // The app has the executable's name, also where there is no /proc to look it up.
        #expect(left.contains("left: \(settings)/standard.jsonl"), "\(kind): \(left)")
        #expect(left.allSatisfy { $0.hasPrefix("left: /data/") }, "\(left)")
      }
    }

    /// Read-only, or with a root that this user could write to.
    @Test(
      .timeLimit(.minutes(20)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded),
      arguments: ["sealed", "open"])
    func withoutAFolderEachFailureSaysWhatToSetAndTheProgramGoesOn(_ kind: String) async throws {
      try #require(try await Client.build.value.status == 0)
      let run = try await Namespace.run("container", [kind, Client.program, "ARGUMENT=fetch"])
      let lines = run.output.split(separator: "\n")
      #expect(lines.count { $0 == "exit: 0" } == 2, "\(run.output)")
      #expect(lines.count { $0 == "launches: 0" || $0 == "fetch: fetched" } == 4, "\(run.output)")
      let complaints = lines.filter { $0.hasPrefix("keepsake: ") }
      #expect(complaints.count >= 10, "\(complaints)")
      // There is no /tmp, which is not one user's to make.
      let remedies = [" Set HOME", "HOME, the XDG variables", " Set TMPDIR"]
      for complaint in complaints {
        #expect(
          remedies.contains { complaint.contains($0) } && complaint.hasSuffix("."), "\(complaint)")
      }
      #expect(!lines.contains { $0.hasPrefix("left: ") }, "\(lines)")
    }

    @Test(.timeLimit(.minutes(20)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded))
    func whatIsReadOnlyByNowCanStillBeRead() async throws {
      try #require(try await Client.build.value.status == 0)
      let run = try await Namespace.run(
        "container", ["kept", Client.program, "HOME=/data", "TMPDIR=/data"])
      let lines = run.output.split(separator: "\n")
      let second = try #require(lines.split(separator: "exit: 0").dropFirst().first)
      #expect(second.contains("launches: 1") && second.contains("theme before: dark"), "\(lines)")
      #expect(second.contains("cached: Front page, before: Front page"), "\(lines)")
      let complaints = second.filter { $0.hasPrefix("keepsake: ") }
      #expect(!complaints.isEmpty && complaints.allSatisfy { $0.contains("read-only") })
    }

    @Test(.timeLimit(.minutes(5)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded))
    func aUnitOfSystemdFindsItsSettingsAndSecretsAgain() async throws {
      let run = try await unit(
        "STATE_DIRECTORY=/var/lib/notes:/var/lib/other", "CACHE_DIRECTORY=/var/cache/notes")
      #expect(run.count { $0 == "exit: 0" } == 2, "\(run)")
      #expect(run.contains { $0.hasPrefix("Run number 2.") }, "\(run)")
      let secrets = run.filter { $0.hasPrefix("The secret id ") }
      try #require(secrets.count == 2, "\(run)")
      #expect(secrets[0] == secrets[1])
      // There is no /dev/urandom.
      #expect(!secrets[0].hasPrefix("The secret id 0000"), "\(run)")
      #expect(secrets[0].hasSuffix("… is sealed in /var/lib/notes/vault"), "\(run)")
      // Its key is the credential: no key file was made.
      #expect(run.contains("left: /var/lib/private/notes/vault/vault.hdr"), "\(run)")
      #expect(!run.contains { $0.hasSuffix("vault.key") }, "\(run)")
      #expect(run.contains("left: /var/lib/private/notes/standard.jsonl"), "\(run)")
      #expect(run.contains { $0.hasPrefix("left: /var/cache/private/notes/caches/") }, "\(run)")
    }

    /// The one folder that systemd does not hand over to a unit's user.
    @Test(.timeLimit(.minutes(5)), .enabled(if: Namespace.isAllowed, Namespace.isNeeded))
    func aConfigurationDirectoryThatIsTheSuperusersIsAnError() async throws {
      let run = try await unit(
        "CONFIGURATION_DIRECTORY=/etc/notes", "STATE_DIRECTORY=/var/lib/notes",
        "CACHE_DIRECTORY=/var/cache/notes")
      let complaint = run.first { $0.hasPrefix("keepsake: Defaults.update failed") }
      #expect(complaint?.contains("access denied") == true, "\(run)")
      #expect(complaint?.contains(" at /etc/notes/") == true, "\(run)")
      #expect(!run.contains { $0.hasPrefix("left: /etc") }, "\(run)")
    }

    private func unit(_ environment: String...) async throws -> [Substring] {
      let program = Peer.builtProduct("keepsake-quickstart").path
      // A file to put into the cache, which the program reads by its name.
      let run = try await Namespace.run(
        "container", ["unit", program] + environment + ["ARGUMENT=/started"])
      return run.output.split(separator: "\n")
    }
  }
}

/// The package Tests/WithoutVault.
private enum Client {
  static let folder = Repository.file("Tests/WithoutVault").path
  /// Its own: this package's build folder is locked while its tests run.
  private static let scratch = Repository.file(".build-without-vault").path
  static let program = scratch + "/release/without-vault"

  /// Builds it, once in a test run, and where that is allowed as on a system without OpenSSL.
  static let build = Task {
    let build = [
      "timeout", "900", "swift", "build", "-c", "release", "--static-swift-stdlib",
      "--package-path", folder,
      "--scratch-path", scratch,
    ]
    if Namespace.isAllowed { return try await Namespace.run("without-openssl", build) }
    return try await Command.run(build)
  }

  /// What it prints when all goes well.
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

/// Mounts that only one program and its children see.
private enum Namespace {
  static let isNeeded: Comment = "only the superuser can mount, and not in each container"

  /// Whether a file system can be put over another one, for a program of the user's.
  static let isAllowed: Bool = {
    guard geteuid() == 0, let folder = try? TemporaryDirectory(),
      let probe = try? Child(
        "unshare",
        [
          "--mount", "--propagation", "private", "sh", "\(Client.folder)/without-openssl",
          folder.path, "true",
        ],
        mergesErrors: true)
    else { return false }
    withExtendedLifetime(folder) { _ = probe.finish() }
    return probe.exitStatus == 0
  }()

  /// Runs one of the package's scripts in mounts of its own, on a folder of its own.
  static func run(
    _ script: String, _ words: [String]
  ) async throws -> (status: Int32, output: String) {
    let folder = try TemporaryDirectory()
    defer { withExtendedLifetime(folder) {} }
    return try await Command.run(
      [
        "unshare", "--mount", "--propagation", "private", "sh", "\(Client.folder)/\(script)",
        folder.path,
      ] + words)
  }
}
