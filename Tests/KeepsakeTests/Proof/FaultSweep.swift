import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// One call of a store whose system calls fail in turn, and the state in which it is made.
struct Sweep<Call: Sendable>: Sendable {
  let call: Call
  /// The calls that lead to the state.
  var start: [Call] = []
  /// Changes the files of that state, as damage does.
  var alter: @Sendable (TemporaryDirectory) throws -> Void = { _ in }
  /// Of the faults of each system call, every so many are injected: for slow calls.
  var step = 1
}

/// What a store promises when system calls fail.
protocol SweptModel: StoreModel {
  static var sweeps: [Sweep<Store.Call>] { get }

  /// Makes a store ready: what this does is not repeated for each call of the sweep.
  static func prepare(_ store: Store) throws

  /// The first user's store was made ready.
  mutating func wasPrepared()

  /// The states that a call may leave if a system call fails, besides those of an interrupted one.
  func faultStates(of call: Store.Call) -> [Self]

  /// The files that a failed call has left, after whatever removes them later.
  static func leftovers(
    _ directory: TemporaryDirectory, _ store: Store, _ call: FailedCall
  ) throws -> [String]
}

extension SweptModel {
  static func prepare(_ store: Store) throws {}
  mutating func wasPrepared() {}
  func faultStates(of call: Store.Call) -> [Self] { [] }

  static func leftovers(
    _ directory: TemporaryDirectory, _ store: Store, _ call: FailedCall
  ) throws -> [String] { try directory.temporaries() }
}

extension FailedCall {
  /// Whether something besides a temporary file had been changed before the call failed.
  fileprivate var isAfterVisibleChange: Bool {
    event.call == .publish || isAfterChange { !$0.hasSuffix(".tmp") }
  }
}

/// Makes each system call of each call fail in every way that its manual page names, and expects an
/// error with a remedy and the old or the whole new state, no temporary files, and that the same
/// call works afterwards.
struct FaultSweep<Model: SweptModel> {
  typealias Call = Model.Store.Call

  /// A store and what happened to it.
  private final class Stage: Sendable {
    let store: Model.Store
    let failures: Failures
    let answer = Locked<String?>(nil)

    init(_ store: Model.Store, _ failures: Failures) {
      (self.store, self.failures) = (store, failures)
    }
  }

  func run() async throws {
    let start = ContinuousClock.now
    var count = 0
    for (index, sweep) in Model.sweeps.enumerated() {
      count += try await run(sweep, offset: index)
    }
    let seconds = start.duration(to: .now).components.seconds
    print("proof: faults, \(Model.name): \(count) failing calls in \(seconds) s")
  }

  private func run(_ sweep: Sweep<Call>, offset: Int) async throws -> Int {
    let (template, state) = try makeStart(sweep)
    let name = SourceText.of(sweep.call)
    return try await failingEachCall(
      step: sweep.step, every: 10, offset: offset,
      { (stage: Stage) in
        let answer = try stage.store.perform(sweep.call)
        stage.answer.withLock { $0 = answer }
      },
      on: {
        let directory = try TemporaryDirectory(copying: template)
        let failures = Failures()
        let store = try Model.open(directory, failures)
        try Model.prepare(store)
        return (Stage(store, failures), [directory])
      },
      check: { stage, directory, call in
        try check(stage, directory, call, sweep.call, state, "\(name): \(call.comment)")
      },
      // An open store keeps its temporary files from being taken for abandoned ones.
      afterwards: { directory, call in
        let left = try Model.leftovers(directory, Model.open(directory), call)
        #expect(left == [], "\(name): \(call.comment)")
      })
  }

  /// Ends the process before each system call of each call in turn, as a kill does: no later one
  /// has an effect. The old or the new state is left, and the same call works in the next process.
  func runKills() throws {
    var count = 0
    // A plain test run takes every thirtieth system call.
    let step = Coverage.isComplete ? 1 : 30
    for (index, sweep) in Model.sweeps.enumerated() {
      let (template, start) = try makeStart(sweep)
      var isKilled = true
      for number in stride(from: index % step, to: 1_000, by: step) where isKilled {
        let comment: Comment = "\(SourceText.of(sweep.call)), before call \(number)"
        let directory = try TemporaryDirectory(copying: template)
        var state = start
        isKilled = try kill(sweep.call, beforeCall: number, in: directory, &state, comment)
        let next = try Model.open(directory)
        try Model.prepare(next)
        let found = try next.contents()
        let isRight =
          isKilled ? state.accept(found, interrupting: sweep.call) : state.accept(found)
        #expect(isRight, "\(comment): found \(found), expected \(state.contents)")
        try Model.recover(directory, next)
        state.reopened(.first)
        state.wasPrepared()
        try state.accept(next.answer(sweep.call), to: sweep.call, "\(comment), again")
        let after = try Model.open(directory).contents()
        let isRightAgain = state.accept(after)
        #expect(isRightAgain, "\(comment), again: found \(after)")
        count += 1
      }
      #expect(!isKilled, "\(SourceText.of(sweep.call)) ends")
    }
    print("proof: kills, \(Model.name): \(count) kills, each before one system call")
  }

  /// Whether the call was killed; otherwise the state is the one after it.
  private func kill(
    _ call: Call, beforeCall number: Int, in directory: TemporaryDirectory, _ state: inout Model,
    _ comment: Comment
  ) throws -> Bool {
    let store = try Model.open(directory)
    try Model.prepare(store)
    var answer = ""
    if killing(beforeCall: number, { answer = store.answer(call) }) { return true }
    try state.accept(answer, to: call, comment)
    return false
  }

  /// The files and the state in which the call is made.
  private func makeStart(_ sweep: Sweep<Call>) throws -> (Snapshot, Model) {
    let directory = try TemporaryDirectory(isQuick: true)
    var state = Model()
    let store = try Model.open(directory)
    try state.make(sweep.start, on: store)
    try sweep.alter(directory)
    state.reopened(.first)
    state.wasPrepared()
    return (try Snapshot(of: directory), state)
  }

  private func check(
    _ stage: Stage, _ directory: TemporaryDirectory, _ failed: FailedCall, _ call: Call,
    _ start: Model, _ comment: Comment
  ) throws {
    var state = start
    #expect(stage.failures.all.allSatisfy { !$0.remedy.isEmpty }, comment)
    #expect(!stage.failures.all.contains { "\($0)".contains(Fault.mark) }, comment)
    let found: [String: String]
    do {
      found = try stage.store.contents()
    } catch {
      Issue.record("\(comment): then \(error)")
      return
    }
    if failed.failure == nil {
      let answer = stage.answer.withLock { $0 } ?? ""
      let outcome = state.outcomes(of: call, by: .first).first { $0.matches(answer) }
      if let outcome {
        state = outcome.model
      } else {
        // A listing that leaves something out reports that.
        #expect(!stage.failures.all.isEmpty, "\(comment): answered \(answer)")
      }
    }
    let expected = state
    let isRight =
      state.accept(found)
      || failed.failure != nil && failed.isAfterVisibleChange
        && state.accept(found, interrupting: call)
      || start.faultStates(of: call).contains { other in
        state = other
        return state.accept(found)
      }
    #expect(isRight, "\(comment): found \(found), expected \(expected.contents)")
    // A new reader sees the same.
    let next = try Model.open(directory)
    try Model.prepare(next)
    let seen = try next.contents()
    let isSame = seen == found || state.accept(seen)
    #expect(isSame, "\(comment): found \(found), then \(seen)")

    // Both the store that failed and a new one work afterwards.
    let user = failed.number % 4 < 2 ? stage.store : next
    try state.accept(user.answer(call), to: call, "\(comment), again")
    let after = try Model.open(directory).contents()
    let wanted = state.contents
    let isRightAgain = state.accept(after)
    #expect(isRightAgain, "\(comment), again: found \(after), expected \(wanted)")
  }
}
