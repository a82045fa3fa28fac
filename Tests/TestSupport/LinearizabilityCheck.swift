@testable import keepsake_peer

/// Checks whether calls on one register are linearizable: whether each of them can have happened at
/// one moment between its beginning and its end, so that every read returns what was written last.
///
/// The algorithm is just-in-time linearization (Gavin Lowe, "Testing for linearizability", 2017),
/// which refines the search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993): a
/// call is linearized when it or a call that needs it returns, and all orders that lead to the same
/// value after the same calls are one state of the search.
struct LinearizabilityCheck {
  /// One way in which the calls so far can have happened.
  private struct Configuration: Hashable {
    var value = 0
    /// The running calls that have happened, as bits of their slots.
    var happened: UInt64 = 0
  }

  /// The beginning or the end of a call.
  private struct Event: Comparable {
    let time: UInt64
    let isEnd: Bool
    let call: Int

    /// At equal times a call may have begun before another one ended.
    static func < (left: Event, right: Event) -> Bool {
      left.time == right.time ? !left.isEnd && right.isEnd : left.time < right.time
    }
  }

  /// Why calls are not linearizable.
  struct Violation: CustomStringConvertible {
    let call: RegisterCall
    let possibleValues: [Int]
    let context: [RegisterCall]

    var description: String {
      let start = context.map(\.began).min() ?? 0
      func line(_ call: RegisterCall) -> String {
        let times = [call.began, call.ended].map { time in
          time.map { "\(Double($0 - min($0, start)) / 1_000)" } ?? "never"
        }
        return "process \(call.process) \(call.isWrite ? "wrote" : "read ") \(call.value), "
          + "\(times[0]) to \(times[1]) us"
      }
      return "key \(call.key): no order of the calls explains \(line(call)). "
        + "Possible values before: \(possibleValues). Calls around it:\n"
        + context.map { "  " + line($0) }.joined(separator: "\n")
    }
  }

  /// The calls by slot: a running call has a slot, which another call gets when it has returned.
  private var running = [RegisterCall?](repeating: nil, count: UInt64.bitWidth)
  private var configurations: Set = [Configuration()]

  /// The first violation, or nil if the calls are linearizable.
  ///
  /// - Parameters:
  ///   - calls: The calls on one register, in any order. Each write has a value of its own, apart
  ///     from removals.
  ///   - mayLose: Whether a value may be missing at any time, as in a cache: then a read of nothing
  ///     is always right. A read of an old value after a new one is still wrong.
  static func violation(in calls: [RegisterCall], mayLose: Bool = false) -> Violation? {
    let calls = relevant(calls, mayLose: mayLose)
    var events: [Event] = []
    for (index, call) in calls.enumerated() {
      events.append(Event(time: call.began, isEnd: false, call: index))
      if let ended = call.ended { events.append(Event(time: ended, isEnd: true, call: index)) }
    }
    events.sort()
    var check = LinearizabilityCheck()
    var slots: [Int: Int] = [:]
    for event in events {
      let index = event.call
      if !event.isEnd {
        slots[index] = check.begin(calls[index])
      } else if let slot = slots.removeValue(forKey: index) {
        let before = check.configurations
        check.end(slot)
        if check.configurations.isEmpty {
          let context = check.context(of: calls[index], calls)
          return Violation(
            call: calls[index], possibleValues: Set(before.map(\.value)).sorted(),
            context: context)
        }
      }
    }
    return nil
  }

  /// The calls that determine the result.
  ///
  /// A write that never returned may have happened at any later time, but before the first read of
  /// its value returned. If no read returned its value, it can as well not have happened.
  private static func relevant(_ calls: [RegisterCall], mayLose: Bool) -> [RegisterCall] {
    var firstRead: [Int: UInt64] = [:]
    var relevant: [RegisterCall] = []
    for call in calls where !call.isWrite && !(mayLose && call.value == 0) {
      guard let ended = call.ended else { continue }
      firstRead[call.value] = min(firstRead[call.value] ?? .max, ended)
      relevant.append(call)
    }
    for var call in calls where call.isWrite {
      if call.ended == nil {
        guard let time = firstRead[call.value] else { continue }
        // Other removals may be the ones that a read of nothing saw.
        if call.value != 0 { call.ended = max(time, call.began) }
      }
      relevant.append(call)
    }
    return relevant
  }

  private mutating func begin(_ call: RegisterCall) -> Int {
    guard let slot = running.firstIndex(where: { $0 == nil }) else {
      preconditionFailure("more than \(running.count) calls run at the same time")
    }
    running[slot] = call
    // A read of the present value happens now: later it may be too late, and it changes nothing.
    if !call.isWrite {
      configurations = Set(
        configurations.map { configuration in
          guard configuration.value == call.value else { return configuration }
          var configuration = configuration
          configuration.happened |= 1 << UInt64(slot)
          return configuration
        })
    }
    return slot
  }

  /// Keeps the configurations in which the call has happened, or can happen now.
  private mutating func end(_ slot: Int) {
    let bit: UInt64 = 1 << UInt64(slot)
    var kept: Set<Configuration> = []
    var seen: Set<Configuration> = []
    var waiting = Array(configurations)
    while var configuration = waiting.popLast() {
      if configuration.happened & bit != 0 {
        configuration.happened &= ~bit
        kept.insert(configuration)
        continue
      }
      for (other, call) in running.enumerated() {
        guard let call, call.isWrite, configuration.happened & (1 << UInt64(other)) == 0 else {
          continue
        }
        let next = after(call, other, configuration)
        if seen.insert(next).inserted { waiting.append(next) }
      }
    }
    running[slot] = nil
    configurations = kept
  }

  /// The calls that ran at the same time as one that is wrong, and some before it.
  private func context(of wrong: RegisterCall, _ calls: [RegisterCall]) -> [RegisterCall] {
    let last = wrong.ended ?? .max
    let sorted = calls.filter { $0.began <= last }.sorted { $0.began < $1.began }
    let earliest = sorted.suffix(20).first?.began ?? 0
    return sorted.filter { $0.ended.map { $0 >= earliest } ?? true }
  }

  /// The configuration after a write, and after the reads of its value that are running.
  private func after(
    _ write: RegisterCall, _ slot: Int, _ configuration: Configuration
  ) -> Configuration {
    var next = Configuration(
      value: write.value, happened: configuration.happened | 1 << UInt64(slot))
    for (other, call) in running.enumerated() {
      if let call, !call.isWrite, call.value == write.value { next.happened |= 1 << UInt64(other) }
    }
    return next
  }
}
