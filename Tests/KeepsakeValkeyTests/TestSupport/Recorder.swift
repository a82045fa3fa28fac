import Foundation

/// Values that several threads add, in their order.
final class Recorder<Value: Sendable>: @unchecked Sendable {
  private let lock = NSLock()
  private var values: [Value] = []

  func append(_ value: Value) { lock.withLock { values.append(value) } }
  var all: [Value] { lock.withLock { values } }
  var count: Int { lock.withLock { values.count } }
}

/// A switch that several threads use.
final class Flag: @unchecked Sendable {
  private let lock = NSLock()
  private var isOn = false

  var value: Bool {
    get { lock.withLock { isOn } }
    set { lock.withLock { isOn = newValue } }
  }
}
