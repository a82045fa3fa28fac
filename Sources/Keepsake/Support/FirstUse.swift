internal import Synchronization

/// A value that is made when it is first needed, and then stays.
final class FirstUse<Value: Sendable>: Sendable {
  private final class Box: Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
  }

  private let box: Atomic<Unmanaged<Box>?>
  private let make: @Sendable () -> Value

  /// - Parameter make: May run on several threads at once; one of the values is kept.
  init(make: @escaping @Sendable () -> Value) {
    box = Atomic(nil)
    self.make = make
  }

  /// Holds a value that is made already.
  init(_ value: Value) {
    box = Atomic(Unmanaged.passRetained(Box(value)))
    make = { value }
  }

  deinit { box.load(ordering: .acquiring)?.release() }

  var isMade: Bool { box.load(ordering: .acquiring) != nil }

  var value: Value { map { $0 } }

  /// The result of `body`, which uses the value in place: a copy of all of it would count
  /// references.
  @inline(__always)
  func map<R>(_ body: (Value) -> R) -> R {
    (box.load(ordering: .acquiring) ?? makeBox())._withUnsafeGuaranteedRef { body($0.value) }
  }

  @inline(never)
  private func makeBox() -> Unmanaged<Box> {
    let new = Unmanaged.passRetained(Box(make()))
    let (isFirst, known) = box.compareExchange(
      expected: nil, desired: new, ordering: .acquiringAndReleasing)
    if let known, !isFirst {
      new.release()
      return known
    }
    return new
  }
}
