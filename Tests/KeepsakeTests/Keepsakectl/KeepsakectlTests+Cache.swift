import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func listsSweepsAndClearsCaches() throws {
    try fill()
    let rows = try run("cache", "list", app, "--json").rows()
    #expect(rows.map { $0["key"] as? String } == ["avatar", "page", "image_001"])
    #expect(rows.map { $0["bytes"] as? Int } == [3, 3, 5_000])
    #expect(rows.map { $0["expires"] is NSNull } == [false, false, true])
    #expect(try run("cache", "list", app + "/standard").text.contains("image_001  5 kB"))
    let expiring = try run("cache", "expiry", app, "--json").rows()
    #expect(expiring.map { $0["key"] as? String } == ["page", "avatar"])
    let sizes = try run("cache", "sizes", app, "--json").rows()
    #expect(sizes.map { $0["entries"] as? Int } == [2, 1])
    #expect(sizes.allSatisfy { ($0["bytes"] as? Int ?? 0) >= 8_192 })
    let stats = try run("cache", "stats", app, "--json").rows()
    #expect(stats.map { $0["entries"] as? Int } == [2, 1])
    #expect(stats.map { $0["bytes"] as? Int } == [6, 5_000])
    #expect(stats.map { $0["bytesOnDisk"] as? Int } == sizes.map { $0["bytes"] as? Int })
    let times = ["WithinHour", "WithinDay", "WithinWeek", "Later", "Never"].map { "expire\($0)" }
    for row in stats {
      #expect(times.reduce(0) { $0 + (row[$1] as? Int ?? 0) } == row["entries"] as? Int)
      #expect((row["greatestAge"] as? Int ?? -1) >= (row["medianAge"] as? Int ?? 0))
    }
    #expect(stats.map { $0["expireNever"] as? Int } == [0, 1])
    #expect(try run("cache", "stats", app).text.contains("MEDIAN AGE"))
    try expectFailure(1, "has no cache \"Imgs\". It has: Images", "cache", "list", app + "/Imgs")
    try expectFailure(1, "has no cache here", "cache", "sizes", "com.example.missing")

    let scope = stores()
    defer { scope.close() }
    try aSecondAgo {
      try scope.cache("Images").set("gone", forKey: "gone", expiry: .seconds(0.05))
    }
    #expect(try run("cache", "list", app + "/Images", "--json").rows().count == 2)
    let swept = try run("cache", "sweep", app, "--json").rows()
    #expect(swept.map { $0["expired"] as? Int } == [1, 0])

    try expectFailure(64, "--yes", "cache", "clear", app + "/Images")
    var asked = try type("cache", "clear", app + "/Images", answers: [("[y/N] ", "n")])
    #expect(asked.status == 1 && asked.screen.contains("nothing was deleted"))
    #expect(try run("cache", "list", app, "--json").rows().count == 3)
    asked = try type("cache", "clear", app + "/Images", answers: [("[y/N] ", "y")])
    #expect(asked.status == 0 && asked.screen.contains("Cleared Images."), "\(asked.screen)")
    #expect(try run("cache", "list", app, "--json").rows().count == 1)
    #expect(try run("cache", "clear", app, "--yes").status == 0)
    #expect(try run("cache", "list", app, "--json").rows().isEmpty)
  }

  @Test func handlesOtherEntriesAndCachesWhenOneFails() throws {
    try fill()
    try makeSidecarNewer("avatar")
    let listed = try inspector.run(["cache", "list", app, "--json"])
    #expect(listed.status == 1 && listed.errors.contains("newer version"), "\(listed)")
    #expect(try listed.rows().map { $0["key"] as? String } == ["page", "image_001"])

    let ledger = path("cache/\(app)/caches/.Images.ledger")
    try FileSystem.unlink(ledger)
    try FileSystem.createDirectory(ledger)
    let cleared = try run("cache", "clear", app, "--yes")
    #expect(cleared.status == 74 && cleared.text.contains("Cleared standard.\n"), "\(cleared)")
    try FileManager.default.removeItem(atPath: ledger)
    #expect(try inspector.run(["cache", "list", app, "--json"]).rows().count == 1)
  }
}
