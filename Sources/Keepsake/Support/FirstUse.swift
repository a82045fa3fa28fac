internal import Synchronization

/// A value that is made when it is first needed, and then stays.
final class FirstUse<Value: Sendable>: Sendable {
  private final class Box: Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
  }

  private let box = Atomic<Unmanaged<Box>?>(nil)
  private let make: @Sendable (_ call: String) -> Value
  private let didMake: @Sendable (Value) -> Void

  /// - Parameters:
  ///   - make: Gets the name of the call that needs the value. May run on several threads at once;
  ///     one of the values is kept.
  ///   - didMake: Gets that value once others can see it.
  init(
    make: @escaping @Sendable (_ call: String) -> Value,
    didMake: @escaping @Sendable (Value) -> Void = { _ in }
  ) {
    self.make = make
    self.didMake = didMake
  }

  deinit { box.load(ordering: .acquiring)?.release() }

  /// Nil before the first use.
  var ifMade: Value? { box.load(ordering: .acquiring)?._withUnsafeGuaranteedRef { $0.value } }

  func value(for call: String) -> Value { with(call) { $0 } }

  /// The result of `body`, which uses the value in place. Counting a reference to it would make
  /// threads wait for each other.
  @inline(__always)
  func with<R, E: Error>(_ call: String, _ body: (Value) throws(E) -> R) throws(E) -> R {
    let box = box.load(ordering: .acquiring) ?? makeBox(call)
    // That call knows only errors of any type.
    return try box._withUnsafeGuaranteedRef { box in
      Result { () throws(E) in try body(box.value) }
    }.get()
  }

  @inline(never)
  private func makeBox(_ call: String) -> Unmanaged<Box> {
    let new = Unmanaged.passRetained(Box(make(call)))
    let (isFirst, known) = box.compareExchange(
      expected: nil, desired: new, ordering: .acquiringAndReleasing)
    if let known, !isFirst {
      new.release()
      return known
    }
    new._withUnsafeGuaranteedRef { didMake($0.value) }
    return new
  }
}
