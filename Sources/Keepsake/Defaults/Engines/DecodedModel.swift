internal import FoundationEssentials

/// A decoded value that is cached so that reading it again does not decode it again.
///
/// Unchecked because the constraint is erased: ``make(_:)`` is called only where the type is known
/// to be `Sendable`, and the value never changes.
@usableFromInline
class DecodedModel: @unchecked Sendable {
  /// nil if the value contains an instance of a class, which two readers would share.
  @usableFromInline
  static func make<T>(_ value: T) -> DecodedModel? {
    var budget = 4_096
    return isFreeOfInstances(value, &budget) ? TypedModel(value) : nil
  }

  @inlinable
  final func value<T>(as: T.Type) -> T? {
    // Comparing the class is faster than a cast, and just as safe.
    guard type(of: self) == TypedModel<T>.self else { return nil }
    return unsafeDowncast(self, to: TypedModel<T>.self).value
  }

  /// Whether no part of `value` is an instance of a class. False if it has more than `budget`
  /// parts.
  private static func isFreeOfInstances(_ value: Any, _ budget: inout Int) -> Bool {
    budget -= 1
    guard budget > 0 else { return false }
    switch value {
    // These have value semantics, however they are implemented.
    case is String, is Data, is Date, is URL, is UUID, is Decimal, is Bool, is Double, is Float,
      is any FixedWidthInteger:
      return true
    default: break
    }
    let mirror = Mirror(reflecting: value)
    switch mirror.displayStyle {
    case .class, .foreignReference, nil: return false
    // A custom mirror may leave something out; the standard library's mirrors do not.
    case _ where value is any CustomReflectable:
      guard String(reflecting: Swift.type(of: value)).hasPrefix("Swift.") else { return false }
    default: break
    }
    for child in mirror.children where !isFreeOfInstances(child.value, &budget) { return false }
    return true
  }
}

@usableFromInline
final class TypedModel<T>: DecodedModel, @unchecked Sendable {
  @usableFromInline let value: T

  init(_ value: T) { self.value = value }
}
