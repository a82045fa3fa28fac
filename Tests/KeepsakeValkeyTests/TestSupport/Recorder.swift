import Foundation
import Testing

/// Values that several threads add, in their order.
final class Recorder<Value: Sendable>: @unchecked Sendable {
  private let condition = NSCondition()
  private var values: [Value] = []

  func append(_ value: Value) {
    condition.withLock {
      values.append(value)
      condition.broadcast()
    }
  }

  var all: [Value] { condition.withLock { values } }
  var count: Int { condition.withLock { values.count } }

  /// Blocks the thread until there are so many values.
  func waitForCount(
    _ count: Int, _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    condition.wait(comment, sourceLocation) { values.count >= count }
  }
}

/// A switch that several threads use.
final class Flag: @unchecked Sendable {
  private let condition = NSCondition()
  private var isOn = false

  var value: Bool {
    get { condition.withLock { isOn } }
    set {
      condition.withLock {
        isOn = newValue
        condition.broadcast()
      }
    }
  }

  /// Blocks the thread until the switch is on.
  func wait(_ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation) {
    condition.wait(comment, sourceLocation) { isOn }
  }
}

extension NSCondition {
  /// Waits until a broadcast after which `isMet` holds. The guard of ten minutes only ends hangs.
  fileprivate func wait(
    _ comment: Comment, _ sourceLocation: SourceLocation, until isMet: () -> Bool
  ) {
    let deadline = Date(timeIntervalSinceNow: 600)
    withLock {
      while !isMet() {
        guard wait(until: deadline) else {
          Issue.record(comment, sourceLocation: sourceLocation)
          return
        }
      }
    }
  }
}
