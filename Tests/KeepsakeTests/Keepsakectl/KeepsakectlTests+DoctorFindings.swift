import Foundation
import Testing

extension OneAtATime.KeepsakectlTests {
  /// What is planted, and a word of what the doctor says of it.
  struct Damage: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let word: String
    let plant: @Sendable (KeepsakectlTests) throws -> Void

    init(
      _ name: String, says word: String,
      plant: @escaping @Sendable (KeepsakectlTests) throws -> Void
    ) {
      testDescription = name
      self.word = word
      self.plant = plant
    }
  }

  private static let damages = [
    Damage("a damaged setting", says: "does not read as written") {
      try $0.flip($0.journal, at: 90)
    },
    Damage("settings of a newer version", says: "newer version") { try $0.newer($0.journal) },
    Damage("settings of another program", says: "does not start as a Keepsake journal") {
      try Bytes.write(Array("{\"theme\": 1}\n".utf8), to: $0.journal)
    },
    Damage("a damaged secret", says: "its bytes are not those") {
      let path = try $0.pathOfNewestSecret()
      try $0.flip(path, at: try Bytes.read(path).count - 20)
    },
    Damage("a damaged header", says: "header") { try $0.flip($0.header, at: 60) },
    Damage("a lost header", says: "header is missing") {
      try FileManager.default.removeItem(atPath: $0.header)
    },
    Damage("a lost key file", says: "key") {
      try FileManager.default.removeItem(atPath: $0.path("state/\($0.app)/vault.key"))
    },
    Damage("an open key file", says: "vault.key") {
      chmod($0.path("state/\($0.app)/vault.key"), 0o644)
    },
    Damage("a damaged entry", says: "damaged") { try $0.flip(try $0.payload("avatar"), at: 1) },
    Damage("a damaged sidecar", says: "damaged") {
      try $0.flip(try $0.payload("avatar") + ".meta", at: 50)
    },
    Damage("a sidecar of a newer version", says: "newer version") {
      try $0.makeSidecarNewer("avatar")
    },
    Damage("a file kept aside", says: "kept aside") {
      let name = "config/\($0.app)/standard.jsonl.damaged-1760000000"
      try $0.directory.write([1], to: name)
      chmod($0.path(name), 0o600)
    },
    Damage("a killed writer's file", says: "killed") {
      let name = "data/\($0.app)/vault/.entry.1f.tmp"
      try $0.directory.write([1], to: name)
      chmod($0.path(name), 0o600)
      try $0.makeOld($0.path(name))
    },
    Damage("an emptied cache", says: "killed") {
      let path = $0.path("cache/\($0.app)/caches/.Images.1f.trash")
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
      try $0.makeOld(path)
    },
  ]

  /// What is left of a writer that cannot live any more.
  private func makeOld(_ path: String) throws {
    #expect(try run("doctor", app).status == 0, "its writer may live")
    let old = Date(timeIntervalSinceNow: -200_000)
    try FileManager.default.setAttributes([.modificationDate: old], ofItemAtPath: path)
  }

  /// Each is planted alone, found alone, and left as it is.
  @Test(arguments: damages) func theDoctorFinds(_ damage: Damage) throws {
    try fill()
    try damage.plant(self)
    try expectOneFinding(damage.word) { try run("doctor", app) }
  }

  func expectOneFinding(_ word: String, _ examine: () throws -> Example.Run) throws {
    let before = try snapshot()
    let run = try examine()
    #expect(run.status == 1 && run.text.contains(word), "\(run.text)")
    #expect(run.text.contains("1 problem."), "\(run.text)")
    #expect(try snapshot() == before)
  }

  @Test func theDoctorFindsLooseModes() throws {
    try fill()
    chmod(header, 0o644)
    try expectOneFinding("chmod go= '\(header)'") { try run("doctor", app) }
  }
}
