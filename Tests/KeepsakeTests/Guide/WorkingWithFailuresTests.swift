import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The snippets of the article on failures; `SnippetTests` compares them.
@Suite(.temporaryStorage) struct WorkingWithFailuresTests {
  @Test func setReturnsWhetherTheValueIsStored() {
    StorageSystem.onFailure = { failure in log("\(failure)") }
    let isStored = Defaults.set("dark", forKey: "theme")
    #expect(isStored)
  }

  @Test func storesThrow() {
    let png = Data("p".utf8)

    do {
      try Defaults.suite("team").set("dark", forKey: "theme")
      try SecureVault.service("com.app.auth").set("tok", forKey: "refreshToken")
      try DiskCache.named("Images").set(png, forKey: "avatar")
    } catch StorageError.Code.diskFull {
      print("free some space first")
    } catch {
      print(error)
    }
    #expect(Defaults.string("theme", suite: "team") == "dark")
    #expect(SecureVault.get("refreshToken", service: "com.app.auth") == "tok")
    #expect(DiskCache.get("avatar", cache: "Images") == png)
  }

  @Test func toolsHaveExitCodes() {
    let codes: [StorageError.Code] = [.locked, .accessDenied, .diskFull, .timedOut, .damaged]
    let numbers = codes.map { exitCode(of: StorageError($0, operation: "set", remedy: "")) }
    #expect(numbers == [77, 77, 73, 75, 70])
  }

  @Test func toolsPrintTheReason() throws {
    func run() throws { _ = try Defaults.shared.int("theme") }
    func exit(_ code: Int32) { #expect(code == 70) }
    Defaults.set("dark", forKey: "theme")
    try tool(run, exit)
  }

  /// The table of codes in the article has all of them.
  @Test func theArticleListsAllCodes() throws {
    let interface = try String(
      contentsOf: Repository.file("Tests/PublicInterface.txt"), encoding: .utf8)
    let codes = interface.matches(of: /StorageError\.Code: static (?:let|func) (\w+)/).map(\.1)
    let article = try #require(Document.all.first { $0.name == "Failures" }).text()
    let rows = article.matches(of: /(?m)^\| `(\w+)(?:\(errno\))?` \|/).map(\.1)
    #expect(codes.count > 10 && Set(codes) == Set(rows))
  }
}

private func log(_ text: String) { print(text) }

func exitCode(of error: StorageError) -> Int32 {
  switch error.code {
  case .locked, .wrongPassphrase, .accessDenied: 77
  case .diskFull: 73
  case .timedOut: 75
  default: 70
  }
}

private func print(_ error: StorageError) {
  let parts = ["mytool", error.key, error.failureReason, error.path].compactMap(\.self)
  FileHandle.standardError.write(Data("\(parts.joined(separator: ": "))\n".utf8))
}

private func tool(_ run: () throws -> Void, _ exit: (Int32) -> Void) throws {
  StorageSystem.onFailure = { failure in
    if failure.severity == .failure { print(failure) }
  }
  do {
    try run()
  } catch let error as StorageError {
    print(error)
    exit(exitCode(of: error))
  }
}
