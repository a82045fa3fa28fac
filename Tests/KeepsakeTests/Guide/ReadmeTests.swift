import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The snippets of README; `SnippetTests` compares them.
@Suite(.ownThread, .temporaryStorage, .quickPassphrases) struct ReadmeTests {
  @Test func allFacadesStoreAndReturnValues() async throws {
    let data = Data("image".utf8)
    func download() async throws -> Article { Article(title: "News") }

    try StorageSystem.bootstrap(app: "com.example.notes")

    Defaults.set("dark", forKey: "theme")
    let size = Defaults.get("fontSize", default: 16)
    Defaults.update("launches", default: 0) { $0 += 1 }
    struct Settings { @Default("fontSize") var fontSize = 16 }

    SecureVault.set("tok", forKey: "accessToken")
    let token = SecureVault.get("accessToken")

    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let page: Article = try await DiskCache.fetch("page", expiry: .minutes(5)) {
      try await download()
    }

    #expect(Defaults.string("theme") == "dark" && size == 16 && Defaults.int("launches") == 1)
    #expect(Settings().fontSize == 16 && token == "tok")
    #expect(DiskCache.get("image_001") == data && page == Article(title: "News"))
    #expect(DiskCache.model("page") == page)
  }

  /// Visitors decide within seconds whether to read on.
  @Test func readmeIsShort() throws {
    #expect(try Document.readme.text().split(whereSeparator: \.isWhitespace).count <= 700)
  }

  /// One command runs the main example, the other runs the tests; both first install what is
  /// missing.
  @Test func readmeHasTwoCommands() throws {
    let commands = try Document.readme.text().matches(of: /(?ms)^```sh\n(.*?)^```$/).map(\.1)
    try #require(commands.count == 2)
    #expect(commands[0].hasPrefix(".ci/install && swift run "))
    #expect(commands[1].hasPrefix(".ci/install --tests && swift test"))
    #expect(commands.allSatisfy { $0.filter(\.isNewline).count == 1 })
  }
}

private struct Article: Codable, Equatable { var title: String }
