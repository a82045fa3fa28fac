import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// The specification of a store, in plain values: what each call answers and changes, and what a
/// call that was interrupted may leave.
protocol StoreModel: Sendable {
  associatedtype Store: StoreUnderTest

  init()

  /// What the store's `contents()` should be.
  var contents: [String: String] { get }

  /// A new store on the files of the directory. It shares nothing in memory with other stores.
  static func open(_ directory: TemporaryDirectory, _ failures: Failures) throws -> Store

  /// The name of the store in commands to the other process.
  static var name: String { get }

  static func randomCall(_ generator: inout SplitMix64) -> Store.Call

  /// What may stand for a text in a call, the simplest first.
  static var simpleTexts: [String] { get }

  /// Whether the other process can make the call.
  static func isAvailableToPeer(_ call: Store.Call) -> Bool

  /// Whether the contents tell what the call has done if it is interrupted.
  static func mayBeInterrupted(_ call: Store.Call) -> Bool

  /// A call that reads what this one changed.
  static func probe(of call: Store.Call) -> Store.Call?

  /// Each correct answer, with the state after it.
  func outcomes(of call: Store.Call, by user: StoreUser) -> [ModelOutcome<Self>]

  /// Whether these contents are possible; if so, they become the state.
  mutating func accept(_ found: [String: String]) -> Bool

  /// The states that a call may leave if it is interrupted, besides the one before it and those
  /// after it.
  ///
  /// - Parameter found: The contents that it has left.
  func partialStates(of call: Store.Call, found: [String: String]) -> [Self]

  /// Whether that user can read all contents.
  func canReadContents(_ user: StoreUser) -> Bool

  mutating func reopened(_ user: StoreUser)

  /// The first user made a call that was interrupted.
  mutating func wasInterrupted(_ call: Store.Call)

  /// A user ended, possibly in the middle of a call.
  mutating func crashed()

  /// Does the cleaning up after such an end that the library does later.
  static func recover(_ directory: TemporaryDirectory, _ store: Store) throws

  /// A description of anything else that is wrong with the files.
  func audit(_ directory: TemporaryDirectory, _ store: Store) throws -> String?
}

struct ModelOutcome<Model: Sendable>: Sendable {
  /// `error` stands for any error, nil for anything but an error.
  let answer: String?
  let model: Model

  init(_ answer: String?, _ model: Model) { (self.answer, self.model) = (answer, model) }

  func matches(_ actual: String) -> Bool {
    if answer == nil { return !actual.hasPrefix("error") }
    return answer == actual || answer == "error" && actual.hasPrefix("error")
  }
}

extension StoreModel {
  mutating func accept(_ found: [String: String]) -> Bool { found == contents }

  /// Whether a call that was interrupted at an unknown point may have left these contents; if so,
  /// they become the state.
  mutating func accept(_ found: [String: String], interrupting call: Store.Call) -> Bool {
    let states =
      [self] + outcomes(of: call, by: .first).map(\.model)
      + partialStates(of: call, found: found)
    for var state in states where state.accept(found) {
      state.wasInterrupted(call)
      self = state
      return true
    }
    return false
  }

  /// Takes the state after a call with that answer; throws if it is no correct one.
  mutating func accept(
    _ answer: String, to call: Store.Call, by user: StoreUser = .first, _ comment: Comment? = nil
  ) throws {
    let outcomes = outcomes(of: call, by: user)
    guard let outcome = outcomes.first(where: { $0.matches(answer) }) else {
      let expected = outcomes.map { $0.answer ?? "a success" }.joined(separator: " or ")
      let place = comment.map { "\($0): " } ?? ""
      throw Divergence(
        description: "\(place)\(SourceText.of(call)) answered \(answer) instead of \(expected)")
    }
    self = outcome.model
  }

  /// Makes the calls, of which each must have a correct answer.
  mutating func make(_ calls: [Store.Call], on store: Store) throws {
    for call in calls { try accept(store.answer(call), to: call) }
  }

  /// The call with one of its numbers, flags and texts replaced by a simpler one.
  static func simpler(_ call: Store.Call) -> [Store.Call] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    guard let data = try? encoder.encode(call) else { return [] }
    let json = String(decoding: data, as: UTF8.self)
    // The values; a colon does not precede the names of cases and labels.
    return json.matches(of: #/:("[^"]*"|-?[0-9]+|true)/#).flatMap { match -> [Store.Call] in
      let (old, end) = (match.1, match.1.endIndex)
      var new = simpleTexts.map { "\"\($0)\"" }.prefix { $0 != old }
      if old == "true" { new = ["false"] }
      if let number = Int(old) {
        new = Set([0, 1, number / 2]).filter { $0 < number }.sorted().map { "\($0)" }[...]
      }
      return new.compactMap { value in
        let changed = json[..<old.startIndex] + value + json[end...]
        // Not every text may stand for every other one.
        return try? JSONDecoder().decode(Store.Call.self, from: Data(changed.utf8))
      }
    }
  }

  static var simpleTexts: [String] { [] }
  func partialStates(of call: Store.Call, found: [String: String]) -> [Self] { [] }
  mutating func wasInterrupted(_ call: Store.Call) {}

  static func open(_ directory: TemporaryDirectory) throws -> Store {
    try open(directory, Failures())
  }

  static func isAvailableToPeer(_ call: Store.Call) -> Bool { true }
  static func mayBeInterrupted(_ call: Store.Call) -> Bool { true }
  func canReadContents(_ user: StoreUser) -> Bool { true }
  mutating func reopened(_ user: StoreUser) {}
  mutating func crashed() {}
  static func recover(_ directory: TemporaryDirectory, _ store: Store) {}
  func audit(_ directory: TemporaryDirectory, _ store: Store) throws -> String? { nil }
}

enum StoreUser: CaseIterable, Sendable {
  case first
  /// Another store in the same process.
  case second
  /// Another process.
  case peer
}

/// One step of a check.
enum ModelStep<Call: Sendable>: Sendable {
  case call(Call, by: StoreUser)
  case compareContents(StoreUser)
  case reopen(StoreUser)
  /// Kills the other process while it makes these calls, once that many were answered.
  case kill([Call], after: Int)
  /// Makes all system calls fail from that one on, as if the process ended there, and then drops
  /// the first store.
  case crash(Call, at: Int)
}

/// A difference between a store and its model.
struct Divergence: Error, CustomStringConvertible {
  let description: String
}

/// Makes random calls on a store and on its model, and compares them.
struct ModelCheck<Model: StoreModel> {
  typealias Call = Model.Store.Call
  typealias Step = ModelStep<Call>

  /// Runs `sequences` random sequences, a fifth of them in a plain test run, and records the first
  /// that fails after making it as small as possible.
  ///
  /// `KEEPSAKE_ROUNDS` multiplies the number, `KEEPSAKE_SEED` repeats a single sequence.
  func run(sequences: Int, length: Int, sourceLocation: SourceLocation = #_sourceLocation) {
    let environment = ProcessInfo.processInfo.environment
    let wanted = environment["KEEPSAKE_SEED"].flatMap { UInt64($0) }
    let rounds = environment["KEEPSAKE_ROUNDS"].flatMap { Int($0) } ?? 1
    let perRound = Coverage.count(sample: sequences / 5, complete: sequences)
    let count = wanted == nil ? perRound * rounds : 1
    let start = wanted ?? .random(in: 0..<1 << 48)
    var steps = 0
    for number in 0..<count {
      let seed = start &+ UInt64(number)
      let sequence = Self.sequence(seed, length: length)
      steps += sequence.count
      guard let divergence = Self.divergence(of: sequence) else { continue }
      record(sequence, divergence, seed, sourceLocation)
      break
    }
    print("proof: operations on \(Model.name) and its model: \(steps) operations")
  }

  private func record(
    _ sequence: [Step], _ first: Divergence, _ seed: UInt64, _ sourceLocation: SourceLocation
  ) {
    var last = first
    var shrinker = Shrinker(
      simpler: Self.simpler,
      fails: { steps in
        guard let divergence = Self.divergence(of: steps) else { return false }
        last = divergence
        return true
      })
    let small = shrinker.shrink(sequence)
    // A failure that depends on timing may not occur again.
    let divergence =
      Self.divergence(of: small)?.description ?? "it did not fail again; at last: \(last)"
    let lines = small.map { "  " + SourceText.of($0) }.joined(separator: ",\n")
    Issue.record(
      "\(Model.name), KEEPSAKE_SEED=\(seed): \(divergence)\n[\n\(lines)\n]",
      sourceLocation: sourceLocation)
  }

  /// The first difference when the steps are run on an empty store.
  static func divergence(of steps: [Step]) -> Divergence? {
    do {
      var run = try ModelRun<Model>()
      for step in steps {
        do {
          try run.perform(step)
        } catch {
          return Divergence(description: "\(SourceText.of(step)): \(error)")
        }
      }
      try run.compareReopened()
      return nil
    } catch {
      return Divergence(description: "at the end: \(error)")
    }
  }

  // MARK: Sequences

  static func sequence(_ seed: UInt64, length: Int) -> [Step] {
    var generator = SplitMix64(seed: seed)
    return (0..<length).map { _ in step(&generator) }
  }

  private static func step(_ generator: inout SplitMix64) -> Step {
    func user() -> StoreUser {
      switch Int.random(in: 0..<10, using: &generator) {
      case 0..<4: .first
      case 4..<7: .second
      default: .peer
      }
    }
    let call = Model.randomCall(&generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<8: return .compareContents(user())
    case 8..<12: return .reopen(user())
    case 12..<24 where Model.mayBeInterrupted(call):
      return .crash(call, at: Int.random(in: 0..<24, using: &generator))
    case 24..<26:
      let calls = (0..<Int.random(in: 1...5, using: &generator)).map { _ in
        Model.randomCall(&generator)
      }
      return .kill(
        calls.filter { Model.isAvailableToPeer($0) && Model.mayBeInterrupted($0) },
        after: Int.random(in: 0...calls.count, using: &generator))
    default: return .call(call, by: user())
    }
  }

  static func simpler(_ step: Step) -> [Step] {
    switch step {
    case .call(let call, let user):
      let users = StoreUser.allCases.prefix { $0 != user }
      return users.map { .call(call, by: $0) }
        + Model.simpler(call).map { .call($0, by: user) }
    case .compareContents(let user):
      return StoreUser.allCases.prefix { $0 != user }.map { .compareContents($0) }
    case .reopen: return []
    case .kill(let calls, let count):
      let fewer = calls.indices.map { position in
        Step.kill(calls.enumerated().filter { $0.offset != position }.map(\.element), after: count)
      }
      return calls.map { .call($0, by: .peer) } + fewer
    case .crash(let call, let number):
      return [.call(call, by: .first)]
        + Model.simpler(call).map { .crash($0, at: number) }
        + (number > 0 ? [.crash(call, at: number / 2), .crash(call, at: number - 1)] : [])
    }
  }
}

/// A store with several users, and its model.
private struct ModelRun<Model: StoreModel> {
  typealias Call = Model.Store.Call

  private let directory: TemporaryDirectory
  private var model = Model()
  private var stores: [StoreUser: Model.Store] = [:]
  private var peer: Child?
  private var count = 0

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  mutating func perform(_ step: ModelStep<Call>) throws {
    switch step {
    case .call(let call, let user):
      let user = user == .peer && !Model.isAvailableToPeer(call) ? .first : user
      try make(call, by: user)
      if let probe = Model.probe(of: call) { try make(probe, by: user) }
    case .compareContents(let user):
      if model.canReadContents(user) { try compare(contents(of: user)) }
    case .reopen(let user): reopen(user)
    case .kill(let calls, let count): try killPeer(calls, after: count)
    case .crash(let call, let number): try crash(call, at: number)
    }
    count += 1
    if count.isMultiple(of: 10) { try compareReopened() }
  }

  private mutating func make(_ call: Call, by user: StoreUser) throws {
    let answer = try answer(to: call, by: user)
    try model.accept(answer, to: call, by: user)
  }

  /// Compares the contents that a newly opened store reads.
  mutating func compareReopened() throws {
    let store = try Model.open(directory)
    try compare(store.contents())
    if let fault = try model.audit(directory, store) { throw Divergence(description: fault) }
  }

  /// - Parameter call: A call that was interrupted.
  private mutating func compare(
    _ found: [String: String], interrupting call: Call? = nil
  ) throws {
    let expected = model.contents
    if let call {
      if model.accept(found, interrupting: call) { return }
      throw Divergence(
        description: "found \(found) after part of \(SourceText.of(call)), before it \(expected)")
    }
    guard model.accept(found) else {
      throw Divergence(description: "found \(found), expected \(expected)")
    }
  }

  // MARK: Users

  private mutating func store(of user: StoreUser) throws -> Model.Store {
    if let store = stores[user] { return store }
    let store = try Model.open(directory)
    stores[user] = store
    return store
  }

  private mutating func reopen(_ user: StoreUser) {
    if user == .peer {
      peer?.killAndWait()
      peer = nil
    } else {
      stores[user] = nil
    }
    model.reopened(user)
  }

  private mutating func answer(to call: Call, by user: StoreUser) throws -> String {
    if user == .peer {
      guard case .text(let text) = try ask(.call(call)) else { throw PeerFailure(line: nil) }
      return text
    }
    return try store(of: user).answer(call)
  }

  private mutating func contents(of user: StoreUser) throws -> [String: String] {
    if user == .peer {
      guard case .contents(let contents) = try ask(.contents) else { throw PeerFailure(line: nil) }
      return contents
    }
    return try store(of: user).contents()
  }

  // MARK: The other process

  private struct PeerFailure: Error {
    let line: String?
  }

  private mutating func startedPeer() throws -> Child {
    if let peer { return peer }
    let child = try Peer.start(directory, "model", Model.name)
    peer = child
    return child
  }

  private mutating func ask(_ request: StoreRequest<Call>) throws -> StoreReply {
    let line = try startedPeer().ask(try Self.line(request))
    return try Self.reply(line)
  }

  private static func line(_ request: StoreRequest<Call>) throws -> String {
    String(decoding: try JSONEncoder().encode(request), as: UTF8.self)
  }

  private static func reply(_ line: String?) throws -> StoreReply {
    let reply = line.flatMap {
      try? JSONDecoder().decode(StoreReply.self, from: Data($0.utf8))
    }
    guard let reply else { throw PeerFailure(line: line) }
    return reply
  }

  private mutating func killPeer(_ calls: [Call], after count: Int) throws {
    let peer = try startedPeer()
    if !calls.isEmpty {
      try peer.writeLine(calls.map { try Self.line(.call($0)) }.joined(separator: "\n"))
    }
    var lines = (0..<min(count, calls.count)).compactMap { _ in peer.line() }
    kill(peer.identifier, SIGKILL)
    // Calls whose answers it had written are done, too; the last line may be incomplete.
    let rest = peer.finish().split(separator: "\n", omittingEmptySubsequences: false).dropLast()
    lines += rest.map(String.init)
    for (call, line) in zip(calls, lines) {
      guard case .text(let text) = try Self.reply(line) else { throw PeerFailure(line: line) }
      try model.accept(text, to: call, by: .peer)
    }
    self.peer = nil
    model.reopened(.peer)
    model.crashed()
    let store = try Model.open(directory)
    try compare(store.contents(), interrupting: calls.dropFirst(lines.count).first)
    try Model.recover(directory, store)
  }

  // MARK: Crashes

  private mutating func crash(_ call: Call, at number: Int) throws {
    let store = try store(of: .first)
    var answer = ""
    let isKilled = killing(beforeCall: number) { answer = store.answer(call) }
    // Nobody hears the answer of a call that the end of the process interrupts.
    if !isKilled { try model.accept(answer, to: call) }
    reopen(.first)
    model.crashed()
    let fresh = try Model.open(directory)
    try compare(fresh.contents(), interrupting: isKilled ? call : nil)
    try Model.recover(directory, fresh)
  }
}

/// Calls and steps as Swift source, so that a printed sequence can be pasted into a test.
enum SourceText {
  static func of(_ value: some Any) -> String {
    // The names of the types precede each case but the first.
    "." + "\(value)".replacing(#/(?:\w+\.)+(?=[a-z])/#, with: ".")
  }
}
