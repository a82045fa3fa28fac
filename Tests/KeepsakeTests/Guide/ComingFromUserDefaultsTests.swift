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
  @Test func typedGettersReturnFoundationsDefaults() {
    #expect(Defaults.string("name") == nil && !Defaults.contains("name"))
    #expect(Defaults.int("age") == 0)
    #expect(Defaults.double("ratio") == 0)
    #expect(Defaults.bool("isNew") == false && Defaults.bool("isNew", default: true))
    #expect(Defaults.data("icon") == nil)
    Defaults.set("Ann", forKey: "name")
    Defaults.set(25, forKey: "age")
    Defaults.set(0.5, forKey: "ratio")
    Defaults.set(Float(0.25), forKey: "gain")
    Defaults.set(true, forKey: "isNew")
    Defaults.set(Data([1, 2]), forKey: "icon")
    let name: String? = Defaults.get("name")
    let gain = Defaults.get("gain", default: Float(0))
    #expect(name == "Ann" && Defaults.string("name") == "Ann" && Defaults.contains("name"))
    #expect(Defaults.int("age") == 25 && Defaults.double("ratio") == 0.5 && gain == 0.25)
    #expect(Defaults.bool("isNew") && Defaults.data("icon") == Data([1, 2]))
    #expect(Defaults.remove("name") && !Defaults.contains("name"))
  }

  @Test func modelsOfOlderVersionsAreRead() throws {
    let list: [String: Any] = ["profile": try JSONEncoder().encode(User(name: "Ben")), "age": 3]
    try Defaults.shared.import(
      PropertyListSerialization.data(fromPropertyList: list, format: .xml, options: 0))
    let old: User? = Defaults.model("profile")
    #expect(old == User(name: "Ben"))
    try Defaults.shared.remove(["name", "age"])
    #expect(Defaults.keys() == ["profile"])
  }

  @Test func modelsURLsDatesAndCollectionsAreStored() throws {
    let (user, now) = (User(name: "Ben"), Date.now)
    let address = try #require(URL(string: "https://example.com/notes?page=1"))
    Defaults.set(user, forKey: "user")
    Defaults.set(address, forKey: "home")
    Defaults.set(now, forKey: "since")
    Defaults.set([3, 1], forKey: "scores")
    Defaults.set(["mail": 2], forKey: "limits")
    Defaults.set(Window(title: "Notes", width: 80), forKey: "window")
    let stored: User? = Defaults.model("user")
    let home: URL? = Defaults.get("home")
    let since: Date? = Defaults.get("since")
    let scores: [Int]? = Defaults.get("scores")
    let limits: [String: Int]? = Defaults.get("limits")
    let tags = Defaults.get("tags", default: [String]())
    let window: Window? = Defaults.model("window")
    #expect(stored == user && home == address && since == now)
    #expect(scores == [3, 1] && limits == ["mail": 2] && tags == [])
    #expect(window == Window(title: "Notes", width: 80))
  }

  @Test func defaultIsGivenAtTheReadOrWithTheKey() {
    #expect(Defaults.get("age", default: 18) == 18)
    #expect(Defaults[.age] == 18 && Settings().age == 18)
    #expect(!Defaults.contains("age"))
    Defaults.update("age", default: 0) { $0 += 1 }
    #expect(Defaults.get("age", default: 18) == 1 && Defaults[.age] == 1 && Settings().age == 1)
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

  @Test func textDoesNotConvertToANumber() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    Defaults.set("12", forKey: "age")
    #expect(Defaults.int("age") == 0)
    #expect(failures.all.map(\.code) == [.wrongType])
  }
}
