#if canImport(Testing)
public import Keepsake
public import Testing

/// Tests a ``/Keepsake/StorageEngines/Engine`` and names each rule that it breaks.
///
/// ```swift
/// @Test func conforms() async throws {
///   try await StorageEngineConformance.check { TableEngine() }
/// }
/// ```
///
/// For an engine whose values outlive the instance, also pass a closure that opens a second engine
/// on the same values. The check then uses both at once, as two processes would:
///
/// ```swift
/// try await StorageEngineConformance.check {
///   RedisEngine(database: 7)
/// } reopening: {
///   RedisEngine(database: 7)
/// }
/// ```
///
/// An engine that answers reads from a copy may take a moment to see what the second one has set.
/// Say how long with `seenWithin`. The same holds for the mirrors of a
/// ``/Keepsake/StorageEngines/MirroredEngine``, which are tested too.
public enum StorageEngineConformance {
  /// Records an issue for each rule that an engine breaks.
  ///
  /// The check consists of a dozen steps and ends after the first step that finds a broken rule. It
  /// takes a few seconds. It needs an empty engine, which it fills and leaves empty; an engine that
  /// is not empty is reported and left unchanged. The engine is called on several threads at once,
  /// none of them in Swift's pool, and finds the stores of the calling task.
  ///
  /// - Parameters:
  ///   - timeLimit: The longest time that one step may take; more on a busy machine. A call that
  ///     has not returned by then is recorded as an issue, and the check ends without it.
  ///   - delay: The longest time after which a read returns what a second engine on the same values
  ///     has set. By default, the next read must return it.
  ///   - sourceLocation: The source location of the recorded issues.
  ///   - make: Creates the engine, which must be empty.
  ///   - reopen: Opens a second engine on the same values, or nil if values do not outlive the
  ///     engine.
  /// - Throws: An error that the engine throws where no call should fail.
  public static func check(
    timeLimit: Duration = .seconds(60), seenWithin delay: Duration = .zero,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ make: () throws -> any StorageEngines.Engine,
    reopening reopen: (() throws -> any StorageEngines.Engine)? = nil
  ) async throws {
    let steps = StepRunner(
      engine: try make(), timeLimit: timeLimit, delay: delay, sourceLocation: sourceLocation)
    do {
      try await steps.runBlocking { checker in
        checker.expect(
          try checker.engine.keys().isEmpty,
          "a new engine has no keys (this one was left as it is)")
      }
      do {
        try await check(steps, reopening: reopen)
      } catch let error where error as? StepRunner.Stop != .timedOut {
        // The next check needs an empty engine.
        try? await steps.runBlocking { try $0.engine.removeAll() }
        throw error
      }
    } catch is StepRunner.Stop {}
  }

  private static func check(
    _ steps: StepRunner, reopening reopen: (() throws -> any StorageEngines.Engine)?
  ) async throws {
    // The steps with many calls come last, so that most broken rules are found soon.
    try await steps.runBlocking { try $0.checkValues() }
    try await steps.runBlocking { try $0.checkKeys() }
    try await steps.runBlocking { try $0.checkReplace() }
    try await steps.runBlocking { try $0.checkApply() }
    var other: (any StorageEngines.Engine)?
    if let reopen {
      try await steps.runBlocking { try $0.storeValue() }
      let reopened = try reopen()
      other = reopened
      try await steps.runBlocking { try $0.checkReopening(as: reopened) }
      try await steps.run { checker in
        try await checker.checkChanges(madeBy: reopened)
        try await blocking { try checker.engine.removeAll() }
      }
      if steps.engine is any StorageEngines.MirroredEngine {
        try await steps.run { try await $0.checkMirrors(and: reopened) }
        try await steps.run { try await $0.checkOrderInMirrors(and: reopened) }
      }
    }
    try await steps.run { try await $0.checkConcurrentUse(and: $0.engine) }
    try await steps.run { try await $0.checkSetDuringReplace() }
    try await steps.run { try await $0.checkConcurrentApply() }
    if let other { try await steps.run { try await $0.checkConcurrentUse(and: other) } }
    try await steps.run { try await $0.checkSuite() }
    try await steps.runBlocking { try $0.checkRemoveAll() }
  }
}

/// Runs blocking work on a thread that is not in Swift's pool.
func blocking<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
  try await BlockingWork.run { try body() }
}

/// Runs steps one after another and records the rules that they find broken.
struct StepRunner {
  let engine: any StorageEngines.Engine
  let timeLimit: Duration
  let delay: Duration
  let sourceLocation: SourceLocation

  /// Ends the check after an issue was recorded.
  enum Stop: Error {
    case ruleBroken, timedOut
  }

  enum Event: Sendable {
    case ruleBroken(String)
    case finished(Result<Void, any Error>)
    case timedOut
  }

  func runBlocking(_ step: @escaping @Sendable (Checker) throws -> Void) async throws {
    try await run { checker in try await blocking { try step(checker) } }
  }

  func run(_ step: @escaping @Sendable (Checker) async throws -> Void) async throws {
    let (events, continuation) = AsyncStream.makeStream(of: Event.self)
    // Unstructured, because a child task that never ends could not be abandoned.
    Task {
      do {
        try await step(Checker(engine: engine, events: continuation, delay: delay))
        continuation.yield(.finished(.success(())))
      } catch {
        continuation.yield(.finished(.failure(error)))
      }
    }
    let timer = Task {
      // In pieces, so that on a busy machine the timer waits for threads as often as the calls do.
      for _ in 0..<100 { try await Task.sleep(for: timeLimit / 100) }
      continuation.yield(.timedOut)
    }
    defer { timer.cancel() }
    var brokenRules: Set<String> = []
    for await event in events {
      switch event {
      case .ruleBroken(let rule):
        if brokenRules.insert(rule).inserted { record(rule) }
      case .finished(let result):
        try result.get()
        if !brokenRules.isEmpty { throw Stop.ruleBroken }
        return
      case .timedOut:
        record("every call returns (one did not return within \(timeLimit))")
        throw Stop.timedOut
      }
    }
    throw CancellationError()
  }

  private func record(_ rule: String) {
    Issue.record("The engine breaks a rule: \(rule)", sourceLocation: sourceLocation)
  }
}
#endif
