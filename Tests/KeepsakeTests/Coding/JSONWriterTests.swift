import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Compares the library's encoder with Foundation's: both must write the same values.
@Suite(.proofThread, .singleThreaded) struct JSONWriterTests {
  private func text<T: Encodable>(_ value: T) throws -> String {
    String(decoding: try JSONWriter.bytes(of: value), as: UTF8.self)
  }

  private func text(_ body: @escaping (any Encoder) throws -> Void) throws -> String {
    try text(Script(body: body))
  }

  /// Checks that Foundation's encoder writes the same value.
  private func check<T: Encodable>(
    _ value: T, _ comment: String = "", sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let bytes = try JSONWriter.bytes(of: value)
    let expected = try DocumentCodec.encoder.encode(value)
    let message = "\(comment) \(String(decoding: bytes, as: UTF8.self))"
    #expect(
      try decode(Data(bytes)) == decode(expected), "\(message)", sourceLocation: sourceLocation)
    #expect(bytes.allSatisfy { $0 >= 0x20 }, "\(message)", sourceLocation: sourceLocation)
    #expect(hasUniqueNames(bytes), "\(message)", sourceLocation: sourceLocation)
  }

  private func checkRoundTrip<T: Codable & Equatable>(
    _ value: T, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    try check(value, sourceLocation: sourceLocation)
    let bytes = try JSONWriter.bytes(of: value)
    let back = try Codec.decoder.decode(T.self, from: Data(bytes))
    #expect(back == value, sourceLocation: sourceLocation)
  }

  private func decode(_ json: Data) throws -> Defaults.Value {
    try Codec.decoder.decode(Defaults.Value.self, from: json)
  }

  private func hasUniqueNames(_ json: [UInt8]) -> Bool {
    JSONScanner.value(of: json)?.hasDuplicateNames == false
  }

  // MARK: Comparison with Foundation's encoder

  @Test func randomProgramsWriteTheSameValue() throws {
    var failures = 0
    for seed in 0..<UInt64(Coverage.count(sample: 50, complete: 300)) {
      let program = Program(seed: seed, depth: 4)
      do {
        _ = try DocumentCodec.encoder.encode(program)
      } catch {
        failures += 1
        #expect(throws: EncodingError.self) { try JSONWriter.bytes(of: program) }
        continue
      }
      try check(program, "seed \(seed)")
    }
    #expect(failures > 0, "some programs encode nothing")
  }

  @Test func allCharactersRoundTrip() throws {
    var random = SplitMix64(seed: 3)
    // Every kind of character at every offset within eight bytes.
    for special in ["\"", "\\", "/", "\n", "\u{0}", "\u{1F}", " ", "\u{7F}", "\u{80}", "é", "😀"] {
      for offset in 0..<17 {
        for count in [offset, offset + 1, 20] {
          var text = Array(repeating: "a", count: count)
          text.insert(special, at: offset)
          try checkRoundTrip([text.joined(): text.joined()])
        }
      }
    }
    for _ in 0..<500 {
      let scalars = (0..<random.below(24)).compactMap { _ in
        Unicode.Scalar(UInt32(random.below(random.below(4) == 0 ? 0x11_0000 : 0x100)))
      }
      var text = String.UnicodeScalarView()
      text.append(contentsOf: scalars)
      try checkRoundTrip([String(text): String(text)])
    }
  }

  @Test func primitivesRoundTrip() throws {
    try check(Double.infinity)
    try check([
      -Double.infinity, 1e300, Double.leastNonzeroMagnitude, -0.0, 3, 0.1, 1e16, 1e15,
    ])
    try check([0.1, 3, -Float.infinity, 0.5])
    let values: [any Codable & Equatable] = [
      [UInt64.max, 0], [Int128.max, Int128.min, 0], [UInt128(UInt64.max), 0], WideIntegers(),
      [Int8.min, 127], [Data([0, 255]), Data()],
      [Date(timeIntervalSinceReferenceDate: 1.5), Date()],
      [try #require(Decimal(string: "12345678901234567890123456789.5"))], [UUID()],
    ]
    for value in values { try checkRoundTrip(value) }
    try check([URL(string: "b", relativeTo: URL(string: "https://a.example/x/"))])
    #expect(try text([1.0, 2.5, .nan]) == #"[1,2.5,"NaN"]"#)
    #expect(try text([Float.nan]) == #"["NaN"]"#)
    #expect(try text([Float(0.1)]) == "[0.1]")
    #expect(try text(["a/b\n\u{1}"]) == #"["a/b\n\u0001"]"#)
    #expect(try text(true) == "true" && text(Int?.none) == "null")
  }

  @Test func dictionariesWithAnyKeyTypeRoundTrip() throws {
    let values: [any Codable & Equatable] = [
      ["a": 1, "b\n\"": 2], [1: "a", -2: "b"], [Suit.hearts: 1], [Tag(name: "x"): [1]],
      [UUID(): 1], [true: 1], [[1]: ["a": 1.5]], [String: Int](),
    ]
    for value in values { try checkRoundTrip(value) }
    var many: [String: [String: Int]] = [:]
    for number in 0..<500 { many["key \(number)"] = ["\(number)": number] }
    try checkRoundTrip(many)
  }

  @Test func enumsAndEmptyTypesRoundTrip() throws {
    try checkRoundTrip([Shape.circle(radius: 1), .square(side: 2, name: nil), .point])
    try checkRoundTrip([Suit.hearts, .spades])
    try checkRoundTrip([Empty()])
    try checkRoundTrip(Shape.nested(.nested(.square(side: 1, name: "a"))))
  }

  // MARK: Order and duplicates

  @Test func membersKeepTheOrderOfEncoding() throws {
    let written = try text { encoder in
      var container = encoder.container(keyedBy: Name.self)
      for name in ["z", "a", "m", "b"] { try container.encode(1, forKey: Name(name)) }
    }
    #expect(written == #"{"z":1,"a":1,"m":1,"b":1}"#)
  }

  @Test(arguments: [0, 14, 15, 16, 17, 40])
  func lastValueOfAKeyCounts(others: Int) throws {
    let script = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      try container.encode("first", forKey: "a")
      var nested = container.nestedContainer(keyedBy: Name.self, forKey: "nested")
      for number in 0..<others { try container.encode(number, forKey: Name("n\(number)")) }
      try container.encode(["x": 1], forKey: "a")
      try container.encode(2, forKey: "ab")
      try container.encodeNil(forKey: "a")
      try container.encode(3, forKey: "n0")
      try nested.encode(1, forKey: "late")
    }
    try check(script)
    #expect(try text(script).contains(#""a":null"#))
  }

  @Test func overwritingAContainerRemovesItsContents() throws {
    let script = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      var dropped = container.nestedContainer(keyedBy: Name.self, forKey: "a")
      var kept = container.nestedContainer(keyedBy: Name.self, forKey: "b")
      try dropped.encode(1, forKey: "x")
      try container.encode(2, forKey: "a")
      try kept.encode(3, forKey: "y")
      try dropped.encode(4, forKey: "z")
    }
    try check(script)
    #expect(try text(script) == #"{"b":{"y":3},"a":2}"#)
  }

  // MARK: Containers

  @Test func containersCanBeFilledAfterTheirSiblings() throws {
    let script = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      var object = container.nestedContainer(keyedBy: Name.self, forKey: "object")
      var array = container.nestedUnkeyedContainer(forKey: "array")
      let other = container.superEncoder()
      try container.encode("later", forKey: "sibling")
      var inner = array.nestedUnkeyedContainer()
      var innerObject = array.nestedContainer(keyedBy: Name.self)
      try array.encode(9)
      try object.encode(1, forKey: "x")
      try inner.encode("deep")
      try innerObject.encode([1], forKey: "deep")
      var last = other.singleValueContainer()
      try last.encode("super")
    }
    try check(script)
    #expect(
      try text(script) == """
        {"object":{"x":1},"array":[["deep"],{"deep":[1]},9],"super":"super","sibling":"later"}
        """)
  }

  @Test func emptyContainersAreKept() throws {
    #expect(try text { _ = $0.container(keyedBy: Name.self) } == "{}")
    #expect(try text { _ = $0.unkeyedContainer() } == "[]")
    let script = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      _ = container.nestedContainer(keyedBy: Name.self, forKey: "a")
      _ = container.nestedUnkeyedContainer(forKey: "b")
      _ = container.superEncoder(forKey: "c")
      try container.encode(Script { _ in }, forKey: "d")
      try container.encode([Script { _ in }], forKey: "e")
    }
    try check(script)
    #expect(try text(script) == #"{"a":{},"b":[],"c":{},"d":{},"e":[{}]}"#)
    #expect(throws: EncodingError.self) { try text { _ in } }
    #expect(throws: EncodingError.self) { try text { _ = $0.singleValueContainer() } }
  }

  @Test func subclassesShareAContainerOrUseSuperEncoders() throws {
    /// As a superclass, with the encoder of its subclass or with one of its own.
    func encodeBase(to encoder: any Encoder, isShared: Bool = false) throws {
      var container = encoder.container(keyedBy: Name.self)
      try container.encode("Rex", forKey: "name")
      guard isShared else { return }
      var tags = container.nestedContainer(keyedBy: Name.self, forKey: "tags")
      try tags.encode(1, forKey: "base")
      var list = container.nestedUnkeyedContainer(forKey: "list")
      try list.encode("base")
    }
    let dog = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      try container.encode("Collie", forKey: "breed")
      try encodeBase(to: encoder, isShared: true)
      var tags = container.nestedContainer(keyedBy: Name.self, forKey: "tags")
      try tags.encode(2, forKey: "derived")
      var list = container.nestedUnkeyedContainer(forKey: "list")
      try list.encode("derived")
      try encodeBase(to: container.superEncoder())
      try encodeBase(to: container.superEncoder(forKey: "chip"))
    }
    try check(dog)
    #expect(
      try text(dog) == """
        {"breed":"Collie","name":"Rex","tags":{"base":1,"derived":2},"list":["base","derived"],\
        "super":{"name":"Rex"},"chip":{"name":"Rex"}}
        """)
  }

  @Test func nestedContainersAddToEncodedValues() throws {
    for value in [["a": 1, "b": 2], [:]] {
      let script = Script { encoder in
        var container = encoder.container(keyedBy: Name.self)
        try container.encode(value, forKey: "value")
        try container.encode([["x"]], forKey: "list")
        var more = container.nestedContainer(keyedBy: Name.self, forKey: "value")
        try more.encode(3, forKey: "b")
        try more.encode(4, forKey: "c")
        var list = container.nestedUnkeyedContainer(forKey: "list")
        try list.encode(list.count)
      }
      try check(script)
    }
    let single = Script { encoder in
      var container = encoder.singleValueContainer()
      try container.encode(["a": 1])
      var more = encoder.container(keyedBy: Name.self)
      try more.encode(2, forKey: "b")
    }
    try check(single)
  }

  // MARK: Misuse, on which Foundation's encoder traps

  @Test func throwsWhenAValueEncodesAsTwoKinds() throws {
    let misuses: [(any Encoder) throws -> Void] = [
      {
        _ = $0.container(keyedBy: Name.self)
        _ = $0.unkeyedContainer()
      },
      {
        var container = $0.unkeyedContainer()
        try container.encode(1)
        var other = $0.container(keyedBy: Name.self)
        try? other.encode(1, forKey: "a")
      },
      {
        var container = $0.singleValueContainer()
        try container.encode(1)
        _ = $0.container(keyedBy: Name.self)
      },
      {
        var container = $0.singleValueContainer()
        try container.encode(1)
        try container.encode(2)
      },
      {
        var container = $0.container(keyedBy: Name.self)
        _ = container.nestedContainer(keyedBy: Name.self, forKey: "a")
        _ = container.nestedUnkeyedContainer(forKey: "a")
      },
      {
        var container = $0.container(keyedBy: Name.self)
        try container.encode(1, forKey: "a")
        var nested = container.nestedUnkeyedContainer(forKey: "a")
        try nested.encode(1)
      },
      {
        // A value that writes to the container around it.
        let outer = $0
        var container = outer.container(keyedBy: Name.self)
        let intruder = Script { inner in
          var own = inner.container(keyedBy: Name.self)
          try own.encode(1, forKey: "x")
          var enclosing = outer.container(keyedBy: Name.self)
          try enclosing.encode(2, forKey: "y")
        }
        try container.encode(intruder, forKey: "a")
      },
    ]
    for (number, misuse) in misuses.enumerated() {
      #expect(throws: EncodingError.self, "\(number)") { try text(misuse) }
      #expect(throws: EncodingError.self, "\(number)") { try text([["a": Script(body: misuse)]]) }
    }
  }

  @Test func encodersKeptAfterEncodingAreHarmless() throws {
    nonisolated(unsafe) var kept: (any Encoder)?
    nonisolated(unsafe) var container: KeyedEncodingContainer<Name>?
    nonisolated(unsafe) var nested: (any UnkeyedEncodingContainer)?
    let written = try text([
      Script { encoder in
        kept = encoder
        container = encoder.container(keyedBy: Name.self)
        nested = container?.nestedUnkeyedContainer(forKey: "a")
      }
    ])
    #expect(written == #"[{"a":[]}]"#)
    #expect(throws: EncodingError.self) { try container?.encode(1, forKey: "b") }
    _ = kept?.unkeyedContainer()
    try? nested?.encode(1)
    _ = kept?.codingPath
  }

  // MARK: Errors

  @Test func errorsArePassedOnAndRemovePartialOutput() throws {
    struct Failure: Error {}
    let failing = Script { encoder in
      var container = encoder.container(keyedBy: Name.self)
      try container.encode("half", forKey: "a")
      var nested = container.nestedUnkeyedContainer(forKey: "b")
      try nested.encode(1)
      throw Failure()
    }
    #expect(throws: Failure.self) { try JSONWriter.bytes(of: [["a": failing]]) }
    let written = try text { encoder in
      var container = encoder.container(keyedBy: Name.self)
      try container.encode(1, forKey: "kept")
      try? container.encode(failing, forKey: "kept")
      try? container.encode([failing], forKey: "lost")
      var list = container.nestedUnkeyedContainer(forKey: "list")
      try list.encode("x")
      try? list.encode(failing)
      try list.encode("y")
      #expect(list.count == 2 && container.codingPath.isEmpty)
      try container.encode(2, forKey: "after")
    }
    #expect(written == #"{"kept":1,"list":["x","y"],"after":2}"#)
    let fallbacks: [(any Encodable, String)] = [(7, "7"), (["x": 1], #"{"x":1}"#)]
    for (fallback, json) in fallbacks {
      let single = try text { encoder in
        var container = encoder.singleValueContainer()
        do {
          try container.encode(failing)
        } catch is Failure {
          try container.encode(fallback)
        }
      }
      #expect(single == json)
    }
    let number = #expect(throws: EncodingError.self) {
      try JSONWriter.bytes(of: ["a": [Decimal.nan]])
    }
    guard case .invalidValue(_, let context) = number else { return }
    #expect(context.codingPath.map(\.stringValue) == ["a", "Index 0"])
  }

  @Test func codingPathsMatchFoundations() throws {
    nonisolated(unsafe) var paths: [[String]] = []
    func note(_ path: [any CodingKey]) { paths.append(path.map { "\($0.stringValue)" }) }
    let script = Script { encoder in
      #expect(encoder.userInfo.isEmpty)
      note(encoder.codingPath)
      var container = encoder.container(keyedBy: Name.self)
      try container.encode(1, forKey: "first")
      note(container.codingPath)
      let leaf = Script { encoder in
        note(encoder.codingPath)
        var single = encoder.singleValueContainer()
        note(single.codingPath)
        try single.encode(
          Script {
            note($0.codingPath)
            var container = $0.unkeyedContainer()
            try container.encode(1)
            note(container.codingPath)
          })
      }
      try container.encode([["k": leaf], [:], ["l": leaf]], forKey: "a")
      let nested = container.nestedUnkeyedContainer(forKey: "b")
      note(nested.codingPath)
      note(container.superEncoder().codingPath)
      note(container.superEncoder(forKey: "c").codingPath)
      note(encoder.codingPath)
    }
    _ = try text(["top": script])
    let ours = paths
    paths = []
    _ = try DocumentCodec.encoder.encode(["top": script])
    #expect(ours == paths)
    #expect(ours.contains(["top", "a", "Index 0", "k"]))
  }

  @Test func nestsTwoLevelsLessThanTheDecoderReads() throws {
    for rest in [507, 508, 509] {
      let bytes = try JSONWriter.bytes(of: Chain(rest: rest))
      #expect(bytes.count == rest * 9 + 2)
      _ = try Codec.decoder.decode(Defaults.Value.self, from: Data(bytes))
    }
    // A value that is not a container adds no depth.
    _ = try Codec.decoder.decode(
      Defaults.Value.self, from: Data(try JSONWriter.bytes(of: Chain(rest: 509, end: UUID()))))
    for rest in [510, 511, 512, 513, 20_000] {
      let error = #expect(throws: EncodingError.self) { try text(Chain(rest: rest)) }
      guard case .invalidValue(_, let context) = error else { return }
      #expect(context.codingPath.isEmpty)
      #expect(throws: (any Error).self) { try DocumentCodec.encoder.encode(Chain(rest: 512)) }
    }
    func nested(_ count: Int) throws -> [UInt8] {
      try JSONWriter.bytes(
        of: Script { encoder in
          var container = encoder.container(keyedBy: Name.self)
          var list = container.nestedUnkeyedContainer(forKey: "a")
          for _ in 2..<count { list = list.nestedUnkeyedContainer() }
        })
    }
    _ = try Codec.decoder.decode(Defaults.Value.self, from: Data(try nested(510)))
    for count in [511, 512, 513, 20_000] {
      #expect(throws: EncodingError.self) { try nested(count) }
    }
  }

  /// An export and an engine add a level to a value that looks like a tagged one.
  @Test func deepestValuesCanBeExportedAndGivenToEngines() throws {
    let (store, copy) = (try TemporaryDirectory().store(), try TemporaryDirectory().store())
    for rest in 505...513 {
      try store.removeAll()
      guard (try? store.set(Chain(rest: rest), forKey: "k")) != nil else { continue }
      let value = try #require(try store.storedValue(forKey: "k"))
      #expect(StoredValue(engineData: value.engineData) == value, "\(rest)")
      #expect(throws: Never.self, "\(rest)") { try copy.import(store.export(as: .json)) }
      #expect(try copy.storedValue(forKey: "k") == value, "\(rest)")
    }
  }

  /// Comparing every two names would take about a minute.
  @Test func writesManyNestedContainersInOneObject() throws {
    let count = 30_000
    let bytes = try JSONWriter.bytes(
      of: Script { encoder in
        var container = encoder.container(keyedBy: Name.self)
        for number in 0..<count {
          _ = container.nestedUnkeyedContainer(forKey: Name("\(number)"))
        }
      })
    #expect(JSONScanner.members(of: bytes)?.count == count)
  }
}

// MARK: - Values to encode

/// A value with an arbitrary `encode(to:)`.
private struct Script: Encodable {
  let body: (any Encoder) throws -> Void
  func encode(to encoder: any Encoder) throws { try body(encoder) }
}

private struct Name: CodingKey, ExpressibleByStringLiteral {
  let stringValue: String
  var intValue: Int? { nil }
  init(_ name: String) { stringValue = name }
  init(stringLiteral name: String) { stringValue = name }
  init(stringValue: String) { self.stringValue = stringValue }
  init?(intValue: Int) { nil }
}

private enum Suit: String, Codable, CodingKeyRepresentable { case hearts, spades }

private struct Tag: Codable, Hashable, CodingKeyRepresentable {
  let name: String
  var codingKey: any CodingKey { Name(name) }
  init(name: String) { self.name = name }
  init?<T: CodingKey>(codingKey: T) { name = codingKey.stringValue }
}

private struct Empty: Codable, Equatable {}

/// The encoder has calls of its own for these types, which generic code does not make.
private struct WideIntegers: Codable, Equatable {
  var signed = Int128.min
  var unsigned = UInt128(UInt64.max)
}

private indirect enum Shape: Codable, Equatable {
  case circle(radius: Double)
  case square(side: Int, name: String?)
  case nested(Shape)
  case point
}

/// A chain of objects within each other.
private struct Chain: Codable {
  enum Key: String, CodingKey { case rest = "$any" }
  let rest: Int
  var end: UUID?

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    if rest > 0 {
      try container.encode(Chain(rest: rest - 1, end: end), forKey: .rest)
    } else if let end {
      try container.encode(end, forKey: .rest)
    }
  }
}

extension SplitMix64 {
  fileprivate mutating func text() -> String {
    let parts = [
      "a", "\"", "\\", "\n", "/", "é", "\u{0}", "👩‍👩‍👧‍👦", "abcdefghij", "\u{2028}",
      "\u{1F}",
    ]
    return (0..<below(5)).map { _ in parts[below(parts.count)] }.joined()
  }

  fileprivate mutating func double() -> Double {
    switch below(4) {
    case 0: Double(below(1_000))
    case 1: Double(below(1_000)) / 8
    case 2: [0.1, -0.0, 1e300, .infinity, -.infinity, Double.leastNonzeroMagnitude][below(6)]
    default:
      [Double(bitPattern: next())].first { $0.isFinite } ?? 1
    }
  }
}

/// Makes random calls of its encoder; the same seed makes the same calls.
private struct Program: Encodable {
  let seed: UInt64
  let depth: Int

  func encode(to encoder: any Encoder) throws {
    var random = SplitMix64(seed: seed)
    try run(encoder, &random)
  }

  private func run(_ encoder: any Encoder, _ random: inout SplitMix64) throws {
    switch random.below(8) {
    case 0:
      var container = encoder.singleValueContainer()
      try encodeScalar(&random) { try container.encode($0) }
    case 1 where depth > 0:
      var container = encoder.singleValueContainer()
      try container.encode(next(&random))
    case 2:
      var container = encoder.unkeyedContainer()
      try fill(&container, &random)
      var again = encoder.unkeyedContainer()
      try fill(&again, &random)
    case 3: break
    case 4:
      var container = encoder.singleValueContainer()
      try container.encodeNil()
    default:
      var container = encoder.container(keyedBy: Name.self)
      try fill(&container, &random)
      if random.below(3) == 0 {
        var again = encoder.container(keyedBy: Name.self)
        try fill(&again, &random)
      }
    }
  }

  private func next(_ random: inout SplitMix64) -> Program {
    Program(seed: random.next(), depth: depth - 1)
  }

  private func fill(
    _ container: inout KeyedEncodingContainer<Name>, _ random: inout SplitMix64, level: Int = 0
  ) throws {
    var objects: [KeyedEncodingContainer<Name>] = []
    var arrays: [any UnkeyedEncodingContainer] = []
    for _ in 0..<random.below(random.below(6) == 0 ? 40 : 7) {
      let key = Name("v\(random.below(30))\(random.below(9) == 0 ? "\n\"é" : "")")
      switch random.below(10) {
      case 0, 1, 2: try encodeScalar(&random) { try container.encode($0, forKey: key) }
      case 3: try container.encodeNil(forKey: key)
      case 4 where depth > 0: try container.encode(next(&random), forKey: key)
      case 5 where level < 2:
        let key = Name("o\(random.below(3))")
        objects.append(container.nestedContainer(keyedBy: Name.self, forKey: key))
      case 6 where level < 2:
        arrays.append(container.nestedUnkeyedContainer(forKey: Name("a\(random.below(3))")))
      case 7 where depth > 0 && level < 2:
        let part = next(&random)
        try part.encode(to: container.superEncoder(forKey: Name("s\(random.below(3))")))
      case 8 where !objects.isEmpty:
        let index = random.below(objects.count)
        try fill(&objects[index], &random, level: level + 1)
      case 9 where !arrays.isEmpty:
        let index = random.below(arrays.count)
        try fill(&arrays[index], &random, level: level + 1)
      default: break
      }
    }
  }

  private func fill(
    _ container: inout any UnkeyedEncodingContainer, _ random: inout SplitMix64, level: Int = 0
  ) throws {
    var objects: [KeyedEncodingContainer<Name>] = []
    var arrays: [any UnkeyedEncodingContainer] = []
    for _ in 0..<random.below(6) {
      let count = container.count
      switch random.below(9) {
      case 0, 1, 2: try encodeScalar(&random) { try container.encode($0) }
      case 3: try container.encodeNil()
      case 4 where depth > 0: try container.encode(next(&random))
      case 5 where level < 2: objects.append(container.nestedContainer(keyedBy: Name.self))
      case 6 where level < 2: arrays.append(container.nestedUnkeyedContainer())
      case 7 where depth > 0: try next(&random).encode(to: container.superEncoder())
      case 8 where !objects.isEmpty || !arrays.isEmpty:
        for index in objects.indices { try fill(&objects[index], &random, level: level + 1) }
        for index in arrays.indices { try fill(&arrays[index], &random, level: level + 1) }
        continue
      default: continue
      }
      #expect(container.count == count + 1)
    }
  }

  private func encodeScalar(
    _ random: inout SplitMix64, _ encode: (any Encodable) throws -> Void
  ) throws {
    let word = random.next()
    let values: [any Encodable] = [
      random.text(), Int(truncatingIfNeeded: word), Int8(truncatingIfNeeded: word),
      Int16(truncatingIfNeeded: word), Int32(truncatingIfNeeded: word),
      Int64(bitPattern: word), Int128(word) << 20, UInt(word), UInt8(truncatingIfNeeded: word),
      UInt16(truncatingIfNeeded: word), UInt32(truncatingIfNeeded: word), word,
      UInt128(word) << 20, random.double(), Float(random.double()), word % 2 == 0,
      Data([1, 2, 3]), Date(timeIntervalSinceReferenceDate: random.double()),
      URL(filePath: "/a b/\(word)"), Decimal(word),
      UUID(uuid: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)), Suit.hearts,
      Shape.square(side: 1, name: nil), Int?.none, Optional(random.text()), Optional(Optional(3)),
      ["x": [random.double()]], [random.text()], [1, 2, 3], [Int8(1)], [1.5], [Float(0.1)],
      [1: 2], [0.5: 1], [String](), [String: Int](), Empty(), 1...3, [Int?.none, 4],
    ]
    try encode(values[random.below(values.count)])
  }
}
