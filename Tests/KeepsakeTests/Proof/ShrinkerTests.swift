import Testing

@testable import Keepsake
@testable import keepsake_peer

/// Model checks find a fault and reduce it to as few steps as possible.
@Suite struct ShrinkerTests {
  private enum Step: Equatable {
    case set(Int, Int)
    case remove(Int)
    case clear
  }

  /// A dictionary that after `clear` rejects the second of two keys with the same parity.
  private struct WrongStore {
    private(set) var values: [Int: Int] = [:]
    private var isCleared = false

    mutating func perform(_ step: Step) {
      switch step {
      case .set(let key, let value):
        if isCleared, values.keys.contains(where: { $0 != key && $0 % 2 == key % 2 }) { return }
        values[key] = value
      case .remove(let key): values[key] = nil
      case .clear:
        values = [:]
        isCleared = true
      }
    }
  }

  private static func fails(_ steps: [Step]) -> Bool {
    var store = WrongStore()
    var values: [Int: Int] = [:]
    for step in steps {
      store.perform(step)
      switch step {
      case .set(let key, let value): values[key] = value
      case .remove(let key): values[key] = nil
      case .clear: values = [:]
      }
    }
    return store.values != values
  }

  private static func simpler(_ step: Step) -> [Step] {
    guard case .set(let key, let value) = step else { return [] }
    return [.set(key, 0), .set(key % 2, value), .set(key - 2, value)].filter {
      if case .set(let key, _) = $0 { key >= 0 && $0 != step } else { false }
    }
  }

  @Test func findsTheSmallestFailingSequence() {
    var failed = 0
    for seed in 0..<200 as Range<UInt64> {
      var generator = SplitMix64(seed: seed)
      let steps = (0..<100).map { _ -> Step in
        let key = Int.random(in: 0..<10, using: &generator)
        switch Int.random(in: 0..<20, using: &generator) {
        case 0: return .clear
        case 1..<6: return .remove(key)
        default: return .set(key, Int.random(in: 0..<100, using: &generator))
        }
      }
      guard Self.fails(steps) else { continue }
      failed += 1
      var shrinker = Shrinker(simpler: Self.simpler, fails: Self.fails)
      let small = shrinker.shrink(steps)
      let keys = [[0, 2], [2, 0], [1, 3], [3, 1]]
      #expect(keys.map { [.clear, .set($0[0], 0), .set($0[1], 0)] }.contains(small))
    }
    #expect(failed > 100)
    print("proof: failing sequences shrunk to the smallest: \(failed) sequences")
  }

  @Test func stopsWhenTheBudgetIsSpent() {
    var asked = 0
    var shrinker = Shrinker<Int>(
      simpler: { [$0 - 1] },
      fails: { _ in
        asked += 1
        return false
      }, budget: 30)
    _ = shrinker.shrink(Array(0..<1_000))
    #expect(asked == 30)
  }

  @Test func stepsArePrintedAsSourceText() {
    let steps: [ModelStep<VaultUnderTest.Call>] = [
      .call(.set(1, in: 2, .text(3)), by: .peer), .kill([.lock, .unlockWith(1)], after: 0),
      .compareContents(.first), .call(.removeAll(in: 0), by: .second),
    ]
    #expect(
      steps.map { SourceText.of($0) } == [
        ".call(.set(1, in: 2, .text(3)), by: .peer)", ".kill([.lock, .unlockWith(1)], after: 0)",
        ".compareContents(.first)", ".call(.removeAll(in: 0), by: .second)",
      ])
    let directory: ModelStep<FilesUnderTest.Call> = .crash(.move("a\"", to: "b"), at: 1)
    #expect(SourceText.of(directory) == ".crash(.move(\"a\\\"\", to: \"b\"), at: 1)")
  }
}
