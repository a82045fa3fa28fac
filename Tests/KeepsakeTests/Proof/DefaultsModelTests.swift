import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Settings behave like a dictionary.
protocol SuiteModel: StoreModel where Store == SettingsUnderTest {
  var values: [Int: Sample] { get set }
  var backup: [Int: Sample]? { get set }
}

/// In a journal.
struct DefaultsModel: SuiteModel {
  static let name = "settings"
  var values: [Int: Sample] = [:]
  var backup: [Int: Sample]?

  static func open(
    _ directory: TemporaryDirectory, _ failures: Failures
  ) throws -> SettingsUnderTest {
    let store = directory.store(failures: failures)
    return SettingsUnderTest(
      store: store, backup: directory.file("backup"), rival: directory.store(),
      journalCalls: .init(
        compact: {
          // There is no file to compact before the first set.
          if try !store.keys().isEmpty { try store.journal.compact() }
        },
        synchronizeInBackground: { try store.journal.synchronizeInBackground() }))
  }

  /// Publishes a record that was written and not published: newly opened stores read it, and open
  /// stores read it after the next write.
  static func recover(_ directory: TemporaryDirectory, _ store: SettingsUnderTest) throws {
    try store.store.set(1, forKey: "recovered")
    try store.store.remove("recovered")
  }
}

/// In one file for each key.
struct FileEngineModel: SuiteModel {
  static let name = "engine of files"
  var values: [Int: Sample] = [:]
  var backup: [Int: Sample]?

  static func open(
    _ directory: TemporaryDirectory, _ failures: Failures
  ) throws -> SettingsUnderTest {
    let engine = FileEngine(Folder(directory.file("engine")))
    return SettingsUnderTest(
      store: directory.store(engine: engine), backup: directory.file("backup"),
      longestKey: 1_000)
  }

  /// One file after the other.
  func partialStates(of call: Call, found: [String: String]) -> [Self] {
    var (first, rest) = (self, self)
    switch call {
    case .removeAll: rest.values = values.filter { found["\($0.key)"] != nil }
    case .merge(let key, let other, let number):
      first.values[key] = .int(number)
      rest.values[other] = .int(number + 1)
    default: return []
    }
    return [first, rest]
  }
}

extension SuiteModel {
  typealias Call = SettingsUnderTest.Call

  static func randomCall(_ generator: inout SplitMix64) -> Call {
    let key = Int.randomKey(&generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<35: return .set(key, .random(&generator))
    case 35..<50: return .get(key, as: .allCases.randomElement(using: &generator) ?? .int)
    case 50..<53: return .contains(key)
    case 53..<63: return .remove(key)
    case 63..<66: return .removeAll
    case 66..<76: return .update(key)
    case 76..<80: return .race(key, with: Int.random(in: 0..<9, using: &generator))
    case 80..<84: return .synchronize
    case 84..<88: return .compact
    case 88..<91: return .importExport
    case 91..<93: return .backUp
    case 93..<95: return .restore
    default:
      let other = (key + Int.random(in: 1..<5, using: &generator)) % ModelKeys.all.count
      return .merge(key, other, Int.random(in: 0..<9, using: &generator))
    }
  }

  /// A race needs a second store in the same process, and no public call compacts.
  static func isAvailableToPeer(_ call: Call) -> Bool {
    switch call {
    case .race, .compact, .synchronizeInBackground: false
    default: true
    }
  }

  /// A backup may be complete or not.
  static func mayBeInterrupted(_ call: Call) -> Bool {
    if case .backUp = call { false } else { true }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .set(let key, let sample): .get(key, as: sample.kind)
    case .remove(let key): .contains(key)
    case .update(let key), .race(let key, _): .get(key, as: .int)
    case .merge(_, let key, _): .get(key, as: .int)
    default: nil
    }
  }

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    var answer = "done"
    switch call {
    case .set(let key, let sample): next.values[key] = sample
    case .get(let key, let kind): answer = values[key]?.summary(as: kind) ?? "nothing"
    case .contains(let key): answer = "\(values[key] != nil)"
    case .remove(let key): next.values[key] = nil
    case .removeAll: next.values = [:]
    case .update(let key): answer = next.add(key)
    case .race(let key, let number):
      // The closure is not called for a value of another type.
      if values[key]?.summary(as: .int).hasPrefix("error") != true {
        next.values[key] = .int(number)
      }
      answer = next.add(key)
    case .merge(let first, let second, let number):
      next.values[first] = .int(number)
      next.values[second] = .int(number + 1)
    case .backUp: next.backup = values
    case .restore:
      if let backup { next.values = backup } else { answer = "none" }
    case .synchronize, .synchronizeInBackground, .compact, .importExport: break
    }
    return [ModelOutcome(answer, next)]
  }

  fileprivate mutating func add(_ key: Int) -> String {
    switch values[key] ?? .int(0) {
    case .int(let number):
      values[key] = .int(number &+ 1)
      return "\(number &+ 1)"
    default: return "error: type"
    }
  }

  var contents: [String: String] {
    Dictionary(uniqueKeysWithValues: values.map { ("\($0)", $1.summary) })
  }

  func partialStates(of call: Call, found: [String: String]) -> [Self] {
    guard case .race(let key, let number) = call else { return [] }
    // Only the set of the other store.
    var other = self
    other.values[key] = .int(number)
    return [other]
  }
}

extension DefaultsModel: SweptModel {
  static var sweeps: [Sweep<Call>] {
    let start: [Call] = [.set(0, .marked(1)), .set(1, .int(1)), .set(3, .bool(true))]
    let calls: [Call] = [
      .set(0, .marked(2)), .set(2, .marked(2)), .set(0, .bytes(9_000)), .remove(0), .removeAll,
      .update(1), .get(0, as: .text), .contains(0), .synchronize, .importExport, .merge(0, 4, 5),
      .backUp,
    ]
    let backedUp = start + [.backUp, .set(0, .marked(3)), .remove(3), .set(4, .int(4))]
    let damage: @Sendable (TemporaryDirectory) throws -> Void = { directory in
      var bytes = try directory.bytes(of: TemporaryDirectory.journal)
      bytes[JournalFormat.headerSize - 10] ^= 1
      try directory.write(bytes, to: TemporaryDirectory.journal)
    }
    return [Sweep(call: .set(0, .marked(1)))] + calls.map { Sweep(call: $0, start: start) }
      + [
        Sweep(call: .compact, start: start + [.get(0, as: .text)]),
        Sweep(call: .restore, start: backedUp),
        Sweep(call: .get(0, as: .text), start: start, alter: damage),
      ]
  }

  static func leftovers(
    _ directory: TemporaryDirectory, _ store: SettingsUnderTest, _ call: FailedCall
  ) throws -> [String] {
    if call.failure == nil, call.event.call == .unlink {
      // A replaced file that cannot be removed is left to the sweep of a later compaction.
      let path = directory.file(TemporaryDirectory.journal).path
      try FileSystem.removeStaleTemporaryFiles(for: path, olderThan: nil)
    }
    return try directory.temporaries() + directory.names().filter { $0.contains(".damaged-") }
  }
}

extension FileEngineModel: SweptModel {
  static var sweeps: [Sweep<Call>] {
    // Its name is too long for a file.
    let long = ModelKeys.all.count - 1
    let start: [Call] = [.set(0, .marked(1)), .set(long, .marked(1)), .set(1, .int(1))]
    let calls: [Call] = [
      .set(0, .marked(2)), .set(long, .marked(2)), .set(3, .marked(2)), .remove(0), .remove(long),
      .removeAll, .update(1), .get(0, as: .text), .importExport, .merge(0, 4, 5),
    ]
    return [Sweep(call: .set(0, .marked(1)))] + calls.map { Sweep(call: $0, start: start) }
  }

  /// Removing all values goes on after a file that cannot be deleted.
  func faultStates(of call: Call) -> [Self] {
    guard case .removeAll = call else { return [] }
    return values.keys.map { key in
      var state = self
      state.values = values.filter { $0.key == key }
      return state
    }
  }
}

extension DefaultsModel: DamagedModel {
  /// The first value is set twice, so that the journal holds an older one.
  static let filling: [Call] = [
    .set(0, .marked(9)), .set(0, .marked(1)), .set(1, .text(9)), .set(3, .int(7)), .synchronize,
  ]
  static let newValue = Call.set(4, .marked(2))

  static func nameStored(by call: Call) -> String? {
    if case .set(let key, _) = call { "\(key)" } else { nil }
  }

  static let kinds: Set = ["journal"]

  static func kind(of file: Snapshot.File) -> String? {
    file.name == TemporaryDirectory.journal ? "journal" : nil
  }

  static func owners(in directory: TemporaryDirectory) -> [String: String] { [:] }

  static func later<R>(_ calls: () throws -> R) rethrows -> R { try anHourLater(calls) }

  /// No value, or the one before the last set. Damage is reported, unless the file looks like an
  /// older one.
  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool {
    let journal = TemporaryDirectory.journal
    guard scene.names.contains(journal) else { return false }
    func value(after count: Int) -> String? {
      var state = Self()
      for call in filling.prefix(count) { state = state.outcomes(of: call, by: .first)[0].model }
      return state.contents[name]
    }
    let isOld = found == nil || name == "0" && found == value(after: 1)
    let isReported = !scene.failures.all.isEmpty
    switch scene.damage {
    case .cut(0), .deleted: return isOld
    case .exchanged:
      // An empty file in its place looks as if nothing was ever stored.
      let isEmpty = scene.template.files.contains {
        $0.name != journal && scene.names.contains($0.name) && $0.bytes.isEmpty
      }
      return isOld && (isReported || isEmpty)
    default: return isOld && isReported
    }
  }
}

extension FileEngineModel: DamagedModel {
  static let filling: [Call] = [.set(0, .marked(1)), .set(1, .text(9))]
  static let newValue = Call.set(2, .marked(2))

  static func nameStored(by call: Call) -> String? { DefaultsModel.nameStored(by: call) }

  static let kinds: Set = ["file of a key", "lock"]

  static func kind(of file: Snapshot.File) -> String? {
    file.name.hasSuffix(".lock") ? "lock" : file.name.hasSuffix(".json") ? "file of a key" : nil
  }

  private static func file(_ name: String) -> String {
    "engine/\(ModelKeys.key(named: name)).json"
  }

  static func owners(in directory: TemporaryDirectory) -> [String: String] {
    Dictionary(uniqueKeysWithValues: ["0", "1"].map { (file($0), $0) })
  }

  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool {
    scene.isPlainFile(file(name), holding: found) { bytes in
      let text = try? JSONDecoder().decode(String.self, from: Data(bytes))
      return text.map { Sample.summary(of: $0) }
    }
  }
}

extension Sample {
  static func random(_ generator: inout SplitMix64) -> Sample {
    let number = Int.random(in: 0..<12, using: &generator)
    let isLong = Int.random(in: 0..<12, using: &generator) == 0
    let length = isLong ? Int.random(in: 0..<9_000, using: &generator) : number
    return switch Int.random(in: 0..<9, using: &generator) {
    case 0: .int([.min, .max, -1, 1 << 53 + 1][number % 4])
    case 1: .int(number)
    case 2: .bool(number.isMultiple(of: 2))
    case 3: .text(length)
    case 4: .number(number)
    case 5: .bytes(length)
    case 6: .date(number)
    case 7: .list(number)
    default: .model(number)
    }
  }

  var kind: Kind {
    switch self {
    case .int: .int
    case .bool: .bool
    case .text, .marked, .pages: .text
    case .number: .number
    case .bytes: .bytes
    case .date: .date
    case .list: .list
    case .model: .model
    }
  }

  /// The value as read with another type: numbers convert if that loses nothing, other values do
  /// not.
  func summary(as kind: Kind) -> String {
    if kind == self.kind { return summary }
    if kind == .number, case .int(let number) = self, let exact = Double(exactly: number) {
      return Sample.summary(of: exact)
    }
    if kind == .int, case .number(let number) = self,
      let exact = Int(exactly: Sample.number(of: number))
    {
      return Sample.summary(of: exact)
    }
    return "error: type"
  }
}

extension Int {
  /// Mostly one of a few keys, so that calls often use the same one.
  static func randomKey(_ generator: inout SplitMix64) -> Int {
    let isUsual = Int.random(in: 0..<3, using: &generator) > 0
    return .random(in: 0..<(isUsual ? 5 : ModelKeys.all.count), using: &generator)
  }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct DefaultsModelTests {
    @Test func settingsBehaveLikeADictionary() {
      ModelCheck<DefaultsModel>().run(sequences: 40, length: 80)
    }
  }
}
