internal import FoundationEssentials

/// A decoded value that is kept so that reading it again does not decode.
///
/// Unchecked because the constraint is erased: ``keeping(_:)`` is only reached from calls whose
/// type is known to be `Sendable` where they are made, and the value never changes.
@usableFromInline
class DecodedModel: @unchecked Sendable {
  /// nil when the value holds an instance of a class: two readers would share it.
  @usableFromInline
  static func keeping<T>(_ value: T) -> DecodedModel? {
    var budget = 4_096
    return isFreeOfInstances(value, &budget) ? KeptModel(value) : nil
  }

  @inlinable
  final func value<T>(as: T.Type) -> T? {
    // A cast would look the class up; a model's class says all there is to know.
    guard type(of: self) == KeptModel<T>.self else { return nil }
    return unsafeDowncast(self, to: KeptModel<T>.self).value
  }

  /// Whether nothing in `value` is an instance of a class, looking at no more than `budget` parts.
  private static func isFreeOfInstances(_ value: Any, _ budget: inout Int) -> Bool {
    budget -= 1
    guard budget > 0 else { return false }
    switch value {
    // These have value semantics whatever stands behind them.
    case is String, is Data, is Date, is URL, is UUID, is Decimal, is Bool, is Double, is Float,
      is any FixedWidthInteger:
      return true
    default: break
    }
    let mirror = Mirror(reflecting: value)
    switch mirror.displayStyle {
    case .class, .foreignReference, nil: return false
    // A type that describes itself may leave something out; the standard library's do not.
    case _ where value is any CustomReflectable:
      guard String(reflecting: Swift.type(of: value)).hasPrefix("Swift.") else { return false }
    default: break
    }
    for child in mirror.children where !isFreeOfInstances(child.value, &budget) { return false }
    return true
  }
}

@usableFromInline
final class KeptModel<T>: DecodedModel, @unchecked Sendable {
  @usableFromInline let value: T

  init(_ value: T) { self.value = value }
}
