import Testing

@testable import Keepsake
@testable import keepsake_peer

/// Settings behave like a dictionary.
struct DefaultsModel: StoreModel {
  typealias Call = ScriptedSettings.Call

  static let name = "settings"
  private var values: [Int: Sample] = [:]

  static func open(_ directory: TemporaryDirectory) throws -> ScriptedSettings {
    let store = directory.store()
    return ScriptedSettings(
      store: store, rival: directory.store(),
      compact: {
        // There is no file to compact before the first set.
        if try !store.keys().isEmpty { try store.journal.compact() }
      })
  }

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
    case 84..<90: return .compact
    case 90..<94: return .restore
    default:
      let other = (key + Int.random(in: 1..<5, using: &generator)) % ModelKeys.all.count
      return .merge(key, other, Int.random(in: 0..<9, using: &generator))
    }
  }

  static func simpler(_ call: Call) -> [Call] {
    switch call {
    case .set(let key, let sample):
      sample.simpler.map { .set(key, $0) } + key.simpler.map { .set($0, sample) }
    case .get(let key, let kind): key.simpler.map { .get($0, as: kind) }
    case .contains(let key): key.simpler.map { .contains($0) }
    case .remove(let key): key.simpler.map { .remove($0) }
    case .update(let key): key.simpler.map { .update($0) }
    case .race(let key, let number): [.update(key)] + key.simpler.map { .race($0, with: number) }
    case .merge(let first, let second, let number):
      [.set(first, .int(number)), .set(second, .int(number + 1))]
    case .removeAll, .synchronize, .compact, .restore: []
    }
  }

  /// A race needs a second store in the same process, and no public call compacts.
  static func isAvailableToPeer(_ call: Call) -> Bool {
    switch call {
    case .race, .compact: false
    default: true
    }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .set(let key, let sample): .get(key, as: sample.kind)
    case .remove(let key): .contains(key)
    case .update(let key), .race(let key, _): .get(key, as: .int)
    case .merge(_, let key, _): .get(key, as: .int)
    case .get, .contains, .removeAll, .synchronize, .compact, .restore: nil
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
    case .synchronize, .compact, .restore: break
    }
    return [ModelOutcome(answer, next)]
  }

  private mutating func add(_ key: Int) -> String {
    switch values[key] ?? .int(0) {
    case .int(let number):
      values[key] = .int(number &+ 1)
      return "\(number &+ 1)"
    default: return "error: type"
    }
  }

  private var contents: [Int: String] { values.mapValues(\.summary) }

  /// Publishes a record that was written and not published: newly opened stores read it, and open
  /// stores read it after the next write.
  static func recover(_ directory: TemporaryDirectory, _ store: ScriptedSettings) throws {
    try store.store.set(1, forKey: "recovered")
    try store.store.remove("recovered")
  }

  mutating func accept(_ found: [Int: String]) -> Bool { found == contents }

  mutating func accept(_ found: [Int: String], interrupting call: Call) -> Bool {
    if found == contents { return true }
    var models = outcomes(of: call, by: .first).map(\.model)
    if case .race(let key, let number) = call {
      // Only the set of the other store.
      var other = self
      other.values[key] = .int(number)
      models.append(other)
    }
    guard let model = models.first(where: { $0.contents == found }) else { return false }
    self = model
    return true
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

  var simpler: [Sample] {
    switch self {
    case .int(1): []
    case .text(let number) where number > 12: [.int(1), .text(number / 2)]
    case .bytes(let number) where number > 0: [.int(1), .bytes(number / 2)]
    default: [.int(1)]
    }
  }

  var kind: Kind {
    switch self {
    case .int: .int
    case .bool: .bool
    case .text: .text
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

  /// Keys to try in place of this one.
  var simpler: [Int] { self == 0 ? [] : self == 1 ? [0] : [0, 1] }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct DefaultsModelTests {
    @Test func settingsBehaveLikeADictionary() {
      ModelCheck<DefaultsModel>().run(sequences: 40, length: 80)
    }
  }
}
