import Testing

@testable import KeepsakeTestSupport
@testable import keepsake_peer

@Suite(.proofThread) struct LinearizabilityCheckTests {
  private static func write(_ value: Int, _ began: UInt64, _ ended: UInt64?) -> RegisterCall {
    RegisterCall(key: 0, isWrite: true, value: value, began: began, ended: ended)
  }

  private static func read(_ value: Int, _ began: UInt64, _ ended: UInt64?) -> RegisterCall {
    RegisterCall(key: 0, isWrite: false, value: value, began: began, ended: ended)
  }

  private static let linearizable: [(name: String, calls: [RegisterCall])] = [
    ("nothing", []),
    (
      "one after another",
      [read(0, 1, 2), write(1, 3, 4), read(1, 5, 6), write(0, 7, 8), read(0, 9, 10)]
    ),
    ("a read during a write sees old or new", [write(1, 1, 9), read(0, 2, 3), read(1, 4, 5)]),
    ("new before the write returns", [write(1, 1, 9), read(1, 2, 3), read(1, 4, 5)]),
    (
      "writes at the same time", [write(1, 1, 9), write(2, 2, 8), read(2, 10, 11), read(2, 12, 13)]
    ),
    (
      "reads during both writes",
      [write(1, 1, 9), write(2, 2, 8), read(2, 3, 4), read(1, 5, 6), read(1, 10, 11)]
    ),
    (
      "a killed write that happened",
      [write(1, 1, 2), write(2, 3, nil), read(2, 4, 5), read(2, 6, 7)]
    ),
    (
      "a killed write that happened late",
      [write(1, 1, 2), write(2, 3, nil), read(1, 4, 5), read(2, 6, 7)]
    ),
    (
      "a killed write that never happened",
      [write(1, 1, 2), write(2, 3, nil), read(1, 4, 5), read(1, 6, 7)]
    ),
    (
      "a killed removal that happened",
      [write(1, 1, 2), write(0, 3, nil), read(1, 4, 5), read(0, 6, 7)]
    ),
    ("a killed read", [write(1, 1, 2), read(0, 3, nil), read(1, 4, 5)]),
    (
      "a killed write overwritten",
      [write(1, 1, nil), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7)]
    ),
    (
      "a slow read sees any value of its time",
      [write(1, 1, 2), read(1, 3, 20), write(2, 4, 5), write(3, 6, 7), read(3, 8, 9)]
    ),
  ]

  private static let wrong: [(name: String, calls: [RegisterCall])] = [
    ("a value that was not written", [write(1, 1, 2), read(2, 3, 4)]),
    ("a value before it is written", [read(1, 1, 2), write(1, 3, 4)]),
    ("an acknowledged write is missing", [write(1, 1, 2), read(0, 3, 4)]),
    (
      "old after new during a write",
      [write(1, 1, 2), write(2, 3, 20), read(2, 4, 5), read(1, 6, 7), read(2, 8, 9)]
    ),
    (
      "a killed write disappears", [write(1, 1, 2), write(2, 3, nil), read(2, 4, 5), read(1, 6, 7)]
    ),
    (
      "a killed removal disappears",
      [write(1, 1, 2), write(0, 3, nil), read(0, 4, 5), read(1, 6, 7)]
    ),
    (
      "readers disagree on the order",
      [write(1, 1, 9), write(2, 1, 9), read(1, 2, 3), read(2, 4, 5), read(1, 6, 7)]
    ),
    ("an old value returns", [write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)]),
    ("a removed value returns", [write(1, 1, 2), write(0, 3, 4), read(1, 5, 6)]),
    (
      "a write returns before an older one is read",
      [write(1, 1, 2), read(1, 3, 20), write(2, 4, 5), read(1, 6, 7)]
    ),
  ]

  @Test func acceptsWhatSomeOrderExplains() {
    for (name, calls) in Self.linearizable {
      #expect(LinearizabilityCheck.violation(in: calls) == nil, "\(name)")
      #expect(LinearizabilityCheck.violation(in: calls.reversed()) == nil, "\(name)")
    }
  }

  @Test func rejectsWhatNoOrderExplains() {
    for (name, calls) in Self.wrong {
      #expect(LinearizabilityCheck.violation(in: calls) != nil, "\(name)")
      #expect(LinearizabilityCheck.violation(in: calls.reversed()) != nil, "\(name)")
    }
  }

  @Test func aCacheMayLoseAValueButNotReturnToAnOldOne() {
    let lost = [Self.write(1, 1, 2), Self.read(0, 3, 4), Self.read(1, 5, 6)]
    #expect(LinearizabilityCheck.violation(in: lost) != nil)
    #expect(LinearizabilityCheck.violation(in: lost, mayLose: true) == nil)
    let old = lost + [Self.write(2, 7, 8), Self.read(0, 9, 10), Self.read(1, 11, 12)]
    #expect(LinearizabilityCheck.violation(in: old, mayLose: true) != nil)
  }

  @Test func describesWhatIsWrong() throws {
    let calls = [Self.write(1, 1_000, 2_000), Self.read(0, 3_000, 4_000)]
    let violation = try #require(LinearizabilityCheck.violation(in: calls))
    #expect(violation.possibleValues == [1])
    #expect(violation.description.contains("read  0, 2.0 to 3.0 us"))
  }

  /// Compares it with a search through all orders of a few random calls.
  @Test func agreesWithASearchThroughAllOrders() {
    var generator = SplitMix64(seed: 1)
    var counts = [false: 0, true: 0]
    for _ in 0..<Coverage.count(sample: 400, complete: 20_000) {
      var calls: [RegisterCall] = []
      for number in 1...6 {
        let isWrite = generator.below(2) == 0
        let began = UInt64(generator.below(12))
        let ended = isWrite && generator.below(5) == 0 ? nil : began + UInt64(generator.below(7))
        let value = isWrite && generator.below(4) > 0 ? number : 0
        calls.append(
          RegisterCall(
            key: 0, isWrite: isWrite, value: value, began: 2 * began,
            ended: ended.map { 2 * $0 + 1 }))
      }
      let values = [0] + calls.filter(\.isWrite).map(\.value)
      for index in calls.indices where !calls[index].isWrite {
        calls[index].value = values[generator.below(values.count)]
      }
      let isLinearizable = Self.hasOrder(calls, value: 0)
      counts[isLinearizable, default: 0] += 1
      #expect((LinearizabilityCheck.violation(in: calls) == nil) == isLinearizable, "\(calls)")
    }
    #expect(counts.values.allSatisfy { $0 > 50 }, "\(counts)")
  }

  /// Whether the calls can happen in some order, beginning with a register that holds `value`.
  private static func hasOrder(_ calls: [RegisterCall], value: Int) -> Bool {
    // A call that never returned need not happen.
    if calls.allSatisfy({ $0.ended == nil }) { return true }
    let firstEnd = calls.compactMap(\.ended).min() ?? .max
    return calls.indices.contains { index in
      let call = calls[index]
      guard call.began <= firstEnd, call.isWrite || call.value == value else { return false }
      var rest = calls
      rest.remove(at: index)
      return hasOrder(rest, value: call.value)
    }
  }
}
