import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Values whose type the program does not know.
@Suite(.temporaryStorage) struct ValuesTests {
  private struct Profile: Codable {
    var name = "Ann"
    var sizes = [1, 2]
    var photo = Data([1])
    var age: Double? = 0.5
  }

  private static let date = Date(timeIntervalSinceReferenceDate: 700_000_000.25)
  private static let decimal = Decimal(string: "12345678901234567890.5") ?? 0
  private static let values: [(key: String, stored: any Codable & Sendable, Defaults.Value)] = [
    ("bool", true, .bool(true)), ("int", Int.min, .int(.min)), ("uint", UInt64.max, .uint(.max)),
    ("double", 0.5, .double(0.5)), ("infinity", Double.infinity, .double(.infinity)),
    ("decimal", decimal, .decimal(decimal)), ("text", "16", .string("16")), ("", "", .string("")),
    ("data", Data([0, 255]), .data(Data([0, 255]))), ("date", date, .date(date)),
    ("list", [Int?.none, 1], .array([.null, .int(1)])),
    (
      "model", Profile(),
      .dictionary([
        "name": .string("Ann"), "sizes": .array([.int(1), .int(2)]), "photo": .string("AQ=="),
        "age": .double(0.5),
      ])
    ),
  ]

  private func set(_ value: some Codable, _ key: String, in store: Defaults.Store) throws {
    try store.set(value, forKey: key)
  }

  @Test(arguments: [Defaults.Suite.standard, .memory])
  func allValuesAreListedAsWhatTheyAre(_ suite: Defaults.Suite) throws {
    let store = Defaults.suite(suite)
    #expect(try store.values() == [:])
    for (key, stored, value) in Self.values {
      try set(stored, key, in: store)
      #expect(try store.get(key) == value)
    }
    let all = Defaults.values(suite: suite)
    #expect(all == Dictionary(uniqueKeysWithValues: Self.values.map { ($0.key, $0.2) }))
    // They are stored again as they were.
    let copy = Defaults.suite("copy")
    for (key, value) in all { try copy.set(value, forKey: key) }
    #expect(try copy.values() == all && copy.data("data") == Data([0, 255]))
    #expect(try copy.get("date") == Self.date && copy.model("model", type: Profile.self) != nil)
    try copy.set(Defaults.Value.null, forKey: "int")
    #expect(try !copy.contains("int"))
  }

  @Test func aValueThatIsNestedTooDeeplyCostsItselfAlone() throws {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    func nested(_ depth: Int) -> String {
      String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    let document = #"{"deep": \#(nested(64)), "flat": \#(nested(63)), "size": 1}"#
    try Defaults.shared.import(Data(document.utf8))
    #expect(Set(Defaults.values().keys) == ["flat", "size"])
    #expect(failures.all.map(\.key) == ["deep"] && failures.all[0].code == .decodingFailed)
    #expect(failures.all[0].operation == "Defaults.values")
  }
}
