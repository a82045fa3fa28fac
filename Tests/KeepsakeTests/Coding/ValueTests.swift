import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Values are read as they were set, both from memory and from the file.
@Suite(.singleThreaded) struct ValueTests {
  enum Theme: String, Codable { case light, dark }
  enum Shape: Codable, Equatable {
    case circle(radius: Double)
    case square(side: Int, name: String?)
  }
  struct Profile: Codable, Equatable {
    var name = "Zoë \"Z\" \n\u{0}"
    var born: Date? = Date(timeIntervalSinceReferenceDate: 12_345.678_901_234_5)
    var theme = Theme.dark
    var tags: [String?] = ["a", nil, ""]
    var nested: [String: [Int?]] = ["x": [1, nil, Int.min]]
    var picture = Data([0, 255, 10, 13])
    var rates: [Double] = [
      0.1, -0.0, .infinity, -.infinity, .leastNonzeroMagnitude, .greatestFiniteMagnitude,
    ]
    var big = UInt64.max
    var site = URL(string: "https://example.com/a?b=c#d")
    var id = UUID()
  }

  func expectRoundTrip<T: Codable>(
    _ value: T, sourceLocation: SourceLocation = #_sourceLocation,
    isEqual: (T, T) -> Bool
  ) throws {
    let directory = try TemporaryDirectory()
    let store = directory.store()
    try store.set(value, forKey: "value")
    for reader in [store, directory.store()] {
      let back: T = try #require(try reader.get("value"), sourceLocation: sourceLocation)
      #expect(isEqual(back, value), "\(back)", sourceLocation: sourceLocation)
    }
  }

  func expectRoundTrip<T: Codable & Equatable>(
    _ value: T, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    try expectRoundTrip(value, sourceLocation: sourceLocation, isEqual: ==)
  }

  @Test func integersOfAllWidthsRoundTrip() throws {
    func expectRoundTrips<T: FixedWidthInteger & Codable>(_ type: T.Type) throws {
      for value in [T.min, T.max, T.max / 2] { try expectRoundTrip(value) }
    }
    let types: [any (FixedWidthInteger & Codable).Type] = [
      Int.self, Int8.self, Int16.self, Int32.self, Int64.self, Int128.self, UInt.self, UInt8.self,
      UInt16.self, UInt32.self, UInt64.self, UInt128.self,
    ]
    for type in types { try expectRoundTrips(type) }
  }

  @Test(arguments: [
    0.0, -0.0, 0.1, 1 / 3, .pi, 1e300, -1e-300, .leastNonzeroMagnitude, .greatestFiniteMagnitude,
    .infinity,
    -.infinity, .nan, 9_007_199_254_740_992, 16,
  ])
  func doublesRoundTripToTheLastBit(_ value: Double) throws {
    try expectRoundTrip(value) { $0.bitPattern == $1.bitPattern }
    try expectRoundTrip(Date(timeIntervalSinceReferenceDate: value)) {
      $0.timeIntervalSinceReferenceDate.bitPattern == $1.timeIntervalSinceReferenceDate.bitPattern
    }
  }

  @Test(arguments: [
    "-nan", "NaN", "nan(12)", "-inf", "0x10", "007", "1.", ".5", "+1", "1e400", "1\u{0}",
    "-NaN\u{0}6", "",
  ])
  func onlyJSONIsReadAsANumber(_ text: String) {
    let value = { (kind: StoredValue.Kind) in
      text.utf8.span.bytes.withUnsafeBytes { StoredValue(kind: kind, json: $0) }
    }
    #expect(value(.date) == nil)
    #expect(value(.number) == nil)
    if case .double = value(.json) { Issue.record("\(text.debugDescription) is read as a number") }
    if let json = value(.json) {
      #expect(throws: StorageError.self) { try Codec.decode(json, as: Double.self) }
      #expect(throws: StorageError.self) { try Codec.decode(json, as: Int.self) }
    }
  }

  @Test func floatsRoundTripToTheLastBit() throws {
    var generator = SystemRandomNumberGenerator()
    var values: [Float] = [
      0.1, -0.0, .greatestFiniteMagnitude, .leastNonzeroMagnitude, .infinity, 16,
    ]
    values += (0..<40).map { _ in Float(bitPattern: generator.next() & 0xBFFF_FFFF) }
    for value in values { try expectRoundTrip(value) { $0.bitPattern == $1.bitPattern } }
    try expectRoundTrip(Float.nan) { a, _ in a.isNaN }
    let halves: [Float16] = [0.1, -0.0, 16, .greatestFiniteMagnitude, .leastNonzeroMagnitude]
    for value in halves + [.infinity] {
      try expectRoundTrip(value) { $0.bitPattern == $1.bitPattern }
    }
    try expectRoundTrip(Float16.nan) { a, _ in a.isNaN }
    for value in [0.1, 1e300, -.infinity] as [CGFloat] { try expectRoundTrip(value) }
  }

  @Test func decimalsKeepTheirDigits() throws {
    try expectRoundTrip(try #require(Decimal(string: "12345678901234567890123456789.123456789")))
    try expectRoundTrip(try #require(Decimal(string: "-0.1")))
    try expectRoundTrip(Decimal.greatestFiniteMagnitude)
    try expectRoundTrip(Decimal(16))
    #expect(throws: StorageError.self) { try expectRoundTrip(Decimal.nan) }
  }

  @Test func otherTypesRoundTrip() throws {
    let values: [any Codable & Equatable] = [
      true, false, "",
      "quotes \" back \\ slash / newline \n tab \t NUL \u{0} \u{1F} é 👩‍👩‍👧‍👦 \u{2028}",
      Data(), Data((0...255).map { UInt8($0) }), UUID(), Theme.dark, Shape.circle(radius: 0.1),
      Shape.square(side: .min, name: nil), [1, 2, 3], ["a": ["b": [true]]], [Int?.none, 1],
      Profile(), [Profile(), Profile()], try #require(URL(string: "https://example.com/ä?q=1#x")),
      URL(filePath: "/tmp/a b/", directoryHint: .isDirectory),
      URL(string: "c/d.html", relativeTo: URL(string: "https://example.com/a/b")!)!,
    ]
    for value in values { try expectRoundTrip(value) }
  }

  @Test func manyMegabytesRoundTrip() throws {
    let directory = try TemporaryDirectory()
    let megabytes = Coverage.count(sample: 8, complete: 50)
    let text = String(repeating: "0123456789", count: megabytes * 100_000)
    try directory.store().set(text, forKey: "big")
    let back: String? = try directory.store().get("big")
    #expect(back == text)
    let data = Data(count: megabytes * 1_000_000)
    try directory.store().set(data, forKey: "big")
    let bytes: Data? = try directory.store().get("big")
    #expect(bytes == data)
  }

  @Test func genericCodeStoresTheSameAsDirectCode() throws {
    func put<T: Codable>(_ value: T, _ store: Defaults.Store) throws {
      try store.set(value, forKey: "k")
    }
    let store = try TemporaryDirectory().store(.memory)
    try put(Data([1, 2]), store)
    #expect(try store.data("k") == Data([1, 2]))
    try put("text", store)
    #expect(try store.string("k") == "text")
    try put(Optional("text"), store)
    #expect(try store.string("k") == "text")
    try put(Int??.some(.some(3)), store)
    #expect(try store.int("k") == 3)
    try put(Int?.none, store)
    #expect(try !store.contains("k"))
  }

  @Test func nilRemoves() throws {
    let store = try TemporaryDirectory().store()
    for value in [Int?.none, 5, nil] {
      try store.set(value, forKey: "k")
      #expect(try store.get("k") == value)
    }
    try store.set(1, forKey: "k")
    try store.set(nil, forKey: "k")
    #expect(try !store.contains("k"))
    try store.set(Int??.some(.none), forKey: "k")
    #expect(try !store.contains("k"))
  }

  @Test func refusedNumbersAreExplained() throws {
    func reason<T: Codable>(_ stored: StoredValue, as type: T.Type) -> String? {
      expectFailure(.wrongType) { _ = try Codec.decode(stored, as: type) }?.reason
    }
    let problem = "the stored number cannot be represented exactly as"
    #expect(reason(.double(16.5), as: Int.self) == "\(problem) Int")
    #expect(reason(.double(16.5), as: Int?.self) == "\(problem) Int")
    #expect(reason(.int(300), as: UInt8.self) == "\(problem) UInt8")
    #expect(reason(.double(.pi), as: Float.self) == "\(problem) Float")
    #expect(reason(.int(2_049), as: Float16.self) == "\(problem) Float16")
    #expect(reason(.json(Array("\(UInt64.max)".utf8)), as: Double.self) == "\(problem) Double")
    #expect(reason(.double(16.5), as: String.self) == "the stored value is a number, not String")
    #expect(reason(.bool(true), as: Int.self) == "the stored value is a Boolean, not Int")
    #expect(reason(.json(Array("null".utf8)), as: Int.self) == "the stored value is null, not Int")
  }

  @Test func onlyTheOrderOfMembersDoesNotCount() {
    func isEquivalent(_ a: String, _ b: String) -> Bool {
      let values = [a, b].map { StoredValue(engineData: Data($0.utf8)) }
      return values[0].isEquivalent(to: values[1]) && values[1].isEquivalent(to: values[0])
    }
    let deep = String(repeating: "[", count: 500)
    let ends = String(repeating: "]", count: 500)
    #expect(isEquivalent(#"{"a":1,"b":{"c":[],"d":{}}}"#, #"{"b":{"d":{},"c":[]},"a":1}"#))
    #expect(isEquivalent(#"[{"a":1,"ab":"x"}]"#, #"[{"ab":"x","a":1}]"#))
    for (a, b) in [
      ("[1,2]", "[2,1]"), (#"{"a":1,"b":2}"#, #"{"a":2,"b":1}"#), ("1", "2"), ("null", "true"),
      (#"{"a":[1,2]}"#, #"{"a":[2,1]}"#), (#"{"a":"x,y"}"#, #"{"a":"y,x"}"#),
      ("[\"e\u{301}\",\"\u{E9}\"]", "[\"\u{E9}\",\"e\u{301}\"]"),
      ("[\(UInt128.max)]", "[\(UInt128.max - 1)]"), ("[]", "{}"),
      ("\(deep)1\(ends)", "\(deep)2\(ends)"),
    ] { #expect(!isEquivalent(a, b), "\(a) \(b)") }
    let none: StoredValue? = nil
    #expect(none.isEquivalent(to: nil) && !none.isEquivalent(to: .json(Array("[]".utf8))))
  }

  @Test func numbersConvertOnlyWithoutLoss() throws {
    let store = try TemporaryDirectory().store(.memory)
    func stored<T: Codable>(_ value: T) throws -> Defaults.Store {
      try store.set(value, forKey: "n")
      return store
    }
    #expect(try stored(16).get("n") == 16.0)
    #expect(try stored(16).get("n") == UInt8(16))
    #expect(try stored(16.0).get("n") == 16)
    #expect(try stored(16.0).get("n") == Float(16))
    #expect(try stored(Float(0.1)).get("n") == Float(0.1))
    #expect(try stored(UInt64.max).get("n") == UInt64.max)
    func refuses<T: Codable, U: Codable>(_ value: T, as type: U.Type) throws {
      let store = try stored(value)
      #expect(throws: StorageError.self, "\(value) as \(type)") {
        _ = try store.get("n") as U?
      }
    }
    let refused: [(any Codable, any Codable.Type)] = [
      (300, UInt8.self), (-1, UInt.self), (16.5, Int.self), (1e300, Int.self),
      (1e300, Float.self), (Double.pi, Float.self), (1e300, Float16.self), (0.1, Float16.self),
      (9_007_199_254_740_993, CGFloat.self), (Double.nan, Int.self),
      (9_007_199_254_740_993, Double.self), (UInt64.max, Int.self), (UInt64.max, Double.self),
      (1, Bool.self), (true, Int.self), (true, Double.self), ("12", Int.self), (12, String.self),
      ("QUJD", Data.self), (Data("ABC".utf8), String.self), (Date(), Double.self),
      (1.5, Date.self), (Data([1]), Theme.self), ("purple", Theme.self),
    ]
    for (value, type) in refused { try refuses(value, as: type) }
  }

  @Test func optionalTypesAreReadAsTheWrappedType() throws {
    let store = try TemporaryDirectory().store(.memory)
    func check<T: Codable & Equatable>(_ value: T) throws {
      for _ in 0..<2 {
        try store.set(Optional(value), forKey: "k")
        #expect(try store.get("k") as T? == value)
        #expect(try store.get("k") as T?? == .some(.some(value)))
        #expect(try store.get("k") as T??? == .some(.some(.some(value))))
        try store.set(Optional(Optional(value)), forKey: "k")
      }
      try store.set([["no": "such"]], forKey: "k")
      let error = #expect(throws: StorageError.self) { _ = try store.get("k") as T?? }
      let reason = error?.reason ?? ""
      #expect(reason.contains("\(T.self)") && !reason.contains("Optional"))
      try store.set(T??.some(.none), forKey: "k")
      #expect(try !store.contains("k"))
    }
    let url = try #require(URL(string: "c", relativeTo: URL(string: "https://a.example/b/")!))
    let values: [any Codable & Equatable] = [
      "text", -5, true, 0.5, Data([1, 0]), Date(timeIntervalSinceReferenceDate: 0.1), Float(0.1),
      UInt64.max, Int8(-3), Theme.dark, Profile(), url,
    ]
    for value in values { try check(value) }
    // A number converts to an optional type if it converts to the wrapped type.
    try store.set(3, forKey: "k")
    #expect(try store.get("k") as Double?? == .some(.some(3)))
    try store.set(3.5, forKey: "k")
    #expect(throws: StorageError.self) { _ = try store.get("k") as Int?? }
  }

  @Test func failedEncodingKeepsTheOldValue() throws {
    struct Throwing: Codable {
      init() {}
      init(from decoder: any Decoder) throws {}
      func encode(to encoder: any Encoder) throws { throw CocoaError(.coderInvalidValue) }
    }
    struct Empty: Codable {
      init() {}
      init(from decoder: any Decoder) throws {}
      func encode(to encoder: any Encoder) throws {}
    }
    let store = try TemporaryDirectory().store()
    try store.set("old", forKey: "k")
    let error = expectFailure(.encodingFailed) { try store.set(Throwing(), forKey: "k") }
    #expect(error?.key == "k")
    #expect(throws: StorageError.self) { try store.set(Empty(), forKey: "k") }
    #expect(try store.string("k") == "old")
  }

  @Test func errorsNeverQuoteValues() throws {
    struct Account: Codable { var pin: [String: UInt8] }
    let store = try TemporaryDirectory().store(.memory)
    try store.set(["pin": ["hunter2": "4711"]], forKey: "k")
    let error = #expect(throws: StorageError.self) { _ = try store.get("k") as Account? }
    let text = String(describing: error) + String(reflecting: error)
    #expect(!text.contains("4711") && !text.contains("hunter2"))
    #expect(text.contains("pin"))
  }
}
