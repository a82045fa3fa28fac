import Foundation
import Keepsake
import KeepsakeTesting
import Observation
import Testing

/// The snippets of the article on settings; `SnippetTests` compares.
@Suite(.temporaryStorage) struct WorkingWithSettingsTests {
  @Test func readAndWrite() {
    Defaults.set(User(name: "Ann"), forKey: "user")

    Defaults.set("dark", forKey: "theme")
    let theme: String? = Defaults.get("theme")
    let size = Defaults.get("fontSize", default: 16)
    let user: User? = Defaults.model("user")
    Defaults.remove("theme")

    #expect(theme == "dark" && size == 16 && user?.name == "Ann" && !Defaults.contains("theme"))
  }
}

extension Defaults.Key<Int> {
  fileprivate static let fontSize = Self("fontSize", default: 16)
}

private struct Settings: Sendable {
  static let shared = Settings()
  @Default("fontSize", defaultValue: 16) var fontSize: Int
  @DefaultOptional("lastLogin") var lastLogin: Date?
}

private enum View {
  @MainActor @Observable final class Preferences {
    @ObservationIgnored @Default("fontSize", defaultValue: 16) var fontSize: Int
    @ObservationIgnored @DefaultOptional("lastLogin") var lastLogin: Date?
  }
}

extension WorkingWithSettingsTests {
  @Test func typedKeys() {
    Defaults[.fontSize] = 18
    Defaults.update(.fontSize) { $0 += 1 }
    #expect(Defaults.int("fontSize") == 19)
  }

  @Test func properties() {
    Settings.shared.fontSize = 18
    #expect(Defaults.int("fontSize") == 18 && Settings.shared.lastLogin == nil)
    Settings.shared.$fontSize.reset()
    #expect(Settings.shared.fontSize == 16 && !Defaults.contains("fontSize"))
  }

  @Test @MainActor func viewModels() {
    let preferences = View.Preferences()
    preferences.fontSize = 20
    preferences.lastLogin = Date(timeIntervalSinceReferenceDate: 1)
    #expect(Defaults.int("fontSize") == 20 && Defaults.contains("lastLogin"))
  }

  @Test func suites() throws {
    let sharedFolder = try Folder.temporary.subfolder("shared").create()

    Defaults.set(16, forKey: "size", suite: "com.example.shared")
    Defaults.set(16, forKey: "size", suite: .memory)
    Defaults.set(16, forKey: "size", suite: Defaults.Suite("team", in: sharedFolder))

    let file = sharedFolder.appending(path: "team.jsonl")
    #expect(FileManager.default.fileExists(atPath: file.path))
    #expect(Defaults.int("size", suite: .memory) == 16 && !Defaults.contains("size"))
  }

  @Test func changesOfAKey() async {
    let set: @Sendable (Int) -> Void = { Defaults.set($0, forKey: "fontSize") }
    let shown = await firstShown(whileSetting: set) { show in
      for await size in Defaults.changes("fontSize", default: 16) {
        print("now", size)
        show(size)
      }
    }
    #expect((shown ?? 0) > 0)
  }

  @Test func changesOfASuite() async {
    let set: @Sendable (Int) -> Void = { Defaults.set($0, forKey: "theme", suite: "team") }
    let shown = await firstShown(whileSetting: set) { show in
      @Sendable func applyTheme() { show(1) }
      for await names in Defaults.changes(suite: "team") {
        if names.contains("theme") { applyTheme() }
      }
    }
    #expect(shown == 1)
  }

  @Test func failures() {
    do {
      try Defaults.suite("team").set("dark", forKey: "theme")
    } catch StorageError.Code.diskFull {
      print("free some space first")
    } catch {
      print(error)
    }
    #expect(Defaults.string("theme", suite: "team") == "dark")
  }

  @Test func importAndExport() throws {
    try Folder.temporary.save(Data(#"{"volume": 11}"#.utf8), as: "old.json")
    let oldFile = try Folder.temporary.url("old.json")

    try Defaults.shared.import(Data(contentsOf: oldFile))
    let backup = Defaults.export(as: .json)

    let copy = try JSONDecoder().decode([String: Int].self, from: #require(backup))
    #expect(Defaults.int("volume") == 11 && copy == ["volume": 11])
  }
}

private struct User: Codable { var name: String }
