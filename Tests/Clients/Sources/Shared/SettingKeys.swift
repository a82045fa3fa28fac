// Typed keys of settings, and generic code that passes keys and values through.
import Checks
import FoundationEssentials
import Keepsake

extension Defaults.Key<Int> {
  static let fontSize = Defaults.Key("fontSize", default: 16)
  static let launches = Defaults.Key("launches", default: 0, suite: "statistics")
}

extension Defaults.Key<UInt8> {
  static let retries = Defaults.Key<UInt8>("retries", default: 3)
}

extension Defaults.Key<Profile> {
  static let owner = Defaults.Key("owner", default: Profile(name: "owner"), suite: "people")
}

extension Defaults.Key<String?> {
  static let nickname = Defaults.Key<String?>("nickname")
}

/// A setting that its creator names.
struct Setting<Value: Codable> {
  let key: Defaults.Key<Value>

  init(_ name: String, default value: Value) { key = Defaults.Key(name, default: value) }

  var value: Value {
    get { Defaults[key] }
    nonmutating set { Defaults[key] = newValue }
  }
}

func bump<T: Codable & Numeric>(_ key: Defaults.Key<T>) -> T { Defaults.update(key) { $0 += 1 } }
func save<T: Codable>(_ value: T, as key: String) -> Bool { Defaults.set(value, forKey: key) }
func load<T: Codable>(_ key: String, as type: T.Type) -> T? { Defaults.model(key) }
func load<T: Codable>(_ key: String, or value: T) -> T { Defaults.get(key, default: value) }

extension Caller {
  func checkSettingKeys() {
    check(Defaults[.fontSize], is: 16)
    Defaults[.fontSize] = 20
    Defaults[.fontSize] += 1
    Defaults.update(.fontSize) { $0 += 1 }
    check(Defaults.update(.fontSize) { $0 += 1 }, is: 23)
    Defaults.remove(.fontSize)
    Defaults.update(.launches) { $0 += 1 }
    check(Defaults.int("launches", suite: "statistics"), is: 1)
    Defaults[.owner].tags.append("x")
    check(Defaults.model("owner", type: Profile.self, suite: "people")?.tags, is: ["x"])
    Defaults[.nickname] = "Al"
    Defaults[.nickname] = nil
    Defaults.update(.nickname) { $0 = nil }
    check(!Defaults.contains(.nickname))
    let pages = Setting("pages", default: 1)
    pages.value += 1
    check(bump(pages.key) == 3 && bump(.retries) == 4 && save(Data([1]), as: "generic"))
    check(load("generic", as: Data.self) == Data([1]) && load("missing", or: 3) == 3)
  }
}
