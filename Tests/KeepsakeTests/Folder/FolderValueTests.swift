import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// How values are stored as files, and how invalid files are reported.
@Suite struct FolderValueTests {
  private let home: TemporaryDirectory
  private var directory: Folder { home.files }

  init() throws { home = try TemporaryDirectory() }

  private struct User: Codable, Equatable {
    var name: String
    var age: Int
    var born: Date?
    var site: URL?
    var picture: Data?
  }

  private func expectRoundTrip<T: Codable & Equatable>(
    _ value: T, as text: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    try directory.save(value, as: "value")
    if let text { #expect(try home.text("value") == text, sourceLocation: sourceLocation) }
    #expect(try directory.load("value") as T == value, sourceLocation: sourceLocation)
    let optional: T? = try directory.load("value")
    #expect(optional == value, sourceLocation: sourceLocation)
  }

  @Test func dataIsStoredAsItsBytes() throws {
    for bytes in [Data(), Data([0, 255, 10]), Data("{}".utf8), Data(0...255)] {
      try directory.save(bytes, as: "f")
      #expect(try home.bytes(of: "f") == Array(bytes))
      #expect(try directory.load("f") as Data == bytes)
    }
    let some: Data? = Data([1])
    try directory.save(some, as: "f")
    #expect(try home.bytes(of: "f") == [1])
    #expect(try directory.load("f", type: Data?.self) == Data([1]))
    // Too large for a single read.
    let large = Data((0..<3_000_001).map { UInt8(truncatingIfNeeded: $0) })
    try directory.save(large, as: "f")
    #expect(try directory.load("f") as Data == large)
  }

  @Test(arguments: [
    "", "text", "two\nlines\r\n", "ü e\u{301} 👩‍👩‍👧 \u{0}", "\u{FEFF}bom", "\"quoted\"",
  ])
  func textIsUTF8(_ text: String) throws {
    try directory.save(text, as: "f")
    #expect(try home.bytes(of: "f") == Array(text.utf8))
    let read: String = try directory.load("f")
    #expect(Array(read.utf8) == Array(text.utf8))
    #expect(try directory.load("f", type: String?.self) == text)
  }

  @Test func modelsAreStoredAsIndentedJSON() throws {
    let user = User(name: "Ann/Bo", age: 3, site: URL(string: "https://example.com/a"))
    try directory.save(user, as: "users/1.json")
    let text = """
      {
        "age" : 3,
        "name" : "Ann/Bo",
        "site" : "https://example.com/a"
      }

      """
    #expect(try home.text("users/1.json") == text)
    #expect(try directory.load("users/1.json") == user)
    try expectRoundTrip(["b": 1, "a": 2], as: "{\n  \"a\" : 2,\n  \"b\" : 1\n}\n")
    try expectRoundTrip([1, 2], as: "[\n  1,\n  2\n]\n")
    try expectRoundTrip([User(name: "x", age: 0, picture: Data([0, 255]))])
  }

  @Test func scalarsAreStoredAsJSON() throws {
    try expectRoundTrip(5, as: "5\n")
    try expectRoundTrip(Int.min)
    try expectRoundTrip(UInt64.max)
    try expectRoundTrip(true, as: "true\n")
    try expectRoundTrip(0.1, as: "0.1\n")
    try expectRoundTrip(Double.greatestFiniteMagnitude)
    try expectRoundTrip(Double.infinity)
    try expectRoundTrip(Float(0.1))
    try expectRoundTrip(URL(string: "https://example.com/a?b#c")!)
    try expectRoundTrip(UUID())
    try expectRoundTrip(Decimal(string: "1.10")!)
  }

  @Test func datesRoundTripExactly() throws {
    var dates = [Date(), .distantPast, .distantFuture, Date(timeIntervalSince1970: 0)]
    for _ in 0..<200 {
      dates.append(Date(timeIntervalSinceReferenceDate: .random(in: -1e10...1e10)))
    }
    for date in dates { try expectRoundTrip(date) }
    try expectRoundTrip(dates)
    try expectRoundTrip(User(name: "", age: 0, born: dates[4]))
  }

  @Test func nilIsStoredAsNullExceptForTextAndBytes() throws {
    try directory.save("old", as: "f")
    expectFailure(.encodingFailed) { try directory.save(nil as String?, as: "f") }
    expectFailure(.encodingFailed) { try directory.save(nil as Data?, as: "f") }
    #expect(try home.text("f") == "old")
    try directory.save(nil as User?, as: "f")
    #expect(try home.text("f") == "null\n")
    #expect(try directory.load("f", type: User?.self) == nil)
    try directory.save(nil as Int?, as: "f")
    #expect(try directory.load("f", type: Int?.self) == nil)
    expectFailure(.decodingFailed) { _ = try directory.load("f", type: User.self) }
  }

  @Test func textAndBytesOfTheWordNullAreNotNil() throws {
    try directory.save("null\n", as: "note.txt")
    let text: String? = try directory.load("note.txt")
    let bytes: Data? = try directory.load("note.txt")
    #expect(text == "null\n" && bytes == Data("null\n".utf8))
  }

  @Test func missingFileIsNilForOptionalsOnly() throws {
    #expect(try directory.load("none", type: String?.self) == nil)
    #expect(try directory.load("no/ne", type: User?.self) == nil)
    expectFailure(.notFound) { _ = try directory.load("none", type: String.self) }
    // A type that is ExpressibleByNilLiteral, such as one for any JSON value, is not an Optional.
    expectFailure(.notFound) { _ = try directory.load("none", type: AnyJSON.self) }
    #expect(try directory.load("none", type: AnyJSON?.self) == nil)
    #expect(try home.names().isEmpty)
  }

  private enum AnyJSON: Codable, Equatable, ExpressibleByNilLiteral {
    case null
    init(nilLiteral: ()) { self = .null }
  }

  @Test(arguments: [[0xFF], [0x61, 0xC3], [0xED, 0xA0, 0x80], [0xC0, 0xAF]] as [[UInt8]])
  func invalidUTF8IsAnErrorAsTextAndValidAsData(_ bytes: [UInt8]) throws {
    try home.write(bytes, to: "f")
    for type in [0, 1] {
      let error = expectFailure(.decodingFailed) {
        if type == 0 { _ = try directory.load("f", type: String.self) }
        if type == 1 { _ = try directory.load("f", type: String?.self) }
      }
      #expect(error?.operation == "load" && error?.path == home.path + "/f")
      #expect(error?.remedy.contains("Data") == true)
    }
    #expect(try directory.load("f") as Data == Data(bytes))
  }

  @Test(
    arguments: [
      ("hunter2", .decodingFailed), ("", .decodingFailed), ("\"hunter2\"", .wrongType),
      ("{\"hunter2\":1}", .wrongType), ("[\"hunter2\"]", .wrongType),
      ("5 hunter2", .decodingFailed),
    ] as [(String, StorageError.Code)])
  func fileOfAnotherTypeIsAnErrorThatHidesItsContents(_ text: String, _ code: StorageError.Code)
    throws
  {
    try directory.save(text, as: "d/f")
    let error = expectFailure(code) { _ = try directory.load("d/f", type: Int.self) }
    #expect(error?.operation == "load" && error?.path == home.path + "/d/f")
    #expect(error.map { "\($0)".contains("hunter2") } == false)
    #expect(error?.remedy.isEmpty == false)
    let user = #expect(throws: StorageError.self) { _ = try directory.load("d/f", type: User.self) }
    #expect(user.map { "\($0)".contains("hunter2") } == false)
  }

  private struct Stubborn: Codable {
    struct Refusal: Error { var value = "hunter2" }
    func encode(to encoder: any Encoder) throws { throw Refusal() }
  }

  @Test func aDecimalThatIsNaNKeepsTheOldFile() throws {
    try directory.save("old", as: "f")
    let error = expectFailure(.encodingFailed) { try directory.save(Decimal.nan, as: "f") }
    #expect(error?.operation == "save" && error?.path == home.path + "/f")
    expectFailure(.encodingFailed) { try directory.save([Decimal(1), .nan], as: "f") }
    expectFailure(.encodingFailed) { try directory.save(["a": Decimal.nan], as: "f") }
    #expect(try home.tree().keys.sorted() == ["f"] && home.text("f") == "old")
    try expectRoundTrip(["NaN": "NaN"])
    try directory.save(Double.nan, as: "f")
    #expect(try directory.load("f", type: Double.self).isNaN)
  }

  private struct TwoKinds: Codable {
    func encode(to encoder: any Encoder) throws {
      _ = encoder.container(keyedBy: CodingKeys.self)
      _ = encoder.unkeyedContainer()
    }
    enum CodingKeys: CodingKey {}
    init() {}
    init(from decoder: any Decoder) throws {}
  }

  private struct Chain: Codable {
    var rest = 20_000
    func encode(to encoder: any Encoder) throws {
      var container = encoder.unkeyedContainer()
      if rest > 0 { try container.encode(Chain(rest: rest - 1)) }
    }
    init(rest: Int = 20_000) { self.rest = rest }
    init(from decoder: any Decoder) throws {}
  }

  /// Foundation's encoder ends the process.
  @Test func twoKindsOfContainerAndDeepNestingKeepTheOldFile() throws {
    try directory.save("old", as: "f")
    expectFailure(.encodingFailed) { try directory.save(TwoKinds(), as: "f") }
    expectFailure(.encodingFailed) { try directory.save([TwoKinds()], as: "f") }
    expectFailure(.encodingFailed) { try directory.save(Chain(), as: "f") }
    #expect(try home.tree().keys.sorted() == ["f"] && home.text("f") == "old")
  }

  @Test func encodingFailureKeepsTheOldFile() throws {
    try directory.save("old", as: "f")
    let error = expectFailure(.encodingFailed) { try directory.save(Stubborn(), as: "f") }
    #expect(error?.operation == "save" && error?.path == home.path + "/f")
    #expect(error.map { "\($0)".contains("hunter2") } == false)
    expectFailure(.encodingFailed) { try directory.save(Stubborn(), as: "new/f") }
    #expect(try home.tree().keys.sorted() == ["f"])
    #expect(try directory.load("f") as String == "old")
  }
}
