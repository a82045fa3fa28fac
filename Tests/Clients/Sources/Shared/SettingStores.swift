// Settings by way of a store, whose calls throw.
import Checks
import FoundationEssentials
import Keepsake

func roundTrip<T: Codable & Equatable>(_ value: T, in store: Defaults.Store) throws -> Bool {
  try store.set(value, forKey: "trip")
  let model: T? = try store.model("trip")
  let plain: T? = try store.get("trip")
  return model == value && plain == value
}

extension Caller {
  /// The calls of a store throw only `StorageError`.
  func checkSettingStore(_ team: Defaults.Store) throws(StorageError) {
    check(team.suite.name, is: "team")
    try team.set("dark", forKey: "theme")
    try team.set(nil, forKey: "size")
    try team.set(4, for: .fontSize)
    check(try team.get(.fontSize), is: 4)
    check(try team.get("fontSize", default: 0), is: 4)
    check(try team.string("theme"), is: "dark")
    check(try team.bool("missing"), is: false)
    check(try team.double("missing"), is: 0)
    check(try team.data("missing") == nil)
    let theme: Theme? = try team.get("theme")
    check(theme == .dark)
    let profile: Profile? = try team.model("missing")
    check(profile, is: try team.model("missing", type: Profile.self))
    try team.set(Profile(name: "a"), for: .owner)
    try team.update("count", default: 0) { $0 += 1 }
    try team.update(.fontSize) { $0 += 1 }
    check(try team.keys().sorted(), is: ["count", "fontSize", "owner", "theme"])
    check(try team.contains(.nickname), is: false)
    try team.remove(.fontSize)
    try team.remove("theme")
    check(try team.contains("theme"), is: false)
    try team.synchronize()
    check(try team.fileURL?.pathExtension, is: "jsonl")
    let document = try team.export(as: .json)
    try team.removeAll()
    try team.import(document)
    check(try team.int("count"), is: 1)
  }

  func checkSettingStores() throws {
    try checkSettingStore(Defaults.suite("team"))
    let store = Defaults.suite("generic")
    check(try roundTrip("text", in: store))
    check(try roundTrip(Data([1]), in: store))
    check(try roundTrip([Theme.dark: 1], in: store))
    check(try roundTrip(Optional(3), in: store))
    try Defaults.shared.set("text", forKey: "number")
    do {
      let number: Int? = try Defaults.shared.get("number")
      check(number == nil && false)
    } catch StorageError.Code.wrongType {
      check(true)
    } catch {
      print(error.remedy)
      throw error
    }
    StorageSystem.onFailure = { error in check(error.code == .wrongType) }
    check(Defaults.int("number"), is: 0)
    StorageSystem.onFailure = { error in print("failed:", error.description) }
  }
}
