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
    let engine = try make()
    let steps = StepRunner(timeLimit: timeLimit, delay: delay, sourceLocation: sourceLocation)
    do {
      try await steps.run { checker in
        try await blocking {
          checker.expect(
            try engine.keys().isEmpty, "a new engine has no keys (this one was left as it is)")
        }
      }
      do {
        try await check(engine, steps, reopening: reopen)
      } catch let error where !(error is StepRunner.TimedOut) {
        // The next check needs an empty engine.
        try? await steps.run { _ in try await blocking { try engine.removeAll() } }
        throw error
      }
    } catch is any StepRunner.Stop {}
  }

  private static func check(
    _ engine: any StorageEngines.Engine, _ steps: StepRunner,
    reopening reopen: (() throws -> any StorageEngines.Engine)?
  ) async throws {
    // The steps with many calls come last, so that most broken rules are found soon.
    try await steps.run { checker in try await blocking { try checker.checkValues(of: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkKeys(of: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkReplace(in: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkApply(in: engine) } }
    var other: (any StorageEngines.Engine)?
    if let reopen {
      try await steps.run { _ in try await blocking { try Checker.storeValue(in: engine) } }
      let reopened = try reopen()
      other = reopened
      try await steps.run { checker in
        try await blocking { try checker.checkReopening(of: engine, as: reopened) }
      }
      try await steps.run { checker in
        try await checker.checkChanges(of: engine, madeBy: reopened)
        try await blocking { try engine.removeAll() }
      }
      if engine is any StorageEngines.MirroredEngine {
        try await steps.run { checker in try await checker.checkMirrors(of: engine, and: reopened) }
        try await steps.run { checker in
          try await checker.checkOrderInMirrors(of: engine, and: reopened)
        }
      }
    }
    try await steps.run { checker in try await checker.checkConcurrentUse(of: engine, and: engine) }
    try await steps.run { checker in try await checker.checkSetDuringReplace(in: engine) }
    try await steps.run { checker in try await checker.checkConcurrentApply(in: engine) }
    if let other {
      try await steps.run { checker in
        try await checker.checkConcurrentUse(of: engine, and: other)
      }
    }
    try await steps.run { checker in try await checker.checkSuite(on: engine) }
    try await steps.run { checker in try await blocking { try checker.checkRemoveAll(in: engine) } }
  }
}

/// Runs blocking work on a thread that is not in Swift's pool.
func blocking<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
  try await BlockingWork.run { try body() }
}

/// Runs steps one after another and records the rules that they find broken.
struct StepRunner {
  let timeLimit: Duration
  let delay: Duration
  let sourceLocation: SourceLocation

  /// Ends the check after an issue was recorded.
  protocol Stop: Error {}
  struct RuleBroken: Stop {}
  struct TimedOut: Stop {}

  enum Event: Sendable {
    case ruleBroken(String)
    case finished(Result<Void, any Error>)
    case timedOut
  }

  func run(_ step: @escaping @Sendable (Checker) async throws -> Void) async throws {
    let (events, continuation) = AsyncStream.makeStream(of: Event.self)
    // Unstructured, because a child task that never ends could not be abandoned.
    Task {
      do {
        try await step(Checker(events: continuation, delay: delay))
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
        if !brokenRules.isEmpty { throw RuleBroken() }
        return
      case .timedOut:
        record("every call returns (one did not return within \(timeLimit))")
        throw TimedOut()
      }
    }
    throw CancellationError()
  }

  private func record(_ rule: String) {
    Issue.record("The engine breaks a rule: \(rule)", sourceLocation: sourceLocation)
  }
}
#endif
