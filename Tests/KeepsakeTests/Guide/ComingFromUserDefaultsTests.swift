import Foundation
import Keepsake
import KeepsakeTesting
import Observation
import Testing

@testable import KeepsakeTestSupport

private struct User: Codable, Equatable {
  var name = "Ann"
}

/// Replaces a dictionary of mixed types.
private struct Window: Codable, Equatable {
  var title: String
  var width: Int
}

private struct Settings: Sendable {
  @Default("age") var age = 18
}

@Observable private final class SettingsModel {
  @ObservationIgnored @Default("age") var age = 18
}

extension Defaults.Key<Int> {
  fileprivate static let age = Self("age", default: 18)
}

@Suite(.temporaryStorage) struct ComingFromUserDefaultsTests {
  @Test func valuesAreReadAsTheyWereSet() {
    Defaults.set("Ann", forKey: "name")
    let name: String? = Defaults.get("name")
    #expect(name == "Ann")
    #expect(Defaults.string("name") == "Ann")
    #expect(Defaults.contains("name") && !Defaults.contains("age"))
    let user = User(name: "Ben")
    Defaults.set(user, forKey: "user")
    let stored: User? = Defaults.model("user")
    #expect(stored == user)
  }

  @Test func typedGettersReturnFoundationsDefaults() {
    #expect(Defaults.string("name") == nil)
    #expect(Defaults.int("age") == 0)
    #expect(Defaults.double("ratio") == 0)
    #expect(Defaults.bool("isNew") == false)
    #expect(Defaults.data("icon") == nil)
    Defaults.set(25, forKey: "age")
    Defaults.set(0.5, forKey: "ratio")
    Defaults.set(Float(0.25), forKey: "gain")
    Defaults.set(true, forKey: "isNew")
    Defaults.set(Data([1, 2]), forKey: "icon")
    let gain = Defaults.get("gain", default: Float(0))
    #expect(Defaults.int("age") == 25 && Defaults.double("ratio") == 0.5 && gain == 0.25)
    #expect(Defaults.bool("isNew") && Defaults.data("icon") == Data([1, 2]))
  }

  @Test func modelsOfOlderVersionsAreRead() throws {
    let list: [String: Any] = ["profile": try JSONEncoder().encode(User(name: "Ben")), "age": 3]
    try Defaults.shared.import(
      PropertyListSerialization.data(fromPropertyList: list, format: .xml, options: 0))
    let old: User? = Defaults.model("profile")
    #expect(old == User(name: "Ben"))
    #expect(Defaults.bool("isNew", default: true))
    try Defaults.shared.remove(["name", "age"])
    #expect(Defaults.keys() == ["profile"])
  }

  @Test func urlsDatesAndCollectionsAreStored() throws {
    let address = try #require(URL(string: "https://example.com/notes?page=1"))
    let now = Date.now
    Defaults.set(address, forKey: "home")
    Defaults.set(now, forKey: "since")
    Defaults.set([3, 1], forKey: "scores")
    Defaults.set(["mail": 2], forKey: "limits")
    let home: URL? = Defaults.get("home")
    let since: Date? = Defaults.get("since")
    let scores: [Int]? = Defaults.get("scores")
    let limits: [String: Int]? = Defaults.get("limits")
    #expect(home == address && since == now && scores == [3, 1] && limits == ["mail": 2])
    #expect(Defaults.get("tags", default: [String]()) == [])
    Defaults.set(["new"], forKey: "tags")
    let tags = Defaults.get("tags", default: [String]())
    #expect(tags == ["new"])
    Defaults.set(Window(title: "Notes", width: 80), forKey: "window")
    let window: Window? = Defaults.model("window")
    #expect(window == Window(title: "Notes", width: 80))
  }

  @Test func defaultIsGivenAtTheReadOrWithTheKey() {
    #expect(Defaults.get("age", default: 18) == 18)
    #expect(Defaults[.age] == 18 && Settings().age == 18)
    #expect(!Defaults.contains("age"))
    Defaults.update("age", default: 0) { $0 += 1 }
    #expect(Defaults.get("age", default: 18) == 1 && Defaults[.age] == 1 && Settings().age == 1)
  }

  @Test func removedValuesAreGone() {
    Defaults.set("Ann", forKey: "name")
    Defaults.set(nil, forKey: "name")
    #expect(!Defaults.contains("name"))
    Defaults.set("Ann", forKey: "name")
    #expect(Defaults.remove("name"))
    #expect(Defaults.string("name") == nil)
  }

  @Test func suiteIsExportedAsADocument() throws {
    Defaults.set(18, forKey: "age")
    #expect(Defaults.keys() == ["age"])
    let document = try Defaults.shared.export(as: .json)
    #expect(try JSONDecoder().decode([String: Int].self, from: document) == ["age": 18])
    #expect(Defaults.synchronize())
  }

  @Test func suitesAreSeparate() throws {
    Defaults.set(18, forKey: "age", suite: "team")
    let team = Defaults.suite("team")
    #expect(try team.get("age") == 18)
    #expect(Defaults.int("age") == 0)
    #expect(Defaults.get("age", default: Defaults.int("age", suite: "team")) == 18)
    let document = try Defaults.suite("team").export(as: .propertyList)
    let domain = try PropertyListSerialization.propertyList(from: document, format: nil)
    #expect(domain as? [String: Int] == ["age": 18])
    #expect(Defaults.removeAll(suite: "team"))
    #expect(Defaults.keys(suite: "team") == [])
    Defaults.set(25, forKey: "age", suite: .memory)
    #expect(Defaults.int("age", suite: .memory) == 25)
    #expect(try Defaults.int("age") == 0 && Defaults.shared.suites() == ["team"])
  }

  @Test(arguments: [nil, 30]) func argumentsAreReadExplicitly(argument: Int?) {
    let options = (age: argument, isVerbose: false)
    Defaults.set(25, forKey: "age")
    let age = options.age ?? Defaults.int("age")
    #expect(age == argument ?? 25)
    #expect(Defaults.int("age") == 25)
  }

  @Test(.timeLimit(.minutes(20))) func loopsReceiveChanges() async {
    let changed = await firstShown {
      Defaults.set(100 + $0, forKey: "age")
    } in: { show in
      for await age in Defaults.changes("age", default: 18) { show(age) }
    }
    #expect(changed ?? 0 > 100)
    let settings = Settings()
    let observed = await firstShown {
      settings.age = 1_000 + $0
    } in: { show in
      for await age in settings.$age.changes { show(age) }
    }
    #expect(observed ?? 0 > 1_000)
    let noticed = await firstShown {
      Defaults.set(10_000 + $0, forKey: "age")
    } in: { show in
      func refresh(_ names: Set<String>) { show(names == ["age"] ? Defaults.int("age") : 0) }
      for await names in Defaults.changes(suite: .standard) { refresh(names) }
    }
    #expect(noticed ?? 0 > 10_000)
  }

  @Test(.timeLimit(.minutes(20))) func viewModelsAreTracked() async {
    let model = SettingsModel()
    #expect(model.age == 18)
    await confirmation("the change is observed") { isObserved in
      withObservationTracking {
        _ = model.age
      } onChange: {
        isObserved()
      }
      // Observers are notified on this thread, before the call returns.
      Defaults.set(25, forKey: "age")
    }
    #expect(model.age == 25)
  }

  @Test func userDefaultsFilesAreImported() throws {
    let folder = try TemporaryDirectory()
    let oldFile = folder.file("notes.plist")
    let old: [String: Any] = ["age": 25, "name": "Ann", "icon": Data([1]), "tags": ["new"]]
    try PropertyListSerialization.data(fromPropertyList: old, format: .binary, options: 0)
      .write(to: oldFile)
    try Defaults.shared.import(Data(contentsOf: oldFile))
    #expect(Defaults.int("age") == 25 && Defaults.string("name") == "Ann")
    #expect(Defaults.data("icon") == Data([1]))
    #expect(Defaults.get("tags", default: [String]()) == ["new"])
  }

  @Test func textDoesNotConvertToANumber() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    Defaults.set("12", forKey: "age")
    #expect(Defaults.int("age") == 0)
    #expect(failures.all.map(\.code) == [.wrongType])
  }
}
