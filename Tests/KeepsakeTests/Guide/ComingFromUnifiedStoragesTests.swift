import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

private struct Article: Codable, Equatable {
  var title = "News"
}

extension Defaults.Key<Int> {
  fileprivate static let visits = Self("visits", default: 0, suite: "team")
}
extension Defaults.Key<String> {
  fileprivate static let draft = Self("draft", default: "", suite: .memory)
  fileprivate static let accent = Self("accent", default: "blue", suite: "themes")
}
extension Defaults.Key<String?> {
  fileprivate static let nickname = Self("nickname")
}
extension SecureVault.Key<String> {
  fileprivate static let apiToken = Self("apiToken", service: "com.app.auth")
  fileprivate static let pin = Self("pin", access: .userPresence)
}
extension DiskCache.Key<Article> {
  fileprivate static let frontPage = Self("frontPage", expiry: .minutes(5), cache: "News")
}

/// A custom engine of the app.
private typealias CloudEngine = TableEngine

@Suite(.temporaryStorage) struct ComingFromUnifiedStoragesTests {
  @Test func keysNameTheirSuite() throws {
    Defaults[.visits] = 25
    #expect(Defaults[.visits] == 25 && Defaults.int("visits", suite: "team") == 25)
    #expect(Defaults.remove(.visits))
    #expect(Defaults[.visits] == 0)
    Defaults[.nickname] = "Annie"
    Defaults[.nickname] = nil
    #expect(!Defaults.contains("nickname"))
    Defaults[.draft] = "Dear Ben"
    #expect(Defaults.string("draft", suite: .memory) == "Dear Ben" && Defaults.keys() == [])
    try Defaults.suite("team").set(25, for: .visits)
    #expect(Defaults[.visits] == 25)
  }

  @Test(
    .temporaryStorage(
      engines: ["themes": StorageEngines.files(in: .applicationSupport.subfolder("themes"))]))
  func fileEngineStoresASuite() throws {
    Defaults[.accent] = "red"
    #expect(try Folder.applicationSupport.load("themes/accent.json") == "\"red\"")
    #expect(Defaults[.accent] == "red")
  }

  @Test(.temporaryStorage(engines: ["session": CloudEngine()]))
  func customEngineStoresASuite() throws {
    Defaults.set(25, forKey: "visits", suite: "session")
    #expect(Defaults.int("visits", suite: "session") == 25)
    #expect(try Defaults.suite("session").fileURL == nil)
  }

  @Test func keysNameTheirServiceAndTheirCache() throws {
    SecureVault[.apiToken] = "tok"
    #expect(SecureVault[.apiToken] == "tok")
    #expect(SecureVault.get("apiToken", service: "com.app.auth") == "tok")
    SecureVault[.apiToken] = nil
    #expect(SecureVault.keys(service: "com.app.auth") == [])
    let article = Article()
    DiskCache[.frontPage] = article
    #expect(DiskCache[.frontPage] == article && DiskCache.keys(cache: "News") == ["frontPage"])
    #expect(try DiskCache.named("News").entry(.frontPage)?.expires != nil)
  }

  @Test func eachStoreIsEmptiedSeparately() throws {
    Defaults.set(1, forKey: "visits")
    Defaults[.visits] = 25
    Defaults[.draft] = "Dear Ben"
    SecureVault.set("other", forKey: "apiToken")
    SecureVault[.apiToken] = "tok"
    #expect(Defaults.removeAll(suite: "team"))
    #expect(Defaults[.visits] == 0 && Defaults.int("visits") == 1 && Defaults[.draft] != "")
    #expect(SecureVault.removeAll(service: "com.app.auth"))
    #expect(SecureVault[.apiToken] == nil && SecureVault.get("apiToken") == "other")
    #expect(Defaults.removeAll(suite: .memory) && Defaults[.draft] == "")
    try SecureVault.shared.eraseVault()
    #expect(SecureVault.get("apiToken") == nil && Defaults.int("visits") == 1)
  }

  @Test func removeAllEmptiesEveryStore() throws {
    Defaults[.visits] = 25
    Defaults[.draft] = "Dear Ben"
    SecureVault[.apiToken] = "tok"
    DiskCache[.frontPage] = Article()
    try Folder.applicationSupport.save("text", as: "note.txt")
    #expect(StorageSystem.removeAll())
    #expect(Defaults[.visits] == 0 && Defaults[.draft] == "")
    #expect(SecureVault[.apiToken] == nil && DiskCache[.frontPage] == nil)
    #expect(try Folder.applicationSupport.exists("note.txt"))
  }

  @Test(
    .temporaryStorage(authenticate: { $0.isNew || $0.reason == "Unlock notes" ? "p" : nil }),
    .quickPassphrases)
  func keysNameTheirAccess() throws {
    SecureVault[.pin] = "1234"
    #expect(try SecureVault.shared.entry(.pin)?.access == .userPresence)
    let pin = SecureVault.get(.pin, reason: "Unlock notes")
    #expect(pin == "1234")
  }

  @Test(.timeLimit(.minutes(20))) func loopsReceiveChangesInTheSuiteOfTheKey() async {
    let seen = await firstShown {
      Defaults[.visits] = 100 + $0
    } in: { show in
      for await visits in Defaults.changes(.visits) { show(visits) }
    }
    #expect(seen ?? 0 > 100)
  }
}
