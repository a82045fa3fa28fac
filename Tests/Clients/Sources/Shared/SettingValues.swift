// Settings by name.
import Checks
import FoundationEssentials
import Keepsake

extension Caller {
  func checkSettingValues() {
    Defaults.set("dark", forKey: "theme")
    let text: String? = Defaults.get("theme")
    check(Defaults.get("theme") as String?, is: text)
    check(Defaults.get("theme") ?? "light", is: "dark")
    check(Defaults.get("theme", default: Theme.light) == .dark)
    if let theme: Theme = Defaults.get("theme") { check(theme == .dark) } else { check(false) }
    let count = Theme.allCases.count
    Defaults.set(count, forKey: "count", suite: "themes-\(count)")
    check(Defaults.get("count", default: 12, suite: "themes-2"), is: 2)
    check(Defaults.int("count", suite: "themes-2"), is: 2)
    Defaults.set(nil, forKey: "count", suite: "themes-\(count)")
    check(Defaults.keys(suite: "themes-2"), is: [])

    Defaults.set(3, forKey: "a")
    check(Defaults.int("a"), is: 3)
    Defaults.set(2.5, forKey: "a")
    check(Defaults.double("a"), is: 2.5)
    Defaults.set(true, forKey: "a")
    check(Defaults.bool("a"))
    Defaults.set(Data([0, 255]), forKey: "a")
    check(Defaults.data("a"), is: Data([0, 255]))

    let seen = Date(timeIntervalSince1970: 86_400.25)
    Defaults.set(Profile(name: "Ada", seen: seen), forKey: "profile")
    let profile: Profile? = Defaults.model("profile")
    check(profile?.seen == seen && Defaults.model("profile", type: Profile.self) == profile)
    check((Defaults.model("missing") ?? Profile(name: "new")).name, is: "new")
    check(Defaults.get("profile", default: Profile(name: "new")).name, is: "Ada")
    Defaults.set(Draft(text: "x"), forKey: "draft")
    let draft: Draft? = Defaults.model("draft")
    check(draft?.text, is: "x")
    Defaults.set(["a": 1.5, "b": 2], forKey: "table")
    check(Defaults.get("table", default: [:]), is: ["a": 1.5, "b": 2])
    Defaults.set(seen, forKey: "date")
    check(Defaults.get("date", default: .distantPast), is: seen)
  }

  func checkNilSettings() {
    Defaults.set(!Defaults.contains("name") ? "wide" : nil, forKey: "name")
    check(Defaults.string("name"), is: "wide")
    Defaults.set(Int("seven"), forKey: "name")
    Defaults.set(Optional<Profile>.none, forKey: "name")
    check(Defaults.contains("name", suite: .standard), is: false)
    Defaults.set(["k": 1]["k"], forKey: "name")
    check(Defaults.int("name"), is: 1)
    let anything: any Codable = 7
    Defaults.set(anything, forKey: "name")
    check(Defaults.int("name"), is: 7)
    guard Defaults.set(1, forKey: "a"), Defaults.set(nil, forKey: "a") else { return check(false) }
    Defaults.remove("name")
    check(Defaults.remove("a") && !Defaults.contains("a"))
  }

  func checkSettingUpdates() {
    Defaults.update("sum", default: 0) { $0 += 1 }
    let sum = Defaults.update("sum", default: 0) { $0 += 1 }
    check(sum, is: 2)
    Defaults.update("names", default: []) { $0.append("x") }
    check(Defaults.get("names", default: []), is: ["x"])
    var calls = 0
    Defaults.update("updated", default: Profile(name: "new"), suite: "people") { profile in
      calls += 1
      profile.tags.append("seen")
      profile.seen = nil
    }
    check(Defaults.model("updated", suite: "people"), is: Profile(name: "new", tags: ["seen"]))
    check(calls, is: 1)
    do {
      try Defaults.update("sum", default: 0) { sum throws(Refusal) in sum += 0 }
      try Defaults.update("sum", default: 0) { sum in
        guard sum > 10 else { throw Refusal() }
        sum = 0
      }
      check(false)
    } catch {
      check(error is Refusal && Defaults.int("sum") == 2)
    }
  }

  func checkSuites() throws {
    Defaults.set(16, forKey: "size", suite: "com.example.shared")
    let shared = Defaults.suite("com.example.shared")
    check(try Defaults.shared.suites().contains("com.example.shared"))
    let document = try shared.export(as: .propertyList)
    Defaults.removeAll(suite: "com.example.shared")
    check(Defaults.keys(suite: "com.example.shared"), is: [])
    try shared.import(document)
    check(Defaults.keys(suite: "com.example.shared"), is: ["size"])
    Defaults.set(1, forKey: "x", suite: .memory)
    check(Defaults.int("x", suite: .memory), is: 1)
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    Defaults.set(1, forKey: "x", suite: Defaults.Suite("team", in: folder))
    check(Defaults.int("x", suite: .init("team", in: folder)), is: 1)
    try FileManager.default.removeItem(at: folder)
    Defaults.synchronize()
    Defaults.removeAll()
    check(Defaults.keys().isEmpty)
  }
}
