import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.temporaryStorage) struct ImportExportTests {
  /// A value that JSON expresses as null.
  private struct Nothing: Codable, Equatable {
    init() {}
    init(from decoder: any Decoder) {}
    func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encodeNil()
    }
  }

  @Test(arguments: [Defaults.ExportFormat.json, .propertyList])
  func importsWhatWasExported(_ format: Defaults.ExportFormat) throws {
    let values: [String: any Codable] = [
      "text": "dark \"x\" \n é 👍 /", "int": Int.min, "uint": UInt64.max, "double": 0.1,
      "bool": true, "data": Data([0, 255]), "nested \"key\"": ["a": [1, 2]],
      "date": Date(timeIntervalSinceReferenceDate: 700_000_000),
    ]
    for (key, value) in values { Defaults.set(value, forKey: key) }
    try Defaults.suite("copy").import(Defaults.shared.export(as: format))
    #expect(Defaults.values(suite: "copy") == Defaults.values())
    #expect(Defaults.keys(suite: "copy").count == values.count)
  }

  @Test func jsonKeepsValuesThatPropertyListsCannotHold() throws {
    let decimal = try #require(Decimal(string: "12345678901234567890.123456789"))
    let values: [String: any Codable & Equatable] = [
      "decimal": decimal, "infinity": Double.infinity, "null": [Int?.none],
      "looks like wrapped bytes": ["$data": "not bytes"],
      "precise": Date(timeIntervalSinceReferenceDate: 0.1), "int128": Int128.max,
      "nothing": Nothing(),
    ]
    for (key, value) in values { Defaults.set(value, forKey: key) }
    let document = try Defaults.shared.export(as: .json)
    try Defaults.suite("copy").import(document)
    func expect<T: Codable & Equatable>(_ value: T, _ key: String) {
      #expect(Defaults.get(key, suite: "copy") == value, "\(key)")
    }
    for (key, value) in values { expect(value, key) }
    for key in ["decimal", "infinity", "null"] {
      let store = Defaults.suite(.init(key))
      try store.import(Defaults.suite("copy").export(as: .json))
      for other in try store.keys() where other != key { try store.remove(other) }
      let error = expectFailure(.encodingFailed) { _ = try store.export(as: .propertyList) }
      #expect(error?.key == key)
    }
  }

  @Test func anEmptySuiteIsExportedAsAnEmptyObject() throws {
    #expect(try Defaults.shared.export(as: .json) == Data("{}\n".utf8))
  }

  @Test func importsJSONOfOtherPrograms() throws {
    let text = """
       { "size" : 16, "list": [ 1, {"a b" : "c , }"} ], "e": 1.5e3, "\\u00e9\\n": "\\ud83d\\udc4d",
      "off":false, "huge": 1e300, "tiny": -1.50E-200, "zero": 0.000,
      "digits": 0.12345678901234567890 }
      """
    try Defaults.shared.import(Data(text.utf8))
    #expect(Defaults.int("size") == 16)
    #expect(Defaults.double("e") == 1_500)
    #expect(Defaults.double("huge") == 1e300)
    #expect(Defaults.double("tiny") == -1.5e-200)
    #expect(Defaults.double("zero") == 0)
    #expect(Defaults.get("digits") == Decimal(string: "0.1234567890123456789"))
    #expect(throws: StorageError.self) { _ = try Defaults.shared.get("digits") as Double? }
    #expect(Defaults.string("é\n") == "👍")
    #expect(Defaults.contains("off") && !Defaults.bool("off"))
    let list = try Defaults.shared.export(as: .json)
    #expect(String(decoding: list, as: UTF8.self).contains("[1,{\"a b\":\"c , }\"}]"))
  }

  @Test(arguments: [
    "", "[]", "[1]", "1", "{", "{\"a\":}", "{\"a\":1,}", "{\"a\":[1 , ]}",
    "{\"a\":{\"b\":[],\n}}", "{\"a\" 1}", "{\"a\":\"\\x\"}", "nonsense",
    "{\"a\":{\"$data\":\"%%%\"}}", "{\"a\":{\"$date\":\"soon\"}}",
    "<?xml version=\"1.0\"?><plist/>",
    "bplist00garbage",
  ])
  func unreadableDocumentThrowsAndSetsNothing(_ text: String) {
    expectFailure(.decodingFailed) { try Defaults.shared.import(Data(text.utf8)) }
    #expect(Defaults.keys().isEmpty)
  }

  @Test(arguments: [PropertyListSerialization.PropertyListFormat.binary, .xml])
  func importsUserDefaultsFile(_ format: PropertyListSerialization.PropertyListFormat) throws {
    let settings: [String: Any] = [
      "name": "Zoë", "count": 42, "ratio": 0.5, "on": true, "blob": Data([1, 2, 3]),
      "when": Date(timeIntervalSinceReferenceDate: 600_000_000),
      "list": [1, 2, 3], "nested": ["a": ["b": "c"], "d": [true, false]] as [String: Any],
    ]
    let document = try PropertyListSerialization.data(
      fromPropertyList: settings, format: format, options: 0)
    try Defaults.shared.import(document)
    #expect(Defaults.string("name") == "Zoë")
    #expect(Defaults.int("count") == 42)
    #expect(Defaults.double("ratio") == 0.5)
    #expect(Defaults.bool("on"))
    #expect(Defaults.data("blob") == Data([1, 2, 3]))
    let when: Date? = Defaults.get("when")
    #expect(when == Date(timeIntervalSinceReferenceDate: 600_000_000))
    #expect(Defaults.get("list") == [1, 2, 3])
    struct Nested: Codable, Equatable {
      var a: [String: String]
      var d: [Bool]
    }
    #expect(Defaults.get("nested") == Nested(a: ["b": "c"], d: [true, false]))
  }

  /// Foundation's `UserDefaults` stores a file URL as its path.
  @Test func importedFileURLIsAFileURL() throws {
    let url = URL(filePath: "/srv/My Notes/\u{FC}.txt")
    let document = try PropertyListSerialization.data(
      fromPropertyList: ["file": url.path], format: .xml, options: 0)
    try Defaults.shared.import(document)
    let read: URL? = Defaults.get("file")
    #expect(read == url && read?.isFileURL == true)
    #expect(Defaults.string("file") == url.path)
  }

  @Test func urlWithoutASchemeStaysWithoutOne() throws {
    for text in ["/a%20b?c=d#e", "//host/a", "a/b", "/"] {
      let url = try #require(URL(string: text))
      Defaults.set(url, forKey: "url")
      let read: URL? = Defaults.get("url")
      #expect(read == url && read?.isFileURL == false, "\(text)")
      #expect(Defaults.get("url") == Optional(Optional(url)), "\(text)")
    }
  }

  @Test func listsSuitesBesideALinkedFile() throws {
    let (directory, linked) = (try TemporaryDirectory(), try TemporaryDirectory())
    try linked.write([], to: "settings.jsonl")
    try directory.link(TemporaryDirectory.journal, to: linked.file("settings.jsonl").path)
    try directory.store("other").set(1, forKey: "k")
    let store = directory.store()
    try store.set(1, forKey: "k")
    #expect(store.storedSuites().suites.map(\.name) == ["other", "standard"])
  }

  @Test func throwsWhenJSONIsNotUTF8() throws {
    let store = try TemporaryDirectory().store()
    for (start, end) in [("", ", 'a': 1"), ("'a': 1, ", ""), ("'b': {'a': 1, ", "}"), ("", "")] {
      var document = Data("{\(start)'a': ['".utf8)
      document.append(0xC6)
      document.append(Data("']\(end)}".utf8))
      for index in document.indices where document[index] == UInt8(ascii: "'") {
        document[index] = UInt8(ascii: "\"")
      }
      expectFailure(.decodingFailed) { try store.import(document) }
    }
    #expect(try store.keys() == [])
  }

  @Test func checksBothMembersOfTheSameName() throws {
    let store = try TemporaryDirectory().store()
    // One of the two is not JSON: a raw control character, an invalid escape, a leading zero.
    for wrong in ["\"\u{0}\"", #""\q""#, "01"] {
      for document in [
        #"{"a": \#(wrong), "a": 1}"#, #"{"a": 1, "a": \#(wrong)}"#,
        #"{"o": {"a": \#(wrong), "a": 1}}"#, #"{"o": [{"a": 1, "a": \#(wrong)}]}"#,
      ] {
        expectFailure(.decodingFailed) { try store.import(Data(document.utf8)) }
      }
    }
    #expect(try store.keys() == [])
    try store.import(Data(#"{"a": {"b": 1}, "a": 2}"#.utf8))
    #expect(try store.get("a") == 2)
    expectFailure(.decodingFailed) { try store.import(Data(#"{"o": {"a": 1, "a": 2}}"#.utf8)) }
  }

  @Test(
    arguments: [
      (#"{"a": 1, "b": "\ud800"}"#, "b", #"line 1, column 16: half of a surrogate pair"#),
      ("{\n  \"é\": {\"x\": [1, NaN]}\n}", "é", "line 2, column 18: JSON has no NaN"),
      ("{\"a\": [1, -Infinity]}", "a", "line 1, column 11: JSON has no Infinity"),
      ("{\n// theme\n\"a\": 1}", nil, "line 2, column 1: JSON has no comments"),
      ("/* all */ {\"a\": 1}", nil, "line 1, column 1: JSON has no comments"),
      ("{\"a\": 1 /* one */}", nil, "line 1, column 9: JSON has no comments"),
      ("{\"a\": 1,}", nil, "line 1, column 9: a value is missing after the comma"),
      ("{\"a\": [1,]}", "a", "line 1, column 10: a value is missing"),
      ("{\"a\": 1 \"b\": 2}", nil, "line 1, column 9: a comma is missing"),
      ("{\"a\": 'b'}", "a", "line 1, column 7: JSON has double quotes only"),
      ("{a: 1}", nil, "line 1, column 2: this is not JSON"),
      ("{\"a\": \"b\n\"}", "a", "line 1, column 7: the text does not end in its line"),
      ("{\"a\": \"\t\"}", "a", "line 1, column 8: a control character must be escaped"),
      (#"{"a": "\q"}"#, "a", "line 1, column 8: an escape that JSON does not have"),
      ("{\"a\": 1e400}", "a", "line 1, column 7: no number, or one that no Double can hold"),
      ("{\"a\": 1", nil, "line 1, column 8: the document ends too early"),
      ("{\"a\": 1} 2", nil, "line 1, column 10: the document goes on after its end"),
      ("{\"a\": {\"b\": 1, \"b\": 2}}", "a", "line 1, column 7: an object has two members"),
      ("{\"a\": {\"$data\": \"%\"}}", "a", "line 1, column 7: the value is not {\"$data\": "),
    ] as [(String, String?, String)])
  func saysWhichValueCannotBeImportedAndWhere(
    document: String, key: String?, reason: String
  ) throws {
    let store = try TemporaryDirectory().store()
    let error = expectFailure(.decodingFailed, reason: reason) {
      try store.import(Data(document.utf8))
    }
    #expect(error?.key == key)
    #expect(try store.keys() == [])
  }

  @Test func saysOfEachMemberWhatIsWrongWithIt() throws {
    let deep = String(repeating: "[", count: 512) + String(repeating: "]", count: 512)
    let document = try SettingsDocument(Data(#"{"a": \#(deep), "b": NaN, c: 1, "d": 1}"#.utf8))
    #expect(
      document.problems.map { "\($0.key ?? "-") \($0.reason ?? "")" } == [
        "a line 1, column 518: nested more than 512 levels deep",
        "b line 1, column 1038: JSON has no NaN", "- line 1, column 1043: this is not JSON",
      ])
    #expect(document.values.map(\.key) == ["d"])
  }

  /// With a look back for each of them, this would take minutes.
  @Test func findsManyWrongMembersOnOneLine() throws {
    let wrong = String(repeating: #""é":NaN,"k":{"$data":1}/**/,"#, count: 8_000)
    let document = try SettingsDocument(Data("\n{\(wrong)\"a\":1}".utf8))
    #expect(document.problems.count == 24_000 && document.values.count == 1)
    let reasons = document.problems.suffix(3).map { $0.reason ?? "" }
    #expect(reasons[0] == "line 2, column 223978: JSON has no NaN")
    #expect(reasons[1].hasPrefix("line 2, column 223986: the value is not"))
    #expect(reasons[2] == "line 2, column 223997: JSON has no comments")
  }

  @Test func importsTheValidValuesOfADocument() throws {
    let store = try TemporaryDirectory().store()
    var document = try SettingsDocument(
      Data(
        #"""
        // Settings
        {
          "broken": {"x": ["\udc00", "}, \" ,"], "y": NaN}, "a": 1, // one
          'quoted': [1, 2], "NSLanguages": ["en"], "NSBroken": NaN,
          "open": "no end,
          "b": {"c": [1, 2]} "c": 3 /* { */,
        }
        """#.utf8))
    document.keep { !$0.hasPrefix("NS") }
    try store.importValid(document)
    #expect(try store.keys().sorted() == ["a", "b", "c"])
    #expect(try store.get("b") == ["c": [1, 2]])
    #expect(
      document.problems.map { "\($0.key ?? "-") \($0.reason ?? "")" } == [
        "- line 1, column 1: JSON has no comments",
        "broken line 3, column 21: half of a surrogate pair",
        "- line 3, column 61: JSON has no comments",
        "- line 4, column 3: JSON has double quotes only",
        "open line 5, column 11: the text does not end in its line",
        "- line 6, column 22: a comma is missing",
        "- line 6, column 29: JSON has no comments",
        "- line 7, column 1: a value is missing after the comma",
      ])
    let properties = try SettingsDocument(try nested(65, .binary, beside: ["d": true]))
    try store.importValid(properties)
    #expect(properties.problems.map(\.key) == ["k"])
    #expect(try store.get("d") == true)
  }

  @Test func skipsNullsOnImport() throws {
    let store = try TemporaryDirectory().store()
    try store.import(Data(#"{"a": null, "b": 1}"#.utf8))
    #expect(try store.keys() == ["b"])
    // Foundation writes null like this in an XML property list.
    let list = "<plist><dict><key>c</key><string>$null</string></dict></plist>"
    try store.import(Data(list.utf8))
    #expect(try store.keys() == ["b"])
  }

  @Test func exportsKeysThatDifferOnlyInNormalization() throws {
    let (store, copy) = (try TemporaryDirectory().store(), try TemporaryDirectory().store())
    try store.set(1, forKey: "\u{E9}")
    try store.set(2, forKey: "e\u{301}")
    try copy.import(store.export(as: .json))
    #expect(try copy.int("\u{E9}") == 1)
    #expect(try copy.int("e\u{301}") == 2)
    #expect(throws: StorageError.self) { try store.export(as: .propertyList) }
  }

  /// A few bytes that would otherwise decode without end, or overflow the stack.
  @Test func throwsWhenPropertyListContainsItselfOrIsTooDeep() throws {
    let cycle = try #require(
      Data(
        base64Encoded: """
          YnBsaXN0MDDYAQIDBAUGBwgJCgsPEAAAAFRibG9iVWNvdW50VGxpc3RUbmFtZVZuZXN0ZWRSb25VcmF0\
          aW9UAXdoAm5DZQMQKqMMDQ4QARACEANjAFoAbwDr0hESExZRYVFk0RQVUWJRY6IXGAkIIz/gAAAAAAAA\
          M0HB4PpAAAAACBkeJCkuNTg+U3RyTU9RU1pfYWNmaGptbm94AQEAAAAAAQEAAAAAAAAAGwAAAAAAAAAA\
          AAAAAAAAAIE=
          """))
    let deep = Data(
      ("<plist><dict><key>k</key>" + String(repeating: "<array>", count: 600)
        + String(repeating: "</array>", count: 600) + "</dict></plist>").utf8)
    for document in [cycle, deep, try nested(65, .binary), try nested(65, .xml)] {
      let store = try TemporaryDirectory().store()
      expectFailure(.decodingFailed) { try store.import(document) }
      #expect(try store.keys().isEmpty)
    }
  }

  /// Arrays in each other, in a dictionary.
  private func nested(
    _ depth: Int, _ format: PropertyListSerialization.PropertyListFormat,
    beside others: [String: Any] = [:]
  ) throws -> Data {
    var value: Any = "x"
    for _ in 1..<depth { value = [value] }
    return try PropertyListSerialization.data(
      fromPropertyList: others.merging(["k": value]) { $1 }, format: format, options: 0)
  }

  @Test func importsAndExportsPropertyListsOf64Levels() throws {
    for format in [PropertyListSerialization.PropertyListFormat.binary, .xml] {
      let store = try TemporaryDirectory().store()
      try store.import(try nested(64, format))
      let copy = try TemporaryDirectory().store()
      try copy.import(try store.export(as: .propertyList))
      #expect(try copy.export(as: .json) == store.export(as: .json))
    }
    let store = try TemporaryDirectory().store()
    let json = "{\"k\":" + String(repeating: "[", count: 64) + String(repeating: "]", count: 64)
    try store.import(Data((json + "}").utf8))
    let error = expectFailure(.encodingFailed) { _ = try store.export(as: .propertyList) }
    #expect(error?.key == "k")
  }

  /// Threads of an app may have a stack of half a megabyte.
  @Test(.smallStack) func deeplyNestedDocumentsFitIntoASmallStack() async throws {
    let arrays = String(repeating: "<array>", count: 10_000)
    let ends = String(repeating: "</array>", count: 10_000)
    let documents =
      [
        "<plist><dict><key>k</key>\(arrays)\(ends)</dict></plist>",
        "\u{FEFF} <?xml version=\"1.0\"?><!-- </array> --><dict><key>k</key>\(arrays)",
        String(repeating: "<plist>", count: 10_000),
        "<dict><key>k</key>"
          + String(repeating: "<array><string><![CDATA[</array>]]></string>", count: 500),
        "<dict>" + String(repeating: "<key>k</key><dict a=\"/\">", count: 500),
        String(repeating: "(", count: 10_000),
        "/* x */ {k = " + String(repeating: "(", count: 10_000),
        "{\"k\":" + String(repeating: "[", count: 10_000),
      ].map { Data($0.utf8) } + [try nested(500, .binary), Data([0xFF, 0xFE] + "<\0p\0".utf8)]
    let store = try TemporaryDirectory().store()
    let deepest = try nested(64, .xml)
    let codes = Locked<[StorageError.Code?]>([])
    let thread = Thread {
      for document in documents + [deepest] {
        do throws(StorageError) {
          try store.import(document)
          _ = try store.export(as: .propertyList)
          codes.withLock { $0.append(nil) }
        } catch {
          codes.withLock { $0.append(error.code) }
        }
      }
    }
    thread.stackSize = 512 << 10
    thread.start()
    try await eventually("all are read") { codes.withLock { $0.count } == documents.count + 1 }
    let expected = documents.map { _ in Optional(StorageError.Code.decodingFailed) } + [nil]
    #expect(codes.withLock { $0 } == expected)
  }

  @Test(
    arguments: [
      ("k", "\"$null\""), ("k", "\"$nullable\""), ("k", "{\"a\": [\"$null\"]}"),
      ("k", "{\"$null\": 1}"), ("k", "[{\"a\": 1, \"$nullable\": 2}]"), ("$null", "1"),
      ("$nullable", "1"),
    ]) func throwsWhenPropertyListWouldReadTextAsNull(key: String, json: String) throws
  {
    let (store, copy) = (try TemporaryDirectory().store(), try TemporaryDirectory().store())
    try store.import(Data("{\"\(key)\": \(json)}".utf8))
    let error = expectFailure(.encodingFailed) { _ = try store.export(as: .propertyList) }
    #expect(error?.key == key && error?.remedy == "Export as JSON.")
    try copy.import(store.export(as: .json))
    #expect(try copy.export(as: .json) == store.export(as: .json))
  }

  @Test(arguments: ["$nul", "$", "null", " $null"])
  func propertyListHoldsTextThatIsOnlyLikeNull(text: String) throws {
    let (store, copy) = (try TemporaryDirectory().store(), try TemporaryDirectory().store())
    try store.set([text: text], forKey: text)
    try copy.import(store.export(as: .propertyList))
    #expect(try copy.export(as: .json) == store.export(as: .json))
  }

  @Test(arguments: [Double.infinity, .nan, 1e300, -1e300, 1e18])
  func throwsWhenPropertyListCannotHoldDate(_ seconds: Double) throws {
    let store = try TemporaryDirectory().store()
    try store.set(Date(timeIntervalSinceReferenceDate: seconds), forKey: "k")
    #expect(throws: StorageError.self) { try store.export(as: .propertyList) }
    for date in [Date.distantFuture, .distantPast] {
      try store.set(date, forKey: "k")
      #expect(throws: Never.self) { try store.export(as: .propertyList) }
    }
  }
}
