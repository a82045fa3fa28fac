public import FoundationEssentials

extension Defaults {
  /// A setting of any type, for programs that list, compare or edit settings they do not know.
  ///
  /// ```swift
  /// for (key, value) in Defaults.values() { print(key, value) }
  /// if case .string(let theme)? = Defaults.get("theme") as Defaults.Value? { print(theme) }
  /// ```
  ///
  /// Inside lists and dictionaries, bytes and dates look as their type encodes them: usually as a
  /// string and as a number.
  public enum Value: Hashable, Sendable {
    /// A null in a list or a dictionary.
    case null
    /// A Boolean.
    case bool(Bool)
    /// An integer.
    case int(Int)
    /// An integer that is too large for `Int`.
    case uint(UInt64)
    /// A floating-point number.
    case double(Double)
    /// A number with more digits than a `Double` can hold.
    case decimal(Decimal)
    /// Text.
    case string(String)
    /// Bytes.
    case data(Data)
    /// A date.
    case date(Date)
    /// A list.
    case array([Value])
    /// A struct, or a dictionary whose keys are strings.
    case dictionary([String: Value])
  }
}
