import Foundation
import Keepsake
import KeepsakeTesting
import Observation
import Testing

@testable import KeepsakeTestSupport

/// The snippets of the article on settings; `SnippetTests` compares them.
@Suite(.temporaryStorage) struct WorkingWithSettingsTests {
  @Test func valuesAreSetReadAndRemoved() throws {
    Defaults.set(User(name: "Ann"), forKey: "user")
    Defaults.set(11, forKey: "volume")

    Defaults.set("dark", forKey: "theme")
    let theme: String? = Defaults.get("theme")
    let size = Defaults.get("fontSize", default: 16)
    let user: User? = Defaults.model("user")
    let isNew = Defaults.bool("isNew", default: true)
    #expect(theme == "dark" && size == 16 && user?.name == "Ann" && isNew)
    Defaults.set(nil, forKey: "user")
    try Defaults.shared.remove(["size", "tags"])
    if Defaults.contains("theme") { Defaults.remove("theme") }
    for key in Defaults.keys() { print(key) }
    #expect(Defaults.keys() == ["volume"])
    Defaults.removeAll()
    Defaults.update("launches", default: 0) { $0 += 1 }
    Defaults.synchronize()
    #expect(Defaults.keys() == ["launches"])
  }
}

extension Defaults.Key<Int> {
  fileprivate static let fontSize = Self("fontSize", default: 16)
  fileprivate static let volume = Self("volume", default: 11)
}

private struct Settings: Sendable {
  static let shared = Settings()
  @Default("fontSize") var fontSize = 16
  @Default(.volume) var volume
  @DefaultOptional("lastLogin") var lastLogin: Date?
}

private enum View {
  @MainActor @Observable final class Preferences {
    @ObservationIgnored @Default("fontSize") var fontSize = 16
    @ObservationIgnored @DefaultOptional("lastLogin") var lastLogin: Date?
  }
}

extension WorkingWithSettingsTests {
  @Test func typedKeysSetAndUpdate() {
    Defaults[.fontSize] = 18
    Defaults.update(.fontSize) { $0 += 1 }
    #expect(Defaults.int("fontSize") == 19)
  }

  @Test func propertiesSetAndReset() {
    Settings.shared.fontSize = 18
    #expect(Defaults.int("fontSize") == 18 && Settings.shared.lastLogin == nil)
    Settings.shared.$fontSize.reset()
    #expect(Settings.shared.fontSize == 16 && !Defaults.contains("fontSize"))
    #expect(Settings.shared.volume == 11)
  }

  @Test func keysAreRenamed() throws {
    func renameTextSize() throws {
      let store = Defaults.shared
      if let old: Int = try store.get("textSize") {
        if try !store.contains("fontSize") { try store.set(old, forKey: "fontSize") }
        try store.remove("textSize")
      }
    }
    try renameTextSize()
    #expect(Defaults.keys() == [])
    Defaults.set(20, forKey: "textSize")
    try renameTextSize()
    #expect(Defaults.keys() == ["fontSize"] && Defaults.int("fontSize") == 20)
    // After a crash between the two writes, and a change of the new key since.
    Defaults.set(20, forKey: "textSize")
    Defaults.set(24, forKey: "fontSize")
    try renameTextSize()
    #expect(Defaults.keys() == ["fontSize"] && Defaults.int("fontSize") == 24)
  }

  @Test func typesAreChanged() {
    func convertFontSize() {
      guard let text: String = try? Defaults.shared.get("fontSize") else { return }
      Defaults.set(Int(text) ?? 16, forKey: "fontSize")
    }
    convertFontSize()
    #expect(Defaults.keys() == [])
    Defaults.set("18", forKey: "fontSize")
    convertFontSize()
    convertFontSize()
    #expect(Defaults.int("fontSize") == 18)
  }

  /// The declarations for each kind of isolation are in programs of Tests/Clients, which
  /// `ClientTests` runs.
  @Test func declarationsOfTheTableAreInClients() throws {
    let directories = [
      "Swift 6, anywhere": "Swift6Sendable",
      "Swift 6, on the main actor": "Swift6MainActor",
      "Swift 6, default isolation MainActor": "Swift6DefaultMainActor",
      "Swift 5 mode": "Swift5",
    ]
    let rows = try Document.workingWithSettings.text()
      .matches(of: /(?m)^\| (Swift [^|]+) \| `([^`]+)` \|$/)
    #expect(rows.count == directories.count)
    for row in rows {
      let name = try #require(directories[String(row.1)])
      let files = try FileManager.default.contentsOfDirectory(
        at: Repository.file("Tests/Clients/Sources/\(name)"), includingPropertiesForKeys: nil)
      let sources = try files.map { Code(source: try String(contentsOf: $0, encoding: .utf8)) }
      let start = Code(row.2.dropLast())  // The type has more members there.
      #expect(sources.contains { $0.contains(start) }, "\(row.1)")
    }
  }

  @Test @MainActor func viewModelsSetSettings() {
    let preferences = View.Preferences()
    preferences.fontSize = 20
    preferences.lastLogin = Date(timeIntervalSinceReferenceDate: 1)
    #expect(Defaults.int("fontSize") == 20 && Defaults.contains("lastLogin"))
  }

  @Test func suitesAreSeparate() throws {
    let sharedFolder = try Folder.temporary.subfolder("shared").create()

    Defaults.set(16, forKey: "size", suite: "com.example.shared")
    Defaults.set(16, forKey: "size", suite: .memory)
    Defaults.set(16, forKey: "size", suite: Defaults.Suite("team", in: sharedFolder))

    let file = sharedFolder.appending(path: "team.jsonl")
    #expect(FileManager.default.fileExists(atPath: file.path))
    #expect(Defaults.int("size", suite: .memory) == 16 && !Defaults.contains("size"))
  }

  @Test func loopReceivesChangesOfAKey() async {
    let set: @Sendable (Int) -> Void = { Defaults.set($0, forKey: "fontSize") }
    let shown = await firstShown(whileSetting: set) { show in
      for await size in Defaults.changes("fontSize", default: 16) {
        print("now", size)
        show(size)
      }
    }
    #expect((shown ?? 0) > 0)
  }

  @Test func loopReceivesChangesOfASuite() async {
    let set: @Sendable (Int) -> Void = { Defaults.set($0, forKey: "theme", suite: "team") }
    let shown = await firstShown(whileSetting: set) { show in
      @Sendable func applyTheme() { show(1) }
      for await names in Defaults.changes(suite: "team") {
        if names.contains("theme") { applyTheme() }
      }
    }
    #expect(shown == 1)
  }

  @Test func importedValuesAreExported() throws {
    try Folder.temporary.save(Data(#"{"volume": 11}"#.utf8), as: "old.json")
    let oldFile = try Folder.temporary.url("old.json")

    try Defaults.shared.import(Data(contentsOf: oldFile))
    let backup = try Defaults.shared.export(as: .json)
    for (key, value) in Defaults.values() { print(key, value) }

    let copy = try JSONDecoder().decode([String: Int].self, from: backup)
    #expect(Defaults.int("volume") == 11 && copy == ["volume": 11])
  }
}

private struct User: Codable { var name: String }
