import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  /// A kind of damage, and a part of the finding that the doctor reports.
  struct Damage: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let finding: String
    let inflict: @Sendable (KeepsakectlTests) throws -> Void

    init(
      _ name: String, finding: String,
      inflict: @escaping @Sendable (KeepsakectlTests) throws -> Void
    ) {
      testDescription = name
      self.finding = finding
      self.inflict = inflict
    }
  }

  private static let damages = [
    Damage("a damaged setting", finding: "is damaged in 1 place") {
      try $0.flipBit(of: $0.journal, at: 90)
    },
    Damage("settings of a newer version", finding: "newer version") {
      try $0.makeVersionNewer($0.journal)
    },
    Damage("settings of another program", finding: "is not a Keepsake journal") {
      try Bytes.write(Array("{\"theme\": 1}\n".utf8), to: $0.journal)
    },
    Damage("a damaged secret", finding: "the secret is damaged") {
      let path = try $0.pinFile()
      try $0.flipBit(of: path, at: try Bytes.read(path).count - 20)
    },
    Damage("a damaged header", finding: "header") { try $0.flipBit(of: $0.header, at: 60) },
    Damage("a lost header", finding: "header is missing") { try FileSystem.unlink($0.header) },
    Damage("a lost key file", finding: "key") { try FileSystem.unlink($0.keyFile) },
    Damage("a key file that other users can read", finding: "vault.key") {
      chmod($0.keyFile, 0o644)
    },
    Damage("a lock file that is a link", finding: "is a symbolic link, so calls fail") {
      try $0.makeLinked("data/\($0.app)/vault/.lock")
    },
    Damage("a ledger that is a link", finding: "is a symbolic link, so calls fail") {
      try $0.makeLinked("cache/\($0.app)/caches/.standard.ledger")
    },
    Damage("a directory above the vault that other users can write", finding: "another vault") {
      chmod($0.path("data/\($0.app)"), 0o777)
    },
    Damage("keys that were not replaced completely", finding: "still has old keys") {
      let scope = $0.stores()
      defer { scope.close() }
      let vault = try scope.vault(.standard).vault
      let session = try #require(try vault.currentSession())
      let ring = try session.ring.addingPrimaryKey(newMasterKey: false)
      _ = try vault.replaceHeader(of: session, slots: session.header.allSlots) { ring }
    },
    Damage("a damaged entry", finding: "damaged") {
      try $0.flipBit(of: try $0.payload("avatar"), at: 1)
    },
    Damage("a damaged sidecar", finding: "damaged") {
      try $0.flipBit(of: try $0.payload("avatar") + ".meta", at: 50)
    },
    Damage("a sidecar of a newer version", finding: "newer version") {
      try $0.makeSidecarNewer("avatar")
    },
    Damage("the copy of a damaged file", finding: "copy of a damaged file") {
      try $0.keepSettings(as: "damaged-1760000000")
    },
    Damage("settings that a restore has replaced", finding: "before a restore replaced them") {
      try $0.keepSettings(as: "replaced-1760000000")
    },
    Damage("settings that were replaced", finding: "before another program replaced them") {
      try $0.keepSettings(as: "previous")
    },
    Damage("settings that were being written", finding: "was ended while it wrote") {
      try $0.keepSettings(as: "next")
    },
    Damage("a temporary file of a killed program", finding: "killed") {
      let path = FileSystem.parent(of: try $0.pinFile()) + "/.entry.1f.tmp"
      try #require(FileManager.default.createFile(atPath: path, contents: Data([1])))
      chmod(path, 0o600)
      try $0.makeOld(path)
    },
    Damage("a cache that a killed program was emptying", finding: "killed") {
      let path = $0.path("cache/\($0.app)/caches/Images/.ab.1f.trash")
      try FileSystem.createDirectory(path)
      try $0.makeOld(path)
    },
  ]

  /// Moves a file away, and puts a link to it in its place.
  private func makeLinked(_ name: String) throws {
    try FileSystem.rename(path(name), to: path("elsewhere"))
    try directory.link(name, to: path("elsewhere"))
  }

  /// Puts a file where the library keeps one beside the settings.
  private func keepSettings(as kind: String) throws {
    let name = "config/\(app)/standard.jsonl.\(kind)"
    try directory.write([1], to: name)
    chmod(path(name), 0o600)
  }

  /// Makes a temporary file too old to belong to a running program.
  private func makeOld(_ path: String) throws {
    #expect(try run("doctor", app).status == 0, "its program may still run")
    let old = Date(timeIntervalSinceNow: -200_000)
    try FileManager.default.setAttributes([.modificationDate: old], ofItemAtPath: path)
  }

  /// Each kind of damage is the only finding, and stays as it is.
  @Test(arguments: damages) func doctorFinds(_ damage: Damage) throws {
    try fill()
    try damage.inflict(self)
    try expectOneFinding(damage.finding) { try run("doctor", app) }
  }

  func expectOneFinding(_ finding: String, _ examine: () throws -> Example.Run) throws {
    let before = try snapshot()
    let run = try examine()
    #expect(run.status == 1 && run.text.contains(finding), "\(run.text)")
    #expect(run.text.contains("1 problem."), "\(run.text)")
    #expect(try snapshot() == before)
  }

  /// As for a systemd unit, whose data and state are in one directory.
  @Test func doctorFindsAKeyFileBesideTheVault() throws {
    let changes = ["XDG_STATE_HOME": path("data")]
    let scope = stores(environment: changes)
    try scope.vault(.standard).set("7734", forKey: "pin")
    scope.close()
    try expectOneFinding("a copy of that directory opens it") {
      try run("doctor", app, environment: changes)
    }
  }

  /// Only the right passphrase shows that its keys are damaged.
  @Test func doctorFindsADamagedVaultWithAPassphrase() throws {
    try makeVault(passphrase: "correct horse")
    var altered = try VaultHeader(Bytes.read(header), path: header)
    altered.keySetBox[50] ^= 1
    try Bytes.write(altered.bytes(), to: header)
    let run = try run("doctor", "--json", "--passphrase-fd=0", input: "correct horse")
    #expect(run.status == 1 && run.errors.isEmpty, "\(run)")
    let findings = try #require(try run.rows().first?["findings"] as? [[String: Any]])
    #expect(findings.map { $0["path"] as? String } == [header], "\(findings)")
  }

  @Test func doctorFindsFilesThatOtherUsersCanRead() throws {
    try fill()
    chmod(header, 0o644)
    try expectOneFinding("chmod go= '\(header)'") { try run("doctor", app) }
  }
}
