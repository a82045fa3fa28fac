import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What a restore replaces is kept, whatever fails and whenever the program is killed.
@Suite(.proofThread, .singleThreaded) struct VaultRestoreTests {
  private static let secrets = ["a": "one", "b": "two"]
  /// The prefix of the names of replaced vaults.
  private static let kept = "vault.replaced-"

  /// An app's data directory with a vault, and a backup of another vault.
  private struct Stage {
    let directory: TemporaryDirectory
    let backup: TemporaryDirectory
    var vault: VaultDirectory { directory.vault().storage as! VaultDirectory }

    init(_ app: Snapshot, _ backup: Snapshot) throws {
      directory = try TemporaryDirectory(copying: app)
      self.backup = try TemporaryDirectory(copying: backup)
    }

    func prepareRestore() throws -> PreparedRestore {
      try vault.prepareRestore(
        from: backup.file("vault").path, keyFile: backup.file("vault.key").path)
    }

    func restore() throws -> String? { try prepareRestore().commit() }

    func secrets() throws -> [String: String] {
      let store = directory.secrets()
      return try store.keys().reduce(into: [:]) { $0[$1] = try store.get($1) }
    }

    /// The files of a directory in the app's data directory, without its lock.
    func files(_ name: String) throws -> [String: Data] {
      try directory.contents().reduce(into: [:]) { files, file in
        guard file.key.hasPrefix(name + "/") else { return }
        files[String(file.key.dropFirst(name.count))] = file.value
      }
    }

    func keptNames() throws -> [String] { try directory.names().filter { $0.hasPrefix(kept) } }

    /// Expects the old vault to be whole, in its place or beside it.
    func expectOldVault(_ old: [String: Data], _ comment: Comment) throws {
      let isWhole = try (["vault"] + keptNames()).contains { try files($0) == old }
      let names = try directory.names()
      #expect(isWhole, "\(comment): \(names)")
    }
  }

  private static func makeApp() throws -> Snapshot {
    let directory = try TemporaryDirectory(isQuick: true)
    for (key, value) in secrets { try directory.secrets().set(value, forKey: key) }
    return try Snapshot(of: directory)
  }

  private static func makeBackup() throws -> Snapshot {
    let (source, directory) = (
      try TemporaryDirectory(isQuick: true), try TemporaryDirectory(isQuick: true)
    )
    try source.secrets().set("restored", forKey: "c")
    try (source.vault().storage as! VaultDirectory).backUp(
      to: directory.file("vault").path, keyFile: directory.file("vault.key").path)
    return try Snapshot(of: directory)
  }

  @Test func eachFailingCallKeepsTheOldVault() async throws {
    let (app, backup) = (try Self.makeApp(), try Self.makeBackup())
    let old = try Stage(app, backup).files("vault")
    let count = try await failingEachCall(
      { (stage: Stage) in _ = try stage.restore() },
      on: {
        let stage = try Stage(app, backup)
        return (stage, [stage.directory])
      },
      check: { stage, _, call in
        try stage.expectOldVault(old, call.comment)
        let secrets = try stage.secrets()
        #expect(secrets == Self.secrets || secrets == ["c": "restored"], call.comment)
        // What was replaced is not kept under two names, and what was not is not kept at all.
        let isReplaced = secrets != Self.secrets
        #expect(try stage.keptNames().count == (isReplaced ? 1 : 0), call.comment)
        if call.failure == nil { #expect(isReplaced, call.comment) }
        #expect(try stage.directory.temporaries() == [], call.comment)
        // The next restore works, and keeps what it replaces as well.
        #expect(try stage.restore() != nil, call.comment)
        #expect(try stage.secrets() == ["c": "restored"], call.comment)
        try stage.expectOldVault(old, "\(call.comment), again")
      })
    print("proof: faults, restore of a vault: \(count) failing calls")
  }

  /// A kill: from some call on, none has an effect. Later restores tidy up.
  @Test func aKillKeepsTheOldVault() throws {
    let (app, backup) = (try Self.makeApp(), try Self.makeBackup())
    let old = try Stage(app, backup).files("vault")
    var outcomes: Set<[String: String]> = []
    for number in 0... {
      try #require(number < 200)
      let stage = try Stage(app, backup)
      let isKilled = killing(beforeCall: number) { try? stage.restore() }
      try stage.expectOldVault(old, "before call \(number)")
      outcomes.insert(try stage.secrets())
      for _ in 0..<2 {
        #expect(try anHourLater { try stage.restore() } != nil)
        try stage.expectOldVault(old, "before call \(number), and restored again")
      }
      #expect(try stage.secrets() == ["c": "restored"])
      if !isKilled { break }
    }
    #expect(outcomes == [Self.secrets, ["c": "restored"]])
  }

  /// The link stays, and the vault that it leads to is replaced where it is.
  @Test func aLinkedVaultIsReplacedBehindItsLink() throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    let old = try stage.files("vault")
    try stage.directory.moveVaultBehindALink()
    let disk = stage.directory.file("disk").path
    let kept = try #require(try stage.restore())
    #expect(kept.hasPrefix(disk + "/" + Self.kept))
    #expect(try stage.secrets() == ["c": "restored"])
    #expect(try stage.directory.status("vault")?.isSymbolicLink == true)
    #expect(try stage.files("disk/" + FileSystem.name(of: kept)) == old)
    #expect(try stage.directory.names() == ["disk", "state", "vault"])
    #expect(try FileSystem.list(disk).count == 2)
  }

  /// An entry is being copied, and the header is not yet.
  @Test func aBackupKeepsOutChangesOfKeys() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let other = directory.secrets()
    let attempts = Locked(0)
    let isRotated = ThreadGate()
    let counting = FaultPlan(decide: { event in
      if event.call == .lock { _ = attempts.increment() }
      return .proceed
    })
    let entry = try directory.secretPath("k").dropFirst(directory.path.count + "/vault".count)
    try interrupt(before: .open, at: "/backup" + entry) {
      _ = startThread {
        FaultPlan.$current.withValue(counting) {
          #expect(throws: Never.self) { try other.rotateKeys() }
        }
        isRotated.open()
      }
      // So many only while it waits.
      waitUntil("the keys are changed, or this is waited for") {
        isRotated.isOpen || attempts.withLock { $0 } > 20
      }
    } in: {
      try store.backUp(
        to: directory.path + "/backup", keyFile: directory.path + "/backup.key")
    }
    isRotated.wait()
    #expect(try store.get("k") == "v")
    let restored = try TemporaryDirectory(isQuick: true)
    _ = try restored.secrets().prepareRestore(
      from: directory.path + "/backup", keyFile: directory.path + "/backup.key"
    ).commit()
    #expect(try restored.secrets().get("k") == "v")
  }

  @Test(.enabled(if: getuid() == 0, "mounting needs root"))
  func aMountedVaultIsNotReplaced() throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    let vault = stage.directory.file("vault").path
    try FileSystem.rename(vault, to: vault + "2")
    try stage.directory.makeDirectory("vault")
    guard mount("tmpfs", vault, "tmpfs", 0, "size=1m,mode=0700") == 0 else { return }
    defer { umount2(vault, 2) }
    for name in try FileSystem.list(vault + "2") {
      try FileManager.default.copyItem(atPath: vault + "2/" + name, toPath: vault + "/" + name)
    }
    let old = try stage.files("vault")
    let error = expectFailure(.misuse, reason: "mounted") { _ = try stage.restore() }
    #expect(error?.path == vault)
    #expect(try stage.files("vault") == old && stage.secrets() == Self.secrets)
    #expect(try stage.directory.names() == ["state", "vault", "vault2"])
  }

  /// A directory without a header is not a vault, but what is in it may be what is left of one.
  /// They open with what opened them before the restore.
  @Test(arguments: [(true, false), (false, false), (true, true)])
  func erasingRemovesTheReplacedVaultsToo(isPresent: Bool, isMoved: Bool) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let backup = directory.file("backup").path
    try store.backUp(to: backup, keyFile: nil)
    let kept = try (0..<2).map { _ in
      try #require(try store.prepareRestore(from: backup, keyFile: nil).commit())
    }
    // Not made by a restore.
    let others = ["vault.replaced-by-me", "vault.replaced"]
    for name in others { try directory.makeDirectory(name) }
    let link = "vault.replaced-9999999999"
    try directory.link(link, to: backup)
    // The vault was moved to another disk since.
    if isMoved { try directory.moveVaultBehindALink() }
    let copy = directory.file("copy").path
    try #require(Foundation.link(kept[0] + "/vault.hdr", copy) == 0)
    if !isPresent { try FileSystem.removeTree(directory.file("vault").path) }

    // One that cannot be removed is an error, and the others are removed.
    let stuck = kept[1]
    let plan = FaultPlan(decide: { event in
      event.call == .rmdir && event.path.hasPrefix(stuck) ? .fail(EIO) : .proceed
    })
    FaultPlan.$current.withValue(plan) {
      let error = #expect(throws: StorageError.self) { try store.eraseVault() }
      #expect(error?.path?.hasPrefix(kept[1]) == true && error?.operation == "eraseVault")
    }
    #expect(try FileSystem.status(kept[0]) == nil && FileSystem.status(kept[1]) != nil)
    try store.eraseVault()
    #expect(try FileSystem.status(kept[1]) == nil)
    for name in others { #expect(try FileSystem.status(directory.file(name).path) != nil) }
    #expect(try FileSystem.status(backup + "/vault.hdr") != nil && directory.status(link) != nil)
    #expect(try Bytes.read(copy).starts(with: "KVH1".utf8), "a hard link is another one's copy")
    try store.set("w", forKey: "k")
    #expect(try store.get("k") == "w")
  }

  @Test func erasingRemovesTheVaultThatARestoreReplacesMeanwhile() throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    try interruptBeforeLocking {
      _ = try stage.restore()
    } in: {
      try stage.directory.secrets().eraseVault()
    }
    #expect(try stage.directory.names() == ["state", "vault"])
    #expect(try stage.secrets() == [:])
  }

  /// Neither erasing nor the removal of the oldest vault removes a file that the library has not
  /// made.
  @Test(arguments: [true, false]) func otherFilesInAReplacedVaultStay(isErased: Bool) throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    let store = stage.directory.secrets()
    let kept = try #require(try stage.restore())
    let notes = [kept + "/notes", kept + "/other/notes"]
    try FileSystem.makeDirectory(kept + "/other", mode: 0o700)
    for path in notes {
      _ = try FileSystem.replace(path, with: [1], mode: 0o600, durable: false)
    }
    if isErased {
      try store.eraseVault()
    } else {
      // The oldest is the one that was changed first.
      waitForTick()
      for _ in 0..<3 { #expect(try stage.restore() != nil) }
    }
    #expect(try Set(FileSystem.list(kept)) == ["notes", "other"])
    for path in notes { #expect(try Bytes.read(path) == [1]) }
  }

  @Test func aBackupDoesNotOmitALinkedService() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let service = FileSystem.parent(of: try directory.secretPath("k"))
    try FileSystem.rename(service, to: directory.path + "/elsewhere")
    try #require(symlink(directory.path + "/elsewhere", service) == 0)
    #expect(try directory.secrets().get("k") == "v")
    let error = #expect(throws: StorageError.self) {
      try store.backUp(to: directory.file("backup").path, keyFile: nil)
    }
    #expect(error?.path == service)
  }

  /// A restore that was killed has left a whole copy. Another one is still running.
  @Test(arguments: [true, false]) func erasingRemovesWhatAKilledRestoreLeft(
    isPresent: Bool
  ) throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    let store = stage.directory.secrets()
    let names = [
      ".vault.0123456789abcdef.tmp", ".vault.tmp", ".vault.mine.tmp", ".other.0123456789abcdef.tmp",
    ]
    for name in names {
      try FileManager.default.copyItem(
        at: stage.backup.file("vault"), to: stage.directory.file(name))
    }
    let copy = stage.directory.file("copy").path
    try #require(Foundation.link(stage.directory.path + "/\(names[0])/vault.hdr", copy) == 0)
    if !isPresent { try FileSystem.removeTree(stage.directory.file("vault").path) }
    let running = try stage.prepareRestore()
    let staged = try #require(
      try stage.directory.names().first { $0.hasPrefix(".vault.") && !names.contains($0) })
    try store.eraseVault()
    let left = try stage.directory.names().filter { $0.hasPrefix(".") }
    #expect(left.sorted() == (names.dropFirst() + [staged]).sorted())
    #expect(try Bytes.read(copy).starts(with: "KVH1".utf8), "a hard link is another one's copy")
    #expect(try running.commit() == nil)
    #expect(try stage.secrets() == ["c": "restored"])
  }

  /// The copy of a large vault may take longer than the ten minutes after which others are swept.
  @Test(arguments: [true, false]) func aRunningRestoreIsNotSwept(isErased: Bool) throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    let running = try stage.prepareRestore()
    let staged = try stage.directory.temporaries()
    #expect(staged.count == 1)
    try anHourLater {
      if isErased {
        try stage.directory.secrets().eraseVault()
      } else {
        #expect(try stage.restore() != nil)
      }
    }
    #expect(try stage.directory.temporaries() == staged)
    let kept = try running.commit()
    #expect((kept == nil) == isErased)
    #expect(try stage.secrets() == ["c": "restored"])
  }

  @Test func erasingReportsWhatItDoesNotRemove() throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    try stage.directory.link(
      "vault.replaced-9999999999", to: stage.backup.file("vault").path)
    let link = stage.directory.file("vault.replaced-9999999999").path
    try stage.directory.makeDirectory("vault.replaced-8888888888")
    let mounted = stage.directory.file("vault.replaced-8888888888").path
    let isMounted = mount("tmpfs", mounted, "tmpfs", 0, "size=1m,mode=0700") == 0
    defer { umount2(mounted, 2) }
    let failures = Failures()
    try stage.directory.secrets(failures: failures).eraseVault()
    let reports = failures.all.sorted { $0.path ?? "" < $1.path ?? "" }
    #expect(reports.map(\.path) == (isMounted ? [mounted, link] : [link]))
    #expect(reports.last?.reason?.contains("symbolic link") == true, "\(reports)")
    if isMounted { #expect(reports.first?.reason?.contains("mounted") == true, "\(reports)") }
    #expect(try FileSystem.status(stage.backup.file("vault/vault.hdr").path) != nil)
  }

  @Test func entriesWithoutAHeaderAreKept() throws {
    let stage = try Stage(Self.makeApp(), Self.makeBackup())
    try FileSystem.unlink(stage.directory.headerPath)
    let old = try stage.files("vault")
    #expect(old.count > 1)
    let kept = try #require(try stage.restore())
    #expect(try stage.files(FileSystem.name(of: kept)) == old)
    #expect(try stage.secrets() == ["c": "restored"])
  }
}

extension TemporaryDirectory {
  /// Moves the vault to another directory, to which a link leads from then on.
  fileprivate func moveVaultBehindALink() throws {
    try makeDirectory("disk")
    try FileSystem.rename(path + "/vault", to: path + "/disk/vault")
    try link("vault", to: path + "/disk/vault")
  }
}
