import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func listsAppsAndTheirStores() throws {
    #expect(try run("list").text.isEmpty)
    #expect(try run("list", "--json").rows().isEmpty)
    try fill()
    let other = stores(of: "com.example.mail")
    defer { other.close() }
    try other.defaults("a/b").set(1, forKey: "x")
    // Another program's JSON lines are not settings.
    try directory.makeDirectory("config/other")
    try directory.write(Array("{}\n".utf8), to: "config/other/events.jsonl")

    let table = try run("list")
    #expect(table.status == 0)
    #expect(
      table.text == """
        APP                SUITES  SECRETS  CACHES
        com.example.mail   1       0        0
        com.example.notes  2       2        2

        """)
    let rows = try run("list", "--json").rows()
    #expect(rows.map { $0["app"] as? String } == ["com.example.mail", app])
    #expect(rows.map { $0["secrets"] as? Int } == [0, 2])

    let contents = try #require(try run("list", app, "--json").json() as? [String: Any])
    let services = try #require(contents["services"] as? [[String: Any]])
    #expect(services.map { $0["name"] as? String } == ["com.app.auth", "standard"])
    #expect(services.map { $0["secrets"] as? Int } == [1, 1])
    #expect(contents["vault"] as? String == "key file")
    let suites = try #require(contents["suites"] as? [[String: Any]])
    #expect(suites.map { $0["name"] as? String } == ["standard", "team"])
    #expect(suites.map { $0["keys"] as? Int } == [2, 1])
    let caches = try #require(contents["caches"] as? [[String: Any]])
    #expect(caches.map { $0["entries"] as? Int } == [2, 1])
    let mail = try #require(
      try run("list", "com.example.mail", "--json").json() as? [String: Any])
    #expect(
      mail["services"] is NSNull && mail["vault"] is NSNull,
      "every member is present, with null if there is no value")
    #expect(try run("list", app).text.contains("settings  team"))
    try expectFailure(1, "has no settings, secrets or caches here", "list", "com.example.missing")

    // In a systemd unit, the variable gives the directory of one app.
    let unit = try run(
      "list", "--json", environment: ["CONFIGURATION_DIRECTORY": path("config/\(app)")])
    #expect(try unit.rows().map { $0["suites"] as? Int }.contains(2))
  }

  /// As programs that manage dot-files make them.
  @Test func listsStoresWhoseDirectoriesAreLinks() throws {
    try fill()
    let list = try run("list").text
    for (number, name) in [
      "data/\(app)/vault", "cache/\(app)/caches/Images", "cache/\(app)/caches", "config/\(app)",
      "data/\(app)", "cache/\(app)",
    ].enumerated() {
      try FileSystem.rename(path(name), to: path("moved\(number)"))
      try directory.link(name, to: path("moved\(number)"))
      #expect(try run("list").text == list, "\(name)")
    }
    try directory.link("config/loop", to: path("config/loop"))
    try directory.link("config/file", to: path("moved3/standard.jsonl"))
    let run = try run("list")
    #expect(run.status == 0 && run.text == list && run.errors.isEmpty, "\(run)")
    #expect(try self.run("doctor").text.hasPrefix(app))
  }

  @Test func listsOtherStoresWhenOneFails() throws {
    try fill()
    try makeVersionNewer(path("config/\(app)/team.jsonl"))
    try flipBit(of: header, at: 60)
    let all = try run("list", app)
    #expect(all.status == 1 && all.text.contains("settings  team      unreadable"))
    #expect(all.text.contains("settings  standard  2 keys"), "\(all.text)")
    #expect(all.text.contains("cache     Images    2 entries"))
    let errors = all.errors.split(separator: "\n").filter { $0.hasPrefix("keepsakectl: ") }
    #expect(errors.count == 2, "\(errors)")
    let listed = try inspector.run(["list", app, "--json"])
    let contents = try #require(try listed.json() as? [String: Any])
    let suites = try #require(contents["suites"] as? [[String: Any]])
    #expect(listed.status == 1 && suites.map { $0["keys"] is NSNull } == [false, true])

    try FileSystem.unlink(keyFile)
    try flipBit(of: header, at: 60)
    let locked = try run("list", app)
    #expect(locked.text.contains("protected by a key file, locked"), "\(locked.text)")

    let loop = path("loop")
    try directory.link("loop", to: loop)
    let apps = try run("list", environment: ["XDG_DATA_HOME": loop])
    #expect(apps.status == 74 && apps.text.contains("com.example.notes  2       0        2"))
    #expect(apps.errors.hasPrefix("keepsakectl: \(loop): "), "\(apps.errors)")
  }
}
