import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func reportsDamageAndListsTheRest() throws {
    try fill()
    let secret = try pinFile()
    try flipBit(of: secret, at: 60)
    let list = try run("vault", "list", app)
    #expect(
      list.status == 1 && list.text.contains("accessToken") && list.errors.contains("damaged"))
    let rows = try inspector.run(["vault", "list", app, "--json"])
    #expect(try rows.status == 1 && rows.rows().count == 1)
    try expectFailure(1, "damaged", "vault", "show", app, "pin", "--reveal")
    let protected = try run("vault", "protect", app, "--key-file")
    #expect(
      protected.status == 1 && protected.errors.contains("damaged"),
      "one secret could not be re-encrypted")
    try flipBit(of: header, at: 3)
    #expect(try run("vault", "list", app).status == 1)

    try FileManager.default.removeItem(atPath: header)
    try expectFailure(1, "header is missing", "vault", "list", app)
    try directory.write([], to: "config/file")
    try expectFailure(74, "a file is in the way of a directory", "settings", "list", "file")

    try flipBit(of: journal, at: 80)
    // Until the file has not changed for a while, a program may be writing it.
    var settings = try run("settings", "list", app)
    try waitUntil("the damage is reported") {
      if settings.status == 0 { settings = try run("settings", "list", app) }
      return settings.status == 1
    }
    #expect(settings.errors.contains("damaged"))
    #expect(settings.text.contains("size"), "intact values are listed")
    try flipBit(of: path("config/\(app)/team.jsonl"), at: 27)  // one of three copies of the version
    try makeVersionNewer(path("config/\(app)/team.jsonl"))
    try expectFailure(1, "newer version", "settings", "list", app + "/team")
  }

  /// Gives a journal the version number of a later format.
  func makeVersionNewer(_ path: String) throws {
    let text = String(decoding: try Bytes.read(path), as: UTF8.self)
    let header = text.prefix(JournalFormat.headerSize).replacing(/"\d:/, with: "\"2:")
    try Bytes.write(Array((header + text.dropFirst(JournalFormat.headerSize)).utf8), to: path)
  }

  func makeSidecarNewer(_ key: String) throws {
    let path = try payload(key) + ".meta"
    let newer = Bytes.put(UInt8(2), at: 3, in: try Bytes.read(path))
    try Bytes.write(Sidecar.summed(newer), to: path)
  }
}
