import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  /// What the file of the suite `team` is instead of a file.
  enum LinkedSuite: CaseIterable { case link, chain, linkToNothing }

  private var teamName: String { "config/\(app)/team.jsonl" }
  private var team: String { path(teamName) }

  /// As dot-file managers and Kubernetes make them. A set makes the file that a link leads to.
  @Test(arguments: LinkedSuite.allCases)
  func doctorFindsNoProblemsInLinkedSettings(_ linked: LinkedSuite) throws {
    try fill()
    switch linked {
    case .link:
      try FileSystem.rename(team, to: path("dotfiles"))
      try directory.link(teamName, to: path("dotfiles"))
    case .chain:
      let version = path("config/\(app)/..2026")
      try FileSystem.makeDirectory(version, mode: 0o700)
      try FileSystem.rename(team, to: version + "/team.jsonl")
      try directory.link("config/\(app)/..data", to: "..2026")
      try directory.link(teamName, to: "..data/team.jsonl")
    case .linkToNothing:
      try FileSystem.unlink(team)
      try directory.link(teamName, to: path("missing"))
    }
    let before = try directory.tree()
    let run = try run("doctor", app)
    #expect(run.status == 0 && run.text.contains("no problems."), "\(run)")
    #expect(try directory.tree() == before)
    #expect(try self.run("settings", "set", app + "/team", "later", "1").status == 0)
    #expect(try self.run("settings", "get", app + "/team", "later").text == "1\n")
    #expect(try FileSystem.status(team, followsLinks: false)?.isSymbolicLink == true)
  }

  /// No set can make what it leads to.
  @Test(arguments: ["missing/team.jsonl", "team.jsonl"])
  func doctorFindsALinkThatCannotBeFollowed(_ target: String) throws {
    try fill()
    try FileSystem.unlink(team)
    try directory.link(teamName, to: target)
    #expect(try run("settings", "set", app + "/team", "later", "1").status != 0)
    let run = try run("doctor", app)
    #expect(run.status == 1 && run.text.contains("problem  \(team): "), "\(run)")
    #expect(run.text.contains("1 problem."), "\(run)")
  }

  /// It leads to a file of the user, which the user who made the link has chosen.
  @Test(.enabled(if: geteuid() == 0, "only root can give a link away"))
  func doctorFindsALinkOfAnotherUser() throws {
    try fill()
    try FileSystem.rename(team, to: path("chosen"))
    try directory.link(teamName, to: path("chosen"))
    try #require(lchown(team, 65_534, 65_534) == 0)
    let refused = try run("settings", "get", app + "/team", "numbers")
    #expect(refused.failed(77, "user 65534 has made this link"), "\(refused)")
    try expectOneFinding("problem  \(team): ") { try run("doctor", app) }
    // Without the option, chown(1) changes what the link leads to.
    #expect(try run("doctor", app).text.contains("chown -h --reference"))
  }
}
