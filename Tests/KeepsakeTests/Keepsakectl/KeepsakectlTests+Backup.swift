import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  private var backup: String { path("backup") }

  /// Another user's machine.
  private func otherMachine() throws -> Example {
    Example("keepsakectl", in: try TemporaryDirectory(isQuick: true))
  }

  private func files(in path: String) throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: path).sorted().filter {
      try FileSystem.status(path + "/" + $0, followsLinks: false)?.isDirectory == false
    }
  }

  @Test func aBackupCanBeRestored() throws {
    try fill()
    let backedUp = try run("backup", app, backup)
    #expect(backedUp.status == 0, "\(backedUp)")
    #expect(backedUp.text == "Backed up 2 suites and the vault of \(app).\n")
    let files = try files(in: backup)
    #expect(
      files.filter { !$0.hasPrefix("vault/") } == [
        "backup.json", "settings/standard.jsonl", "settings/team.jsonl", "vault.key",
      ])
    for file in files {
      #expect(try FileSystem.status("\(backup)/\(file)")?.mode == 0o600, "\(file)")
    }
    #expect(try FileSystem.status(backup)?.mode == 0o700)

    #expect(try run("settings", "set", app, "theme", "\"light\"").status == 0)
    #expect(try run("settings", "set", app, "later", "1").status == 0)
    #expect(try run("settings", "set", app + "/other", "kept", "1").status == 0)
    #expect(try run("vault", "delete", app, "pin").status == 0)
    #expect(try run("vault", "rotate", app).status == 0)
    try expectFailure(64, "Add --replace", "restore", app, backup)
    #expect(try run("settings", "get", app, "theme").text == "\"light\"\n")
    let restored = try run("restore", app, backup, "--replace")
    #expect(
      restored.status == 0 && restored.text.contains("Restored the vault, suite"), "\(restored)")
    #expect(try run("settings", "get", app, "theme").text == "\"dark\"\n")
    #expect(try run("settings", "get", app, "later").status == 1)
    #expect(try run("settings", "get", app + "/other", "kept").status == 0)
    #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
    #expect(try run("cache", "list", app, "--json").rows().count == 3)
    let kept = restored.text.split(separator: "\n").filter { $0.hasPrefix("Kept") }
    #expect(kept.count == 3 && kept.allSatisfy { $0.contains(".replaced-") }, "\(kept)")
    for line in kept {
      let file = String(try #require(line.split(separator: " ").last).dropLast())
      #expect(FileManager.default.fileExists(atPath: file))
    }
    let doctor = try run("doctor", app)
    #expect(doctor.status == 1 && doctor.text.contains("\(app): 3 problems."), "\(doctor)")
    #expect(doctor.text.contains("still opens with what opened it then"))
    #expect(doctor.text.components(separatedBy: "before a restore replaced them").count == 3)
  }

  @Test func aBackupCanBeRestoredOnAnotherMachine() throws {
    try fill()
    #expect(try run("backup", app, backup).status == 0)
    let other = try otherMachine()
    let restored = try other.run("restore", app, backup)
    #expect(restored.status == 0 && !restored.text.contains("Kept"), "\(restored)")
    #expect(try other.run("vault", "show", app, "pin", "--reveal").text == "7734")
    #expect(try other.run("settings", "get", app + "/team", "numbers").text == "[1,2]\n")
    #expect(try other.run("doctor", app).status == 0)

    // The keys of a vault that is replaced are kept with it.
    let third = try otherMachine()
    let abandoned = "data/\(app)/.vault.0.tmp"
    try third.directory.makeDirectory(abandoned + "/x")
    try third.directory.age(abandoned, seconds: 3_600)
    try stores(on: third).vault(.standard).set("other", forKey: "pin")
    #expect(try third.run("restore", app, backup, "--replace").status == 0)
    #expect(try third.run("vault", "show", app, "pin", "--reveal").text == "7734")
    let data = third.directory.path + "/data/" + app
    let names = try FileManager.default.contentsOfDirectory(atPath: data).sorted()
    try #require(names.count == 2 && names[1].hasPrefix("vault.replaced-"), "\(names)")
    #expect(try FileSystem.exchange("\(data)/\(names[0])", with: "\(data)/\(names[1])"))
    #expect(try third.run("vault", "show", app, "pin", "--reveal").text == "other")

    // Without the key file nothing is restored that could not be opened.
    let keyless = path("keyless")
    #expect(try run("backup", app, keyless, "--without-key").status == 0)
    #expect(try !files(in: keyless).contains("vault.key"))
    let fourth = try otherMachine()
    let refused = try fourth.run("restore", app, keyless)
    #expect(refused.failed(77, "the vault key file is missing"), "\(refused)")
    #expect(try fourth.run("settings", "list", app).status == 1)
    #expect(try other.run("restore", app, keyless, "--replace").status == 0)
    #expect(try other.run("vault", "show", app, "pin", "--reveal").text == "7734")
  }

  @Test func refusesWhatIsNotACompleteBackup() throws {
    try fill()
    #expect(try run("backup", app, backup).status == 0)
    try expectFailure(64, "is not empty", "backup", app, backup)
    try expectFailure(74, "cannot be created", "backup", app, path("missing/backup"))
    try expectFailure(1, "no settings or secrets here", "backup", "com.example.none", path("b"))
    try expectFailure(64, "is a backup of \(app)", "restore", "com.example.other", backup)
    try expectFailure(1, "is not a complete backup", "restore", app, path("config"))
    try expectFailure(1, "is not a complete backup", "restore", app, path("missing"))
    try expectFailure(64, "applies to a whole app", "backup", app + "/team", path("b"))
    let header = try Bytes.read(header)
    for file in try files(in: backup) {
      let path = "\(backup)/\(file)"
      let bytes = try Bytes.read(path)
      for position in Coverage.cases(Array(bytes.indices), every: 997, from: bytes.count / 2) {
        if Coverage.isComplete, position % 61 > 0 { continue }
        // Of the manifest, the app and the list of files; the rest is information.
        if file == "backup.json", bytes[position] != UInt8(ascii: "{") { continue }
        var damaged = bytes
        damaged[position] ^= 1
        try Bytes.write(damaged, to: path)
        try expectFailure(1, "missing or damaged", "restore", app, backup, "--replace")
      }
      try FileSystem.unlink(path)
      let message = file == "backup.json" ? "is not a complete backup" : "missing or damaged"
      try expectFailure(1, message, "restore", app, backup, "--replace")
      try Data(bytes).write(to: URL(filePath: path))
    }
    let manifest = try String(contentsOfFile: backup + "/backup.json", encoding: .utf8)
    let newer = manifest.replacing("\"keepsakeBackup\" : 1", with: "\"keepsakeBackup\" : 2")
    #expect(newer != manifest)
    try Bytes.write(Array(newer.utf8), to: backup + "/backup.json")
    try expectFailure(1, "newer version", "restore", app, backup, "--replace")
    #expect(try Bytes.read(self.header) == header, "nothing was changed")
    let names = try FileManager.default.contentsOfDirectory(atPath: path("data/\(app)"))
    #expect(names == ["vault"])
  }

  /// Nor any that could not be restored.
  @Test func aFailedBackupLeavesNothing() throws {
    try fill()
    let key = try Bytes.read(keyFile)
    try FileSystem.unlink(keyFile)
    try expectFailure(77, "vault.key", "backup", app, backup)
    #expect(try FileSystem.status(backup) == nil)
    try directory.write(key, to: "state/\(app)/vault.key")
    chmod(keyFile, 0o600)
    try makeVersionNewer(path("config/\(app)/team.jsonl"))
    try directory.makeDirectory("backup")
    try expectFailure(1, "newer version", "backup", app, backup)
    #expect(try FileSystem.status(backup) == nil)
  }

  // MARK: Whose a backup is

  @Test func aTargetThatOthersMayChangeIsRefused() throws {
    try fill()
    let own = path("own")
    for mode: mode_t in [0o700, 0o755] {
      try directory.makeDirectory("own")
      try directory.setMode(mode, "own")
      #expect(try run("backup", app, own).status == 0)
      #expect(try FileSystem.status(own)?.mode == 0o700)
      for file in try files(in: own) {
        #expect(try FileSystem.status("\(own)/\(file)")?.mode == 0o600, "\(file)")
      }
      try FileSystem.removeTree(own)
    }
    try directory.makeDirectory("own")
    for mode: mode_t in [0o777, 0o770, 0o1777, 0o702] {
      try directory.setMode(mode, "own")
      try expectFailure(77, "other users may write", "backup", app, own)
    }
    try directory.setMode(0o700, "own")
    // They could exchange the directory with one of theirs.
    let open = path("open")
    try directory.makeDirectory("open/own")
    try directory.setMode(0o777, "open")
    for target in [open + "/new", open + "/own/new"] {
      try expectFailure(77, "other users may write to \(open)", "backup", app, target)
      #expect(try FileSystem.status(target) == nil)
    }
    try directory.setMode(0o1777, "open")
    #expect(try run("backup", app, open + "/new").status == 0)
    try directory.link("link", to: own)
    for end in ["", "/", "//", "/.", "/.//."] {
      try expectFailure(77, "a link or a file is there", "backup", app, path("link") + end)
    }
    try directory.link("dangling", to: path("elsewhere"))
    for end in ["", "/"] { #expect(try run("backup", app, path("dangling") + end).status != 0) }
    #expect(try FileSystem.status(path("elsewhere")) == nil)
    #expect(try files(in: own).isEmpty)
  }

  /// Whoever owns a directory decides what root finds in it.
  @Test(.enabled(if: geteuid() == 0, "only root can give files away"))
  func rootBacksUpToNoDirectoryOfAnotherUser() throws {
    try fill()
    let home = path("home")
    try directory.makeDirectory("home/theirs")
    for user: uid_t in [1_234, 65_534] {
      for path in [home, home + "/theirs"] { try #require(chown(path, user, user) == 0) }
      for target in [home + "/theirs", home + "/backup", home + "/theirs/backup"] {
        try expectFailure(77, "belongs to user \(user)", "backup", app, target)
      }
      #expect(try FileManager.default.subpathsOfDirectory(atPath: home) == ["theirs"])
    }
  }

  @Test func aDirectoryThatIsNotEmptyStaysAsItIs() throws {
    try fill()
    let full = path("full")
    try directory.makeDirectory("full")
    try directory.write([1], to: "full/file")
    try directory.setMode(0o755, "full")
    for target in [full, full + "/", full + "/."] {
      try expectFailure(64, "is not empty", "backup", app, target)
    }
    #expect(try FileSystem.status(full)?.mode == 0o755)
    #expect(try files(in: full) == ["file"])
  }

  @Test func aBackupThatOthersMayHaveChangedIsNotRestored() throws {
    try fill()
    try directory.makeDirectory("open")
    let backup = path("open/backup")
    #expect(try run("backup", app, backup).status == 0)
    let before = try snapshot()
    let files = ["backup.json", "vault.key", "vault/vault.hdr", "settings/team.jsonl"]
    for name in ["", "vault", "settings"] + files {
      let changed = name.isEmpty ? path("open") : backup + "/" + name
      let mode = try #require(try FileSystem.status(changed)?.mode)
      for others: mode_t in [0o022, 0o002] {
        try #require(chmod(changed, mode_t(mode) | others) == 0)
        try expectFailure(
          77, "may have changed the backup: other users may write to \(changed)", "restore", app,
          backup, "--replace")
      }
      try #require(chmod(changed, mode_t(mode)) == 0)
    }
    #expect(try snapshot() == before)
    #expect(try run("restore", app, backup, "--replace").status == 0)
  }

  @Test(.enabled(if: geteuid() == 0, "only root can become another user"))
  func aBackupOfAnotherUserIsNotRestored() throws {
    try fill()
    #expect(try run("backup", app, backup).status == 0)
    let (owner, user) = ("1234", "1235")
    for path in try FileManager.default.subpathsOfDirectory(atPath: backup) + [""] {
      try #require(chown(backup + "/" + path, uid_t(owner) ?? 0, 0) == 0)
      let mode: mode_t = path == "vault.key" ? 0o600 : path.contains(".") ? 0o644 : 0o755
      try #require(chmod(backup + "/" + path, mode) == 0)
    }
    try directory.setMode(0o755)
    func restore(as user: String) throws -> Example.Run {
      let home = path("home" + user)
      try directory.makeDirectory("home" + user)
      try #require(chown(home, uid_t(user) ?? 0, 0) == 0)
      let child = try Child(
        "setpriv",
        ["--reuid=" + user, "--clear-groups", inspector.path, "restore", app, backup],
        environment: ["HOME": home, "PATH": "/usr/bin:/bin"], mergesErrors: true)
      let text = child.finish()
      return Example.Run(status: child.exitStatus, text: text, errors: "")
    }
    // A user could make root read what only root may read.
    for reader in [user, "0"] {
      let refused = try restore(as: reader)
      #expect(
        refused.status == 77 && refused.text.contains("belongs to user \(owner)"), "\(refused)")
    }
    let restored = try restore(as: owner)
    #expect(restored.status == 0, "\(restored)")
  }

  // MARK: What a manifest may say

  @Test func aForgedManifestIsRefused() throws {
    try fill()
    #expect(try run("backup", app, backup).status == 0)
    let manifest = try String(contentsOfFile: backup + "/backup.json", encoding: .utf8)
    try directory.write(directory.bytes(of: "backup/settings/team.jsonl"), to: "outside.jsonl")
    let before = try files(in: path("config"))
    let file = #""file" : "settings/team.jsonl""#
    for (old, new) in [
      (file, #""file" : "../outside.jsonl""#),
      (file, #""file" : "settings/../settings/team.jsonl""#),
      (file, #""file" : "settings/standard.jsonl""#),
      (file, #""file" : "\#(path("outside.jsonl"))""#),
      (#""name" : "team""#, #""name" : "other""#), (#""hasVault" : true"#, #""hasVault" : false"#),
      (#""hasKeyFile" : true"#, #""hasKeyFile" : false"#),
    ] {
      let forged = manifest.replacing(old, with: new)
      try #require(forged != manifest)
      try directory.write(Array(forged.utf8), to: "backup/backup.json")
      try expectFailure(1, "backup.json is missing or damaged", "restore", app, backup, "--replace")
      #expect(try files(in: path("config")) == before)
    }
    try directory.write(Array(manifest.utf8), to: "backup/backup.json")
    // Nor may there be more than it lists.
    let secret = "vault/" + String(repeating: "a", count: 32)
    for name in ["settings/more.jsonl", "note.txt", ".hidden", secret] {
      try directory.write([1], to: "backup/" + name)
      try expectFailure(
        1, "\(name) is not a part of the backup", "restore", app, backup, "--replace")
      try FileSystem.unlink(backup + "/" + name)
    }
    #expect(try run("restore", app, backup, "--replace").status == 0)
  }

  @Test(.enabled(if: OneAtATime.HazardTests.canMount, "a file system cannot be mounted here"))
  func aFullDiskReplacesNothing() throws {
    let disk = try TemporaryDirectory()
    try #require(OneAtATime.HazardTests.mountDisk(at: disk))
    defer { OneAtATime.HazardTests.unmountDisk(at: disk) }
    func fillDisk() throws {
      let file = try File(disk.path + "/filler", .create)
      let chunk = [UInt8](repeating: 1, count: 4_096)
      while (try? file.writeAll(chunk)) != nil {}
    }
    try fill()
    try fillDisk()
    var run = try run("backup", app, disk.path + "/backup")
    #expect(run.failed(74, "Free some space"), "\(run)")
    #expect(try disk.names() == ["filler"])
    try FileSystem.unlink(disk.path + "/filler")
    #expect(try self.run("backup", app, disk.path + "/backup").status == 0)

    let other = Example("keepsakectl", in: disk)
    let scope = stores(on: other)
    defer { scope.close() }
    try scope.defaults(.standard).set("light", forKey: "theme")
    try scope.vault(.standard).set("0000", forKey: "pin")
    try fillDisk()
    let before = try files(in: disk.path)
    run = try other.run("restore", app, disk.path + "/backup", "--replace")
    #expect(run.failed(74, "Free some space"), "\(run)")
    #expect(try scope.defaults(.standard).string("theme") == "light")
    #expect(try scope.vault(.standard).get("pin") == "0000")
    #expect(try files(in: disk.path) == before)
  }

  /// Each suite and the vault have their old or their new state, and what was replaced is kept.
  @Test func aKilledRestoreLosesNothing() throws {
    try fill()
    #expect(try run("backup", app, backup).status == 0)
    let start = ContinuousClock.now
    #expect(try run("restore", app, backup, "--replace").status == 0)
    let duration = ContinuousClock.now - start
    func keptNames() throws -> Set<String> {
      let directories = [path("config/\(app)"), path("data/\(app)")]
      let names = try directories.flatMap { try FileSystem.list($0) }
      return Set(names.filter { $0.contains(".replaced-") })
    }
    let kills = Coverage.count("KEEPSAKE_KILLS", sample: 10, complete: 200)
    for number in 0..<kills {
      let comment: Comment = "kill \(number)"
      let failures = Failures()
      let before = stores(failures: failures)
      try before.defaults(.standard).set("light", forKey: "theme")
      try before.vault(.standard).set("0000", forKey: "pin")
      before.close()
      let names = try keptNames()
      let restore = try Child(
        inspector.path, ["restore", app, backup, "--replace"], environment: inspector.environment,
        startsSession: true)
      waitForARandomMoment(upTo: duration)
      restore.killAndWait()

      let after = stores(failures: failures)
      defer { after.close() }
      let kept = try keptNames().subtracting(names)
      let theme = try after.defaults(.standard).string("theme")
      #expect(theme == "light" || theme == "dark", comment)
      if theme == "dark" {
        let copies = kept.filter { $0.hasPrefix("standard.jsonl.replaced-") }
        #expect(try copies.map { try self.theme(inCopy: $0) } == ["light"], comment)
      }
      #expect(try after.defaults("team").get("numbers") == [1, 2], comment)
      let pin = try after.vault(.standard).get("pin")
      #expect(pin == "0000" || pin == "7734", comment)
      let isVaultKept = kept.contains { $0.hasPrefix("vault.replaced-") }
      #expect(pin == "0000" || isVaultKept, comment)
      #expect(failures.all.isEmpty, "\(comment): \(failures.all)")
    }
    #expect(try run("restore", app, backup, "--replace").status == 0)
    #expect(try run("settings", "get", app, "theme").text == "\"dark\"\n")
    #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
    print("proof: kills, restores: \(kills)")
  }

  /// A setting in a copy that a restore has kept.
  private func theme(inCopy name: String) throws -> String? {
    let copy = try TemporaryDirectory(isQuick: true)
    try copy.write(directory.bytes(of: "config/\(app)/\(name)"), to: TemporaryDirectory.journal)
    return try copy.store().string("theme")
  }

  /// Programs write, and rotate the vault's keys, while backups are made and restored.
  @Test func backsUpAndRestoresBesideRunningPrograms() throws {
    let failures = Failures()
    let (source, other) = (stores(failures: failures), try otherMachine())
    let target = stores(on: other, failures: failures)
    defer {
      source.close()
      target.close()
    }
    for name in ["a", "b"] {
      try source.defaults(.standard).set(0, forKey: name)
      try source.vault(.standard).set("0", forKey: name)
    }
    // Before the vault is open there: a program refuses another one in its place.
    #expect(try run("backup", app, path("first")).status == 0)
    #expect(try other.run("restore", app, path("first"), "--replace").status == 0)
    // "b" is always set after "a", so it is never ahead.
    let isDone = Locked(false)
    let group = DispatchGroup()
    func loop(_ body: @escaping @Sendable (Int) throws -> Void) {
      group.enter()
      Thread.detachNewThread {
        var number = 0
        while !isDone.withLock({ $0 }) {
          number += 1
          #expect(throws: Never.self) { try body(number) }
          waitForARandomMoment(upTo: .milliseconds(1))
        }
        group.leave()
      }
    }
    loop { number in
      for name in ["a", "b"] { try source.defaults(.standard).set(number, forKey: name) }
    }
    loop { number in
      for name in ["a", "b"] { try source.vault(.standard).set("\(number)", forKey: name) }
    }
    loop { _ in try source.vault(.standard).rotateKeys() }
    loop { number in
      try target.defaults(.standard).set(number, forKey: "own")
      try target.vault(.standard).set("\(number)", forKey: "own")
      if number.isMultiple(of: 10) { try target.vault(.standard).rotateKeys() }
    }
    defer {
      isDone.withLock { $0 = true }
      group.wait()
    }
    var last = (settings: -1, secrets: -1)
    let count = Coverage.count(sample: 3, complete: 40)
    for number in 0..<count {
      let comment: Comment = "backup \(number)"
      let directory = path("backup\(number)")
      // On a busy machine the writers may not run for a while.
      try waitUntil("the writers have gone on") {
        try source.defaults(.standard).int("b") > last.settings
          && Int(source.vault(.standard).get("b") ?? "") ?? 0 > last.secrets
      }
      let backedUp = try run("backup", app, directory)
      try #require(backedUp.status == 0, "\(comment): \(backedUp)")
      let restored = try other.run("restore", app, directory, "--replace")
      try #require(restored.status == 0, "\(comment): \(restored)")
      let settings = try ["a", "b"].map { try target.defaults(.standard).int($0) }
      #expect((0...1).contains(settings[0] - settings[1]), "\(comment): \(settings)")
      #expect(settings[0] > last.settings, comment)
      let secrets = try ["a", "b"].map {
        try #require(Int(try target.vault(.standard).get($0) ?? ""), comment)
      }
      #expect((0...1).contains(secrets[0] - secrets[1]), "\(comment): \(secrets)")
      #expect(secrets[0] > last.secrets, comment)
      last = (settings[0], secrets[0])
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
    print("proof: backups beside writers and rotations: \(count)")
  }
}
